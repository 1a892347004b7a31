"""`costgpu budget` as people and cron meet it: planted ledgers, real processes, real machines of this computer."""

import json
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path

import pytest

from costgpu.errors import AuthError
from costgpu.ledger import Ledger
from costgpu.ledger.records.unrecorded_machines import record_sightings, sighting
from tests.cli.here import Here, budgeted, plant, shown, words
from tests.unit.providers.planted import machine, on, opened

SCRIPTS = Path(__file__).parent.parent / "scripts" / "cli"
HOOK = SCRIPTS / "webhook.py"
DEAF = SCRIPTS / "deaf_server.py"
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="this machine as a machine needs Linux")


class TestSetShowRemove:
    def test_from_set_to_remove(self, here: Here) -> None:
        none = "No budgets. costgpu budget set NAME --monthly 200 makes one.\n"
        assert here.told("budget", "show") == (0, none, "")
        assert not here.data.exists()
        options = "--monthly 200 --alert 50,80 --tag team=nlp --provider AWS --person alice --time-zone Europe/Berlin"
        made = here.told("budget", "set", "team-nlp", *options.split(), "--enforce").check(0, err="")
        assert words(made) == (
            "Set: team-nlp: $200.00 a month for provider aws, person alice, tag team=nlp, alerts at 50 %, 80 %, 100 %; "
            "new runs are refused beyond it. Time zone: Europe/Berlin."
        )
        plain = here.told("budget", "set", "all", "--total", "1234.5")
        assert words(plain).startswith("Set: all: $1,234.50 in all for everything, alerts at 50 %, 80 %, 100 %.")
        text = here.told("budget", "show").check(0, err="")
        assert max(map(len, text.out.splitlines())) <= 80
        assert text.out.index("all: ") < text.out.index("team-nlp: ")
        assert shown(here, "team-nlp")["tags"] == {"team": "nlp"}
        assert here.told("budget", "remove", "all").out == "The budget all is removed.\n"
        here.told("budget", "show", "all").check(79, err="hint: There is team-nlp.")

    def test_set_again(self, here: Here) -> None:
        command = ("budget", "set", "b", "--weekly", "50", "--time-zone", "UTC")
        assert here.told(*command).out.startswith("Set: ")
        assert here.told(*command).out.startswith("It is so already: ")
        here.told(*command, "--enforce").check(79, out="", err="--replace")
        assert here.told(*command, "--enforce", "--replace").code == 0
        assert shown(here)["enforce"] is True
        assert "differ only by case" in here.told("budget", "set", "B", "--weekly", "50").err

    @pytest.mark.parametrize(
        ("words", "message"),
        [
            ("b --monthly -5", "cannot be negative"),
            ("b --monthly '200 EUR'", "budgets are in US dollars, and take no other currency"),
            ("b", "needs an amount"),
            ("b --monthly 5 --daily 1", "one period, not several"),
            ("b --monthly 5 --alert 0", "from 1 to 1000"),
            ("b --monthly 5 --time-zone Europe/Berln", "no time zone"),
            ("b --monthly 5 --provider azur", "no provider"),
            ("b --monthly 5 --person ' '", "--person is empty"),
            ("b --monthly 5 --tag nlp", "not key=value"),
            ("'a b' --daily 1", "not a valid name for a budget"),
        ],
    )
    def test_bad_input(self, here: Here, words: str, message: str) -> None:
        here.told("budget", "set", *shlex.split(words)).check(2, out="", err=[message, "\nhint: "])
        assert not here.data.exists()

    def test_what_is_shown(self, here: Here) -> None:
        plant(here, "120", tags={"team": "nlp"})
        plant(here, "7", "a2")
        here.told("budget", "set", "team-nlp", "--total", "200", "--tag", "team=nlp")
        with Ledger.open(folder=here.data) as ledger:
            started = datetime.now(UTC) - timedelta(hours=2)
            opened(ledger, "b1", started, tags={"team": "nlp"}, where=on(price="10", cap="110"))
        text = here.told("budget", "show", "team-nlp").check(0, err="")
        for row in (
            r"  spent      \$140\.0\d, 70 %\n",
            r"  committed  \$(89\.9|90\.0)\d more under the cap of 1 open run\n",
            r"  left       \$(59\.9|60\.0)\d; that could exceed it by \$30\.00\n",
            r"  alerts     50 % not told yet; 80 % not reached; 100 % not reached\n",
        ):
            assert re.search(row, text.out), text.out
        budget = shown(here)
        assert (budget["open_runs"], budget["percent"], budget["crossed"], budget["alerts"]) == (1, 70, [50], [])


class TestCheck:
    def test_silent_when_all_is_well(self, here: Here) -> None:
        assert here.told("budget", "check") == (0, "", "")
        assert not here.data.exists()
        plant(here, "99.99")
        here.told("budget", "set", "all", "--total", "200")
        for options in ((), ("--offline",), ("--enforce",)):
            assert here.told("budget", "check", *options) == (0, "", "")

    def test_each_threshold_is_told_once_and_the_code_stays(self, here: Here) -> None:
        budgeted(here, "161.20")
        first = here.told("budget", "check")
        assert first == (80, "all: $161.20 of $200.00 in all (80 %), crossed 80 %.\n", "")
        assert here.told("budget", "check") == (80, "", "")
        plant(here, "38.80", "a2")
        assert here.told("budget", "check") == (81, "all: $200.00 of $200.00 in all (100 %), exceeded.\n", "")
        assert here.told("budget", "check", "--offline") == (81, "", "")
        loud = here.told("budget", "check", "--verbose")
        assert (loud.code, loud.out) == (81, "all: $200.00 of $200.00 in all (100 %), exceeded.\n")
        alerts = shown(here)["alerts"]
        assert isinstance(alerts, list)
        assert [(a["threshold"], a["delivered"], a["detail"]) for a in alerts] == [
            (50, True, "printed"),
            (80, True, "printed"),
            (100, True, "printed"),
        ]
        assert "50 % told " in here.told("budget", "show").out

    def test_a_daily_budget_with_a_forecast(self, here: Here) -> None:
        here.told("budget", "set", "day", "--daily", "20000", "--time-zone", "UTC", "--alert", "1")
        now = datetime.now(UTC)
        with Ledger.open(folder=here.data) as ledger:
            opened(
                ledger, "b1", now - timedelta(hours=48), where=on(price="1000", cap="96000"), lease=timedelta(hours=96)
            )
        loud = here.told("budget", "check", "-v", "--offline")
        passed = now - now.replace(hour=0, minute=0, second=0, microsecond=0)
        assert loud.code in (0, 80, 81)
        assert "more under the cap of 1 open run" in words(loud)
        if timedelta(hours=1.3) < passed < timedelta(hours=23):
            assert "at this pace $24,000 by midnight" in words(loud)
            assert "crossed 1 %" in words(loud) or "exceeded" in words(loud)

    def test_json(self, here: Here) -> None:
        budgeted(here, "170")
        result = here.told("budget", "check", "--json")
        document = json.loads(result.out)
        assert result.code == document["exit_code"] == 80
        assert (document["schema"], document["version"]) == ("costgpu.budget-check", 1)
        (budget,) = document["budgets"]
        assert (budget["name"], budget["new"], budget["crossed"]) == ("all", [50, 80], [50, 80])
        assert Decimal(budget["spent_usd"]) == 170
        assert json.loads(here.told("budget", "check", "--json").out)["budgets"][0]["new"] == []

    def test_a_bill_that_cannot_be_had_does_not_replace_the_exit_code(
        self, here: Here, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def expired(*_: object) -> list[str]:
            raise AuthError("The credentials are expired.", hint="Log in.")

        monkeypatch.setattr("costgpu.cli.ledger.billed_lines", expired)
        budgeted(here, "170")
        result = here.told("budget", "check", "--billed")
        assert (result.code, words(result)) == (80, "all: $170.00 of $200.00 in all (85 %), crossed 80 %.")
        assert result.err == "costgpu: The credentials are expired.\nhint: Log in.\n"

    def test_on_a_terminal_it_shows_every_budget(self, here: Here) -> None:
        here.told("budget", "set", "all", "--total", "200")
        with here.terminal("budget", "check", "--offline") as seat:
            seat.expect("all: $0.00 of $200.00 in all (0 %).")
            assert seat.end() == 0

    def test_at_once_exactly_one_tells(self, here: Here) -> None:
        budgeted(here, "170")
        checks = [here.start("budget", "check", "--offline") for _ in range(3)]
        said = [each.communicate(timeout=120) for each in checks]
        assert [each.returncode for each in checks] == [80] * 3, said
        assert sorted(out for out, _ in said) == [b"", b"", b"all: $170.00 of $200.00 in all (85 %), crossed 80 %.\n"]

    def test_machines_that_the_ledger_does_not_know_still_count_when_nobody_is_asked(self, here: Here) -> None:
        here.told("budget", "set", "all", "--total", "10")
        now = datetime.now(UTC)
        with Ledger.open(folder=here.data) as ledger:
            stranger = machine("zz", now - timedelta(hours=3), owner="bob@x", ended=now - timedelta(hours=1))
            record_sightings(ledger, [sighting(stranger, Decimal(3), now)])
        assert words(here.told("budget", "check", "--offline")) == "all: $6.00 of $10.00 in all (60 %), crossed 50 %."


class TestWhoCannotBeAsked:
    def test_it_says_who_and_ends_with_46_only_if_nothing_is_worse(self, here: Here) -> None:
        here.told("budget", "set", "all", "--total", "200")
        with Ledger.open(folder=here.data) as ledger:
            opened(ledger, "b1", datetime.now(UTC) - timedelta(hours=1), where=on(price="1"))
        result = here.told("budget", "check").check(46, err="")
        assert words(result) == "not asked: aws: no credentials here, and run b1 has a machine there"
        assert here.told("budget", "check", "--offline") == (0, "", "")
        plant(here, "120")
        worse = here.told("budget", "check").check(80)
        assert words(worse).startswith("all: at least $121.0")
        assert "not asked: aws" in words(worse)

    def test_without_a_network(self, here: Here) -> None:
        here.told("budget", "set", "all", "--total", "200")
        nowhere = {
            "AWS_ACCESS_KEY_ID": "x",
            "AWS_SECRET_ACCESS_KEY": "x",
            "AWS_REGION": "us-east-1",
            "AWS_ENDPOINT_URL": "http://127.0.0.1:9",
            "AWS_MAX_ATTEMPTS": "1",
        }
        result = here.costgpu("budget", "check", **nowhere).check(46)
        assert result.out.startswith("not asked: aws")
        assert "Traceback" not in result.err


@pytest.mark.slow
class TestDelivery:
    @pytest.fixture
    def hook(self, here: Here) -> Iterator[str]:
        server = subprocess.Popen([sys.executable, HOOK], cwd=here.project, stdout=subprocess.PIPE, text=True)
        assert server.stdout is not None
        yield f"json://127.0.0.1:{server.stdout.readline().strip()}"
        server.kill()
        server.communicate()

    def received(self, here: Here) -> list[tuple[str, dict[str, str]]]:
        path = here.project / "received"
        lines = path.read_text().splitlines() if path.exists() else []
        return [(line.partition(" ")[0], json.loads(line.partition(" ")[2])) for line in lines]

    def test_it_is_sent_printed_and_not_repeated(self, here: Here, hook: str) -> None:
        budgeted(here, "170")
        urls = {"COSTGPU_ALERT_URLS": f"{hook}/first {hook}/second"}
        first = here.costgpu("budget", "check", **urls)
        assert first == (80, "all: $170.00 of $200.00 in all (85 %), crossed 80 %.\n", "")
        sent = sorted(self.received(here), key=lambda each: each[0])
        assert [path for path, _ in sent] == ["/first", "/second"]
        assert sent[0][1]["title"] == "costgpu budget all: 85 % used"
        assert sent[0][1]["message"] == "all: $170.00 of $200.00 in all (85 %), crossed 80 %."
        assert here.costgpu("budget", "check", **urls) == (80, "", "")
        assert len(self.received(here)) == 2

    def test_what_failed_is_visible_and_goes_only_where_it_failed(self, here: Here, hook: str) -> None:
        budgeted(here, "170")
        refuse = here.write("refuse", "")
        urls = {"COSTGPU_ALERT_URLS": f"{hook}/first?password=hunter2 {hook}/second"}
        for number in (1, 2):
            failed = here.costgpu("budget", "check", **urls).check(82)
            assert "all: the alert could not be delivered: 1 of 2 delivered; failed: #2" in words(failed)
            assert ("crossed 80 %" in words(failed)) == (number == 1)
            assert [path for path, _ in self.received(here)] == ["/first"]
        text = here.told("budget", "show").out
        assert "80 % NOT told" in text
        assert "FAILED     80 %: 1 of 2 delivered; failed: #2" in text
        assert "tried 2 times" in " ".join(text.split())
        refuse.unlink()
        assert here.costgpu("budget", "check", **urls) == (80, "", "")
        assert [path for path, _ in self.received(here)] == ["/first", "/second"]
        assert here.costgpu("budget", "check", **urls) == (80, "", "")
        assert "NOT told" not in here.told("budget", "show").out
        kept = b"".join(path.read_bytes() for path in here.data.glob("ledger.sqlite*"))
        assert b"hunter2" not in kept
        assert b"127.0.0.1" not in kept

    def test_addresses_that_cannot_be_read_are_a_failed_alert(self, here: Here) -> None:
        budgeted(here, "170")
        config = Path(here.environment["XDG_CONFIG_HOME"]) / "costgpu" / "config.toml"
        config.parent.mkdir(parents=True)
        config.write_text('alert_urls = "json://secret')
        # The file also says where the ledger is: without it nothing can be known.
        assert here.told("budget", "check", "--offline").code == 3
        config.unlink()
        result = here.costgpu("budget", "check", "--offline", COSTGPU_ALERT_URLS="nonsense-without-scheme").check(82)
        assert "nonsense" not in result.out + result.err

    def test_killed_while_it_sends_it_is_sent_again_and_only_after_10_minutes(self, here: Here) -> None:
        budgeted(here, "170")
        silent = subprocess.Popen([sys.executable, DEAF], stdout=subprocess.PIPE, text=True)
        assert silent.stdout is not None
        port = silent.stdout.readline().strip()
        here.environment["COSTGPU_ALERT_URLS"] = f"json://127.0.0.1:{port}"
        check = here.start("budget", "check", "--offline")
        assert silent.stdout.readline() == "connected\n"
        check.kill()
        check.communicate()
        silent.kill()
        silent.communicate()
        del here.environment["COSTGPU_ALERT_URLS"]
        assert here.told("budget", "check", "--offline") == (80, "", "")  # it could still be at it
        assert "80 % being told" in here.told("budget", "show").out
        assert tries(here) == [1, 1]


def tries(here: Here) -> list[int]:
    from sqlalchemy import text

    with Ledger.open(folder=here.data) as ledger:
        query = text("SELECT count(*) FROM alert_attempts GROUP BY alert")
        return ledger.read(lambda connection: [int(n) for n in connection.scalars(query)], [])
