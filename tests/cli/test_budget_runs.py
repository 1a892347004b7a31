"""What budgets do to runs: the plan's notes, the refusal, `budget check --enforce` on machines of this computer."""

import json
import sys

import pytest

from costgpu.models.job import EndReason
from costgpu.models.run import RunState
from tests.cli.budgets import answer, plant, words
from tests.cli.here import LOCAL, STEPS, Here, Result, until
from tests.unit.providers.planted import on

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="this machine as a machine needs Linux")


class TestRun:
    """What budgets say to `costgpu run`."""

    def plan(self, here: Here, *more: str) -> Result:
        return here.told(*LOCAL, "--max-cost", "5", "--assume-price", "1", *more, "train.py")

    def test_the_plan_says_what_is_left(self, here: Here) -> None:
        here.write("train.py", "print('ran')\n")
        assert "Budget" not in self.plan(here, "--dry-run").stdout
        here.told("budget", "set", "all", "--total", "200")
        here.told("budget", "set", "small", "--total", "100", "--provider", "local")
        here.told("budget", "set", "cloud", "--total", "10", "--provider", "aws")
        here.told("budget", "set", "vision", "--total", "10", "--tag", "team=vision")
        plant(here, "97", where=on("local"))
        text = words(self.plan(here, "--dry-run"))
        assert "- Budget all: $97.00 of $200.00 in all, 48 %; this run's cap of $5.00 leaves $98.00." in text
        assert (
            "- Budget small: $97.00 of $100.00 in all, 97 %; this run's cap of $5.00 could exceed it by $2.00." in text
        )
        assert "Budget cloud" not in text
        assert "Budget vision" not in text
        assert "Budget vision: $0.00" in words(self.plan(here, "--dry-run", "--tag", "team=vision"))

    @pytest.mark.slow
    def test_only_a_budget_that_enforces_refuses_and_never_what_is_free(self, here: Here) -> None:
        here.write("train.py", "print('ran')\n")
        here.told("budget", "set", "soft", "--total", "50")
        plant(here, "60")
        allowed = self.plan(here, "-y")
        assert (allowed.returncode, allowed.stdout) == (0, "ran\n"), allowed.stderr
        assert "Budget soft: $60.00 of $50.00 in all, 120 %, exceeded: nothing is left for this run." in " ".join(
            allowed.stderr.split()
        )
        here.told("budget", "set", "hard", "--monthly", "55", "--enforce", "--time-zone", "UTC")
        plant(here, "70", "a2")
        refused = self.plan(here, "-y")
        assert (refused.returncode, refused.stdout) == (81, ""), refused.stderr
        assert "exceeded: new runs are refused." in " ".join(refused.stderr.split())
        assert "The budget hard is exceeded" in refused.stderr
        assert "hint: It begins anew 20" in refused.stderr
        shown_only = self.plan(here, "--dry-run")
        assert shown_only.returncode == 0
        assert "new runs are refused" in words(shown_only)
        free = here.told(*LOCAL, "-y", "train.py")
        assert (free.returncode, free.stdout) == (0, "ran\n")
        here.quiet()


@pytest.mark.slow
class TestEnforce:
    def test_runs_of_the_ledger_are_cancelled_with_their_outputs(self, here: Here) -> None:
        here.write("train.py", STEPS)
        run_id = here.detached("-y", "--assume-price", "5000", "--max-cost", "2000", "train.py")
        here.wrote(b"step 1\n")
        here.told("budget", "set", "all", "--total", "1")
        looked = here.costgpu("budget", "check")
        assert looked.returncode == 81
        assert here.living()
        assert here.last().state is RunState.RUNNING
        ended = here.costgpu("budget", "check", "--enforce")
        assert ended.returncode == 81, ended.stderr
        assert words(ended) == (
            f"ended: run {run_id} (train): the budget all is exceeded; its outputs are in {here.project}"
        )
        assert ended.stderr == ""
        here.quiet()
        assert (here.last().state, here.last().reason) == (RunState.CLOSED, EndReason.CANCELLED)
        assert (here.project / "checkpoint").read_text() == "kept"
        again = here.costgpu("budget", "check", "--enforce")
        assert answer(again) == (81, "", "")

    def test_a_run_that_a_terminal_drives_is_ended_by_that_terminal(self, here: Here) -> None:
        here.write("train.py", STEPS)
        client = here.start(*LOCAL, "-y", "--assume-price", "5000", "--max-cost", "2000", "train.py")
        until(lambda: here.data.exists() and any(view.state is RunState.RUNNING for view in here.runs()))
        here.wrote(b"step 1\n")
        here.told("budget", "set", "all", "--total", "1")
        until(lambda: here.costgpu("budget", "check").returncode == 81)
        ended = here.costgpu("budget", "check", "--enforce", "--json")
        assert ended.returncode == 81, ended.stderr
        assert "being ended by the terminal that drives it: run " in json.loads(ended.stdout)["enforced"][0]
        assert client.wait(60) in (9, 64)
        assert (here.project / "checkpoint").read_text() == "kept"
        here.quiet()

    def test_what_is_free_and_what_another_budget_counts_is_left_alone(self, here: Here) -> None:
        here.write("train.py", STEPS)
        here.detached("train.py")
        here.detached("-y", "--assume-price", "5000", "--max-cost", "2000", "--tag", "team=vision", "train.py")
        here.told("budget", "set", "nlp", "--total", "1", "--tag", "team=nlp")
        plant(here, "2", tags={"team": "nlp"})
        result = here.costgpu("budget", "check", "--enforce")
        assert result.returncode == 81
        assert words(result) == "nlp: $2.00 of $1.00 in all (200 %), exceeded."
        assert sum(view.state is RunState.RUNNING for view in here.runs()) == 2
        for view in here.runs():
            if view.state is RunState.RUNNING:
                assert here.costgpu("cancel", "-y", "--now", view.run_id).returncode in (0, 64)
        here.quiet()
