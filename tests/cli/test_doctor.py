"""`costgpu doctor` without a cloud: this computer, the policies, and what stands-in for clouds answer."""

import json
import sqlite3
import threading
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from costgpu.errors import QuotaExceeded, Unreachable
from costgpu.models.diagnostics import Check, failed, ok
from costgpu.models.offer import Offer
from costgpu.providers import registry
from costgpu.providers.spec import ProviderSpec
from tests.cli.here import Here, Result

LOGIN = {"aws": "aws sso login", "gcp": "gcloud auth application-default login"}


@pytest.fixture(autouse=True)
def programs(here: Here, tmp_path: Path) -> None:
    here.environment["NO_GCE_CHECK"] = "true"
    folder = tmp_path / "bin"
    folder.mkdir()
    crontab(folder, "")
    here.environment["PATH"] = f"{folder}:{here.environment['PATH']}"


def crontab(programs: Path, lines: str) -> None:
    """A `crontab` command that has these lines."""
    (programs / "lines").write_text(lines)
    says = f"cat '{programs}/lines'" if lines else "echo 'no crontab for ann' >&2; exit 1"
    (programs / "crontab").write_text(f"#!/bin/sh\n{says}\n")
    (programs / "crontab").chmod(0o755)


def own(result: Result) -> dict[str, dict[str, Any]]:
    """The checks of this computer by name."""
    [first, *_] = json.loads(result.out)["places"]
    assert first["place"] == "this computer"
    return {check["name"]: check for check in first["checks"]}


def look(here: Here, name: str) -> tuple[tuple[int, str], dict[str, Any]]:
    """Exit code and status of one check of this computer, and all of that check."""
    result = here.told("doctor", "--infra", "local", "--json")
    check = own(result)[name]
    return (result.code, check["status"]), check


def settings(here: Here, text: str) -> Path:
    file = Path(here.environment["XDG_CONFIG_HOME"]) / "costgpu" / "config.toml"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    file.chmod(0o600)
    return file


def test_a_new_computer_is_told_how_to_get_credentials(here: Here) -> None:
    result = here.told("doctor").check(0, err="")
    text = " ".join(result.out.split())
    for how in LOGIN.values():
        assert how in text
    assert "Nothing was created, nothing was changed, nothing costs money." in text
    home = here.environment["HOME"]  # its long name is not broken
    assert max(len(line) for line in result.out.splitlines() if home not in line) <= 80
    assert not here.data.exists()
    result = here.told("doctor", "--infra", "local", "--json")
    document = json.loads(result.out)
    assert (document["schema"], document["version"], len(document["places"])) == ("costgpu.doctor", 1, 1)
    assert list(own(result)) == ["python", "settings", "isolation", "data folder", "ledger", "alerts", "cron"]


@pytest.mark.parametrize("cloud", ["aws", "gcp"])
def test_a_cloud_that_is_named_must_have_credentials(here: Here, cloud: str) -> None:
    result = here.told("doctor", "--infra", cloud).check(41, out="FAIL credentials", err="1 check failed")
    assert LOGIN[cloud] in " ".join(result.out.split())
    other = ({"aws", "gcp"} - {cloud}).pop()
    assert f"\n{other}\n" not in result.out


@pytest.mark.parametrize(("cloud", "file"), [("aws", "providers/aws/policy.json"), ("gcp", "providers/gcp/role.yaml")])
def test_the_policy_is_printed_byte_for_byte(here: Here, root: Path, cloud: str, file: str) -> None:
    result = here.told("doctor", "--policy", cloud).check(0)
    assert result.out.encode() == (root / file).read_bytes()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--policy", "azure"), "aws or gcp"),
        (("--policy", "local"), "aws or gcp"),
        (("--infra", "azzure"), "azzure is not a place"),
        (("--infra", "azure"), "Microsoft Azure is known, and not supported"),
        (("--infra", "aws/"), "aws/ is not a place"),
        (("--infra", "local/here"), "local/here is not a place"),
        (("-t", "g5.xlarge", "--gpus", "L4:1"), "contradict"),
        (("--max-cost", "0.50"), "--max-cost cannot be used without --live"),
        (("--report", "a.json", "--yes"), "--report and --yes cannot be used without --live"),
        (("--live", "--max-cost", "much"), "--max-cost"),
        (("--live", "--report", "no/such/a.json"), "There is no folder no/such"),
        (("--gpus", "L4:x"), "number of accelerators"),
    ],
)
def test_what_cannot_be_meant(here: Here, words: tuple[str, ...], said: str) -> None:
    here.told("doctor", *words).check(2, out="", err=said)


def test_a_machine_that_nobody_has(here: Here) -> None:
    for words in ((), ("--infra", "aws")):
        here.told("doctor", "-t", "g5.xlagre", *words).check(4, out="", err="g5.xlagre")


# -- this computer -----------------------------------------------------------------------------------------------------


def test_a_data_folder_that_others_may_look_into_or_is_a_file(here: Here) -> None:
    here.data.mkdir(parents=True)
    here.data.chmod(0o755)
    found, check = look(here, "data folder")
    assert (found, check["fix"]) == ((0, "warning"), f"chmod 700 {here.data}")
    assert here.data.stat().st_mode & 0o777 == 0o755  # nothing was changed
    here.data.chmod(0o700)
    assert look(here, "data folder")[0] == (0, "ok")
    here.data.rmdir()
    here.data.write_text("")
    assert look(here, "data folder")[0] == (3, "failed")


@pytest.mark.parametrize("sql", ["", "CREATE TABLE runs (other)"])
def test_a_ledger_that_cannot_be_used(here: Here, sql: str) -> None:
    here.data.mkdir(parents=True, mode=0o700)
    file = here.data / "ledger.sqlite"
    if sql:
        with sqlite3.connect(file) as connection:
            connection.execute(sql)
        connection.close()
    else:
        file.write_text("x" * 5000)
    before = file.read_bytes()
    found, check = look(here, "ledger")
    assert (found, str(file) in check["detail"]) == ((70, "failed"), True)
    assert file.read_bytes() == before


def test_settings_that_cannot_be_read_are_told_once_and_stop_nothing(here: Here) -> None:
    settings(here, "nonsense = 1\n")
    result = here.told("doctor", "--json")
    checks = own(result)
    assert (result.code, checks["settings"]["status"]) == (3, "failed")
    assert "nonsense" in checks["settings"]["detail"]
    assert checks["python"]["status"] == "ok"


def test_alert_addresses_that_others_may_read(here: Here) -> None:
    file = settings(here, 'alert_urls = ["mailto://ann:s3cret@example.org"]\n')
    assert look(here, "alerts")[0] == (0, "ok")
    file.chmod(0o644)
    found, check = look(here, "alerts")
    assert (found, check["fix"]) == ((0, "warning"), f"chmod 600 {file}")
    assert "s3cret" not in here.told("doctor", "--infra", "local").out + str(check)


def test_whether_cron_looks_after_it(here: Here, tmp_path: Path) -> None:
    found, check = look(here, "cron")
    assert (found, "--install" in check["fix"]) == ((0, "ok"), True)
    assert "budget check" in here.told("budget", "cron").out
    block = "# costgpu begin: made by `costgpu budget cron`\n* * * * * costgpu budget check\n# costgpu end\n"
    crontab(tmp_path / "bin", block)
    found, check = look(here, "cron")
    assert (found, check["fix"]) == ((0, "ok"), "")
    crontab(tmp_path / "bin", block + block)
    assert look(here, "cron")[0] == (0, "unknown")


# -- clouds that stand in ----------------------------------------------------------------------------------------------


Clouds = tuple[dict[str, Sequence[Check]], list[Offer | None]]


class Cloud:
    """A cloud that says what it was told to, once everybody is there."""

    def __init__(self, checks: Sequence[Check], together: threading.Barrier, asked: list[Offer | None]) -> None:
        self._checks, self._together, self._asked = checks, together, asked

    def examine(self, offer: Offer | None) -> Sequence[Check]:
        self._together.wait(10)
        self._asked.append(offer)
        return self._checks


@pytest.fixture
def clouds(monkeypatch: pytest.MonkeyPatch) -> Clouds:
    """What each cloud says; and what they were asked about."""
    says: dict[str, Sequence[Check]] = {"aws": [ok("credentials", "yes")], "gcp": [ok("credentials", "yes")]}
    together, asked = threading.Barrier(2), list[Offer | None]()

    def cloud(name: str) -> ProviderSpec:
        return replace(
            registry.spec(name), has_credentials=lambda: True, diagnostics=lambda _: Cloud(says[name], together, asked)
        )

    monkeypatch.setattr(registry, "_registered", {name: cloud(name) for name in ("aws", "gcp")})
    return says, asked


def test_the_clouds_are_asked_side_by_side_and_the_gravest_failure_counts(here: Here, clouds: Clouds) -> None:
    says, asked = clouds
    says["aws"] = [failed("region", Unreachable("No answer."))]
    says["gcp"] = [failed("quota", QuotaExceeded("It is 0.", hint="Ask for more."))]
    result = here.told("doctor").check(43)
    assert asked == [None, None]
    assert result.out.index("\naws\n") < result.out.index("\ngcp\n")
    assert "2 checks failed." in result.err


def test_the_cheapest_machine_of_what_is_wanted_is_asked_about(here: Here, clouds: Clouds) -> None:
    _, asked = clouds
    assert here.told("doctor", "--gpus", "L4:1", "--spot").code == 0
    assert {offer.provider for offer in asked if offer} == {"aws", "gcp"}
    for offer in asked:
        assert offer is not None
        assert offer.accelerator is not None
        assert (offer.accelerator.name, offer.accelerator.count, offer.purchase_option) == ("L4", 1, "spot")


def test_a_region_is_asked_about_even_without_a_price(here: Here, clouds: Clouds) -> None:
    _, asked = clouds
    words = ("--infra", "aws/xx-nowhere-1", "--infra", "gcp/us-central1")
    assert here.told("doctor", *words).code == 0
    found = {offer.provider: offer for offer in asked if offer}
    assert (found["aws"].region, found["gcp"].region) == ("xx-nowhere-1", "us-central1")
    assert found["aws"].accelerator is None


def test_a_profile_that_does_not_exist(here: Here) -> None:
    here.environment["AWS_PROFILE"] = "reserch"
    result = here.told("doctor", "--infra", "aws").check(41, out="reserch")
    assert "Traceback" not in result.err
