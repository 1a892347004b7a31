"""`costgpu run` as a user meets it, with this machine as the machine: every process is real."""

import json
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from decimal import Decimal

import pytest

from costgpu.models.job import EndReason
from costgpu.models.run import RunState, RunView
from costgpu.portable.processes import process
from tests.cli.here import LOCAL, STEPS, Here, Result, Terminal, side_by_side, until

BOTH = """\
import os, sys
os.makedirs("out", exist_ok=True)
open("out/model.pt", "wb").write(bytes(range(256)))
sys.stdout.buffer.write(b"to stdout \\x00\\xff no end")
sys.stdout.flush()
sys.stderr.write("to stderr\\n")
sys.exit(int(sys.argv[1]))
"""
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="this machine as a machine needs Linux")


def closed(here: Here) -> RunView:
    """The last run, which must be over, and nothing of it left running."""
    here.quiet()
    view = here.last()
    assert view.state is RunState.CLOSED
    return view


def hint_of(result: Result) -> str:
    assert "Traceback" not in result.err
    assert "\nhint: " in "\n" + result.err, result.err
    return result.err.partition("hint: ")[2]


SETUP_VARIABLES = "import os, sys\nprint(os.environ['A'], os.environ['B'], os.environ['C'], sys.argv[1:])\n"
TORCHRUN = """\
import os, runpy, sys
print(sys.argv[1:])
os.environ.update(RANK="0", WORLD_SIZE="2")
runpy.run_path(sys.argv[-1])
"""
JOBS: dict[str, tuple[dict[str, str], str]] = {
    "streams": ({"train.py": BOTH, "out/old.txt": "mine"}, "--name 'My Job' train.py 3"),
    "signal": ({"train.py": "import os\nos.kill(os.getpid(), 9)\n"}, "train.py"),
    "variables": (
        {"pack/__init__.py": "", "pack/train.py": SETUP_VARIABLES, "job.env": "B='from file'\nC=file\n"},
        "-e A -e C=line --env-file job.env --setup 'echo ready >&2' --workdir . --grace 1s -m pack.train --x --name 1",
    ),
    "max_duration": ({"train.py": STEPS}, "--max-duration 15s train.py"),
    "max_cost": ({"train.py": STEPS}, "-y --assume-price 60 --max-cost 1.20 train.py"),
    "program": ({"launch.sh": 'echo "$TOKEN, $1"\nsleep 300 &\nkill -TERM $$\n'}, "TOKEN=hidden launch.sh 'a b'"),
    "torchrun": (
        {
            "train.py": "import os\nprint('rank', os.environ['RANK'], os.environ['WORLD_SIZE'])\n",
            "torch/__init__.py": "",
            "torch/distributed/__init__.py": "",
            "torch/distributed/run.py": TORCHRUN,
        },
        "--nproc 2 -e PYTHONPATH=. train.py",
    ),
}
Ran = dict[str, tuple[Here, Result]]


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ran]:
    jobs = {name: (files, shlex.split(words)) for name, (files, words) in JOBS.items()}
    with side_by_side(jobs, tmp_path_factory.mktemp("journeys"), 5, A="from here") as found:
        yield found


@pytest.mark.slow
class TestTheJourney:
    def test_streams_exit_code_outputs_and_receipt(self, ran: Ran) -> None:
        here, result = ran["streams"]
        assert result.code == 3
        assert result.out.encode(errors="surrogateescape") == b"to stdout \x00\xff no end"
        assert "to stderr\n" in result.err
        assert "costgpu: the job ended with exit code 3" in result.err
        assert (here.project / "out/model.pt").read_bytes() == bytes(range(256))
        assert (here.project / "out/old.txt").read_text() == "mine"
        plan, _, rest = result.err.partition("costgpu: Run ")
        assert "python train.py 3" in plan
        assert "(my-job)" in rest
        assert "terminated at" in rest.partition("Receipt")[2]
        assert "nobody" not in rest.partition("confirmed")[2].partition("\n  metered")[0]
        assert all(len(line) <= 80 for line in plan.splitlines() if str(here.project) not in line)
        run = closed(here)
        assert (run.reason, run.collected) == (EndReason.JOB_FAILED, True)
        assert not (here.project / ".costgpu").exists()

    def test_a_job_that_a_signal_ends(self, ran: Ran) -> None:
        here, result = ran["signal"]
        result.check(128 + 9, err="exit code 137. The job was ended by signal 9.")
        closed(here)

    def test_a_shell_script_and_what_it_leaves_running(self, ran: Ran) -> None:
        here, result = ran["program"]
        result.check(128 + 15, out="hidden, a b\n", err=["bash ./launch.sh 'a b'", "started was still running"])
        assert "hidden" not in result.err
        assert closed(here).spec.program

    def test_variables_set_up_module_workdir_and_python(self, ran: Ran) -> None:
        here, result = ran["variables"]
        assert result.code == 0, result.err
        assert result.out == "from here from file line ['--x', '--name', '1']\n"
        assert "ready" in result.err
        assert "variables  A, B, C" in result.err
        kept = [path for path in here.data.rglob("*") if path.is_file() and path.name != "stdout.log"]
        assert not any(b"from here" in path.read_bytes() for path in kept)
        assert closed(here).spec.grace_seconds == 1.0

    def test_limits_end_the_job_and_its_outputs_come_home(self, ran: Ran) -> None:
        here, result = ran["max_duration"]
        result.check(62, err="--max-duration")
        assert (here.project / "checkpoint").read_text() == "kept"
        assert closed(here).reason is EndReason.MAX_DURATION

    def test_a_price_of_this_machine_is_metered_and_capped(self, ran: Ran) -> None:
        here, result = ran["max_cost"]
        result.check(62, err="at most    $1.20")
        receipt = closed(here).receipt
        assert receipt is not None
        assert Decimal(1) <= receipt.metered_cost_usd <= Decimal("1.20")
        assert receipt.reason is EndReason.DEADLINE

    def test_torchrun_takes_the_script(self, ran: Ran) -> None:
        here, result = ran["torchrun"]
        result.check(0, out=["'--nproc-per-node', '2'", "rank 0 2"])
        closed(here)


def test_a_dry_run_makes_nothing(here: Here) -> None:
    here.write("train.py", BOTH)
    said = ["--max-duration 2", "What ends the machine:"]
    here.told(*LOCAL, "--dry-run", "--max-duration", "2h", "train.py", "0").check(0, out=said, err="")
    assert not (here.data / "ledger.sqlite").exists()
    assert not list((here.data / "machines").glob("local-*"))
    document = json.loads(here.told(*LOCAL, "--dry-run", "--json", "train.py").out)
    assert (document["schema"], document["version"]) == ("costgpu.plan", 1)
    assert [layer["name"] for layer in document["plan"]["layers"]][:1] == ["create call"]


@pytest.fixture
def steps(here: Here) -> Here:
    here.write("train.py", STEPS)
    return here


@pytest.mark.slow
class TestAtATerminal:
    def asked(self, seat: Terminal, times: int = 1) -> None:
        seat.interrupt()
        until(lambda: seat.read_more().count("Ctrl-C again") == times)

    def test_enter_goes_on_d_detaches_and_another_terminal_takes_over(self, steps: Here) -> None:
        with steps.terminal(*LOCAL, "train.py") as seat:
            seat.expect("step 3")
            self.asked(seat)
            assert "[d]etach" in seat.text
            seat.type("\n")
            shown = int(seat.text.rpartition("step ")[2].split()[0])
            seat.expect(f"step {shown + 20}\n")
            self.asked(seat, 2)
            seat.type("d\n")
            assert seat.end() == 0
            assert "Detached. Run" in seat.text
        assert steps.last().detached
        assert len(steps.living()) > 2
        with steps.terminal("attach", steps.last().run_id) as seat:
            seat.expect("step ")
            seat.expect("\nstep ")
            shown = int(seat.text.rpartition("\nstep ")[0].rpartition("step ")[2].split()[0])
            seat.expect(f"step {shown + 20}\n")
            self.asked(seat)
            seat.type("c\n")
            assert seat.end() == 64
            assert "The job is asked to end; it has 30 s" in seat.text
            assert "was cancelled" in seat.text
        assert (steps.project / "checkpoint").read_text() == "kept"
        assert closed(steps).reason is EndReason.CANCELLED

    def test_no_yes_and_ctrl_c_twice(self, steps: Here) -> None:
        words = (*LOCAL, "--assume-price", "0.5", "--max-duration", "10m", "train.py")
        with steps.terminal(*words) as seat:
            seat.expect("Launch it? [y/N]")
            seat.type("n\n")
            assert seat.end() == 7
            assert "nothing was spent" in seat.text
        assert not steps.living()
        with steps.terminal(*words) as seat:
            seat.expect("Launch it? [y/N]")
            seat.type("y\n")
            seat.expect("step 1")
            self.asked(seat)
            seat.interrupt()
            assert seat.end() == 64
        assert closed(steps).reason is EndReason.CANCELLED

    def test_before_the_job_runs_there_is_nothing_to_detach_from(self, steps: Here) -> None:
        steps.slow_to_boot()
        with steps.terminal(*LOCAL, "train.py") as seat:
            seat.expect("Created")
            self.asked(seat)
            assert "[d]etach" not in seat.text
            seat.type("c\n")
            assert seat.end() == 64
        assert closed(steps).reason is EndReason.CANCELLED

    def test_a_terminal_that_is_closed_leaves_the_job_running(self, steps: Here) -> None:
        with steps.terminal(*LOCAL, "train.py") as seat:
            seat.expect("step 3")
            pid = seat.close()
            until(lambda: process(pid) is None)
        assert steps.living()
        assert (steps.last().state, steps.last().detached) == (RunState.RUNNING, True)
        assert steps.told("cancel", "train").code == 0
        assert (steps.project / "checkpoint").exists()
        closed(steps)

    def test_a_terminal_that_is_closed_before_the_job_runs_ends_the_machine(self, steps: Here) -> None:
        steps.slow_to_boot()
        with steps.terminal(*LOCAL, "train.py") as seat:
            seat.expect("Created")
            pid = seat.close()
            until(lambda: process(pid) is None)
        assert closed(steps).reason is EndReason.CANCELLED


@pytest.mark.slow
class TestSignals:
    def begun(self, here: Here, *words: str) -> subprocess.Popen[bytes]:
        child = here.start(*LOCAL, *words, "train.py")
        assert child.stdout is not None
        while b"step 2\n" not in child.stdout.readline():
            assert child.poll() is None
        return child

    def test_a_client_that_is_asked_to_go_leaves_the_job(self, steps: Here) -> None:
        child = self.begun(steps)
        child.send_signal(signal.SIGTERM)
        said = child.communicate(timeout=60)[1].decode()
        assert child.returncode == 128 + signal.SIGTERM
        assert "costgpu attach" in said
        assert steps.living()
        assert steps.told("cancel", "train", "--now").code == 0
        assert not (steps.project / "checkpoint").exists()
        closed(steps)

    def test_an_interrupt_without_a_terminal_cancels_and_a_stubborn_job_is_killed(self, here: Here) -> None:
        here.write("train.py", STEPS.replace("signal.signal(signal.SIGTERM, bye)", "signal.signal(15, signal.SIG_IGN)"))
        child = self.begun(here, "--grace", "1s")
        child.send_signal(signal.SIGINT)
        started = time.monotonic()
        said = child.communicate(timeout=60)[1].decode()
        assert child.returncode == 64
        assert time.monotonic() - started < 25  # not the usual 30 s
        assert "exit code 137" in said
        assert closed(here).reason is EndReason.CANCELLED

    def test_a_reader_that_goes_away_does_not_end_the_run(self, here: Here) -> None:
        here.write("train.py", "print('a line\\n' * 100000)\nopen('made', 'w').write('x')\n")
        child = here.start(*LOCAL, "train.py")
        assert child.stdout is not None
        child.stdout.read(10)
        child.stdout.close()
        assert child.stderr is not None
        said = child.stderr.read().decode()
        assert child.wait(60) == 0, said
        assert "Exception" not in said
        assert "BrokenPipe" not in said
        assert (here.project / "made").exists()
        closed(here)


def test_a_data_folder_that_cannot_be_written(here: Here) -> None:
    here.write("train.py", BOTH)
    here.environment["XDG_DATA_HOME"] = "/proc/costgpu"
    result = here.told(*LOCAL, "train.py", "0").check(3)
    assert "XDG_DATA_HOME" in hint_of(result)
    assert not here.living()
