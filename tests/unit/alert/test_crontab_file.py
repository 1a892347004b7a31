"""`costgpu budget cron --install` and `--remove` on crontabs of all kinds, with a `crontab` command of ours."""

import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest
from typer import Typer
from typer.testing import CliRunner

from costgpu.alert import crontab_file
from costgpu.cli import alerts
from costgpu.config import data_path
from costgpu.errors import ConfigError

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)
SCRIPT = """#!/bin/sh
case "$1" in
-l) [ -e {folder}/deny ] && {{ echo "You (me) are not allowed to use this program (crontab)" >&2; exit 1; }}
    [ -e {folder}/tab ] || {{ echo "no crontab for me" >&2; exit 1; }}
    if [ -e {folder}/debian ]; then sed 's/\\r/\\\\r/g; s/\\x08/\\\\b/g' {folder}/tab; else cat {folder}/tab; fi ;;
-e) [ -e {folder}/no-editor ] && exit 1; $EDITOR {folder}/tab; echo "No modification made" >&2 ;;
-)  [ -e {folder}/refuse ] && {{ cat >/dev/null; echo '"-":2: bad minute' >&2; exit 1; }}
    echo x >> {folder}/writes; cat > {folder}/tab ;;
-r) rm {folder}/tab ;;
esac
"""


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a `crontab` command; the crontab is the file `tab` in it."""
    (tmp_path / "bin").mkdir()
    program = tmp_path / "bin" / "crontab"
    program.write_text(SCRIPT.format(folder=tmp_path))
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/usr/bin:/bin")
    return tmp_path


@pytest.fixture
def cli() -> Typer:
    app = Typer()
    app.command()(alerts.cron)
    app.command()(alerts.test_alert)
    return app


def run(cli: Typer, *words: str) -> tuple[str, BaseException | None]:
    result = CliRunner().invoke(cli, ["cron", *words])
    return result.output, None if result.exit_code == 0 else result.exception


FOREIGN = b"MAILTO=me@example.com\r\n# \xff\n\n*/5 * * * * true\n"


def test_installing_twice_writes_once_and_removing_leaves_no_trace(machine: Path, cli: Typer) -> None:
    tab = machine / "tab"
    tab.write_bytes(FOREIGN)
    output, error = run(cli, "--every", "5m", "--install", "--reap")
    assert error is None
    assert "every 5 min" in output
    installed = tab.read_bytes()
    assert installed.startswith(FOREIGN)
    costgpu = str(Path(sys.executable).with_name("costgpu"))
    lines = installed.removeprefix(FOREIGN).decode().splitlines()
    assert [line.rpartition(costgpu)[2] for line in lines[1:3]] == [" budget check", " reap --yes"]
    assert all(line.startswith("*/5 * * * * env ") for line in lines[1:3])
    assert f"XDG_DATA_HOME={data_path().parent}" in lines[1]

    output, _ = run(cli, "--every", "5m", "--install", "--reap")
    assert "already" in output
    assert (machine / "writes").read_text() == "x\n"

    run(cli, "--every", "1h", "--install", "--enforce")
    assert b"reap" not in tab.read_bytes()
    assert b"0 * * * * " in tab.read_bytes()
    assert b"budget check --enforce\n" in tab.read_bytes()

    output, error = run(cli, "--remove")
    assert error is None
    assert tab.read_bytes() == FOREIGN
    assert "no lines of costgpu" in run(cli, "--remove")[0]


def test_without_a_crontab_before_there_is_none_afterwards(machine: Path, cli: Typer) -> None:
    run(cli, "--install")
    assert (machine / "tab").exists()
    run(cli, "--remove")
    assert not (machine / "tab").exists()


ODD = b"* * * * * grep '\\bword' x # \r\n# \x08 \\r\n"


@pytest.mark.parametrize("kind", ["debian", "others"])
def test_a_crontab_that_is_not_shown_as_it_is_stays_as_it_is(machine: Path, cli: Typer, kind: str) -> None:
    (machine / kind).touch()
    (machine / "tab").write_bytes(ODD)
    assert crontab_file.read() == ODD
    run(cli, "--install")
    assert (machine / "tab").read_bytes().startswith(ODD)
    run(cli, "--remove")
    assert (machine / "tab").read_bytes() == ODD


def test_a_crontab_that_cannot_be_read_exactly_is_left_alone(machine: Path, cli: Typer) -> None:
    (machine / "debian").touch()
    (machine / "no-editor").touch()
    (machine / "tab").write_bytes(ODD)
    _, error = run(cli, "--install")
    assert isinstance(error, ConfigError)
    assert "byte for byte" in str(error)
    assert (machine / "tab").read_bytes() == ODD


def test_every_crontab_that_is_replaced_is_kept(machine: Path, cli: Typer) -> None:
    (machine / "tab").write_bytes(FOREIGN)
    output, _ = run(cli, "--install")
    (copy,) = (data_path() / "crontabs").iterdir()
    assert copy.read_bytes() == FOREIGN
    assert copy.stat().st_mode & 0o777 == 0o600
    assert str(copy) in output
    for number in range(crontab_file.BACKUPS + 3):
        crontab_file.replace((machine / "tab").read_bytes(), b"# %d\n" % number, NOW.replace(microsecond=number))
    assert len(list((data_path() / "crontabs").iterdir())) == crontab_file.BACKUPS


@pytest.mark.parametrize(
    ("trouble", "words"),
    [
        ("deny", "not allowed to use this program"),
        ("refuse", "bad minute"),
    ],
)
def test_what_cannot_be_read_or_written_stays_as_it_is(machine: Path, cli: Typer, trouble: str, words: str) -> None:
    (machine / "tab").write_bytes(FOREIGN)
    (machine / trouble).touch()
    _, error = run(cli, "--install")
    assert isinstance(error, ConfigError)
    assert words in str(error)
    assert (machine / "tab").read_bytes() == FOREIGN


def test_a_copy_that_cannot_be_kept_stops_it(machine: Path, cli: Typer) -> None:
    (machine / "tab").write_bytes(FOREIGN)
    data_path().mkdir(parents=True)
    (data_path() / "crontabs").write_text("in the way")
    _, error = run(cli, "--install")
    assert isinstance(error, ConfigError)
    assert "No copy of the crontab" in str(error)
    assert (machine / "tab").read_bytes() == FOREIGN


def test_somebody_else_at_the_same_time_is_noticed(machine: Path) -> None:
    (machine / "tab").write_bytes(b"# theirs\n")
    with pytest.raises(ConfigError, match="changed by somebody else"):
        crontab_file.replace(b"# as it was\n", b"# ours\n", NOW)
    assert (machine / "tab").read_bytes() == b"# theirs\n"


def test_no_crontab_command(machine: Path, cli: Typer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    for option in ("--install", "--remove"):
        _, error = run(cli, option)
        assert isinstance(error, ConfigError)
        assert "no `crontab` command" in str(error)


def test_a_wrong_time_or_both_ways_change_nothing(machine: Path, cli: Typer) -> None:
    (machine / "tab").write_bytes(FOREIGN)
    for words in (("--install", "--every", "7m"), ("--install", "--remove")):
        assert run(cli, *words)[1] is not None
    assert (machine / "tab").read_bytes() == FOREIGN


def test_showing_changes_nothing_and_has_no_secret(machine: Path, cli: Typer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COSTGPU_ALERT_URLS", "json://example.com/hunter2")
    monkeypatch.setenv("COSTGPU_LEDGER_URL", "postgresql://me:hunter2@db/costgpu")
    output, error = run(cli, "--every", "15m", "--reap")
    assert error is None
    assert "hunter2" not in output
    assert "COSTGPU_ALERT_URLS is a secret" in output
    assert "*/15 * * * * env " in output
    assert "OnCalendar=*:0/15" in output
    assert not (machine / "tab").exists()
    run(cli, "--install")
    assert b"hunter2" not in (machine / "tab").read_bytes()
