"""`costgpu run` as a user meets it, with this machine as the machine: every process is real."""

from __future__ import annotations

import io
import json
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from costgpu.cli.app import main
from tests.cli.here import LOCAL, Here, Result, Terminal, alive, until

STEPS = """\
import signal, sys, time

def bye(*_):
    open("checkpoint", "w").write("kept")
    sys.exit(9)

signal.signal(signal.SIGTERM, bye)
for step in range(3000):
    print("step", step, flush=True)
    time.sleep(0.02)
"""
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


@pytest.fixture
def here(tmp_path: Path) -> Iterator[Here]:
    project = tmp_path / "project"
    project.mkdir()
    place = Here(project, Path(os.environ["XDG_DATA_HOME"]) / "costgpu")
    try:
        yield place
    finally:
        place.close()


def closed(here: Here) -> dict[str, object]:
    """The last run, which must be over, and nothing of it left running."""
    here.quiet()
    document = json.loads(here.costgpu("jobs", "--all", "--json").stdout)
    assert document["runs"][0]["state"] == "closed"
    found: dict[str, object] = document["runs"][0]
    return found


def hint_of(result: Result) -> str:
    assert "Traceback" not in result.stderr
    assert "\nhint: " in "\n" + result.stderr, result.stderr
    return result.stderr.partition("hint: ")[2]


class TestTheJourney:
    def test_streams_exit_code_outputs_and_receipt(self, here: Here) -> None:
        here.write("train.py", BOTH)
        here.write("out/old.txt", "mine")
        result = here.run("--name", "My Job", "train.py", "3")
        assert result.returncode == 3
        assert result.stdout.encode(errors="surrogateescape") == b"to stdout \x00\xff no end"
        assert "to stderr\n" in result.stderr
        assert "costgpu: the job ended with exit code 3" in result.stderr
        assert (here.project / "out/model.pt").read_bytes() == bytes(range(256))
        assert (here.project / "out/old.txt").read_text() == "mine"
        plan, _, rest = result.stderr.partition("costgpu: Run ")
        assert "python train.py 3" in plan
        assert "(my-job)" in rest
        assert "Receipt" in rest
        assert "terminated at" in rest
        assert "nobody" not in rest.partition("confirmed")[2].partition("\n")[0]
        assert all(len(line) <= 80 for line in plan.splitlines() if str(here.project) not in line)
        run = closed(here)
        assert (run["reason"], run["outputs_home"]) == ("job_failed", True)
        assert not (here.project / ".costgpu").exists()

    def test_json_is_one_document_and_the_job_is_on_stderr(self, here: Here) -> None:
        here.write("train.py", BOTH)
        result = here.run("--json", "train.py", "0")
        document = json.loads(result.stdout)
        assert result.returncode == 0
        assert (document["schema"], document["version"], document["error"]) == ("costgpu.run", 1, None)
        assert document["run"]["state"] == "closed"
        assert document["receipt"]["confirmed_state"] == "terminated"
        assert document["plan"]["spec"]["argv"] == ["train.py", "0"]
        assert "to stdout" in result.stderr
        here.quiet()

    def test_outputs_named_and_one_that_is_not_there(self, here: Here) -> None:
        here.write("train.py", BOTH)
        result = here.run("--outputs", "out/", "--outputs", "log.csv", "train.py", "0")
        assert result.returncode == 58
        assert "log.csv is not there" in result.stderr
        assert "patterns relative" in hint_of(result)
        assert (here.project / "out/model.pt").exists()
        assert closed(here)["outputs_home"] is True

    def test_a_set_up_that_fails(self, here: Here) -> None:
        here.write("train.py", BOTH)
        result = here.run("--setup", "echo preparing >&2; exit 7", "train.py", "0")
        assert result.returncode == 57
        assert "preparing" in result.stderr
        assert "failed with 7; the job was not started" in result.stderr
        assert "--setup" in hint_of(result)
        assert result.stdout == ""
        assert closed(here)["reason"] == "setup_failed"

    def test_a_job_that_a_signal_ends(self, here: Here) -> None:
        here.write("train.py", "import os\nos.kill(os.getpid(), 9)\n")
        result = here.run("train.py")
        assert result.returncode == 128 + 9
        assert "exit code 137" in result.stderr
        closed(here)

    def test_variables_set_up_module_workdir_python_and_grace(self, here: Here, tmp_path: Path) -> None:
        here.write("pack/__init__.py", "")
        here.write(
            "pack/train.py", "import os, sys\nprint(os.environ['A'], os.environ['B'], os.environ['C'], sys.argv[1:])\n"
        )
        here.write("job.env", "B='from file'\nC=file\n")
        result = here.run(
            "-e", "A", "-e", "C=line", "--env-file", "job.env", "--setup", "echo ready >&2", "--workdir", ".",
            "--grace", "1s", "-m", "pack.train", "--x", "1", A="from here",
        )  # fmt: skip
        assert result.returncode == 0, result.stderr
        assert result.stdout == "from here from file line ['--x', '1']\n"
        assert "ready" in result.stderr
        assert "variables  A, B, C" in result.stderr
        written = [path.read_bytes() for path in here.data.rglob("*") if path.is_file() and path.name != "stdout.log"]
        assert not any(b"from here" in data for data in written)
        closed(here)

    def test_limits_end_the_job_and_its_outputs_come_home(self, here: Here) -> None:
        here.write("train.py", STEPS)
        result = here.run("--max-duration", "1s", "train.py")
        assert result.returncode == 62
        assert "--max-duration" in result.stderr
        assert (here.project / "checkpoint").read_text() == "kept"
        assert closed(here)["reason"] == "max_duration"

    def test_a_price_of_this_machine_is_metered_and_capped(self, here: Here) -> None:
        here.write("train.py", STEPS)
        words = ("--assume-price", "60", "--max-cost", "1.09", "train.py")
        result = here.run("-y", *words)
        assert result.returncode == 62
        assert "at most    $1.09" in result.stderr
        metered = result.stderr.partition("  metered ")[2].partition("\n")[0]
        assert 1.0 <= float(metered.rpartition("$")[2]) <= 2.1
        assert closed(here)["reason"] == "deadline"

    def test_no_auto_shutdown_keeps_the_machine_until_its_lease(self, here: Here) -> None:
        here.write("train.py", BOTH)
        result = here.run("--no-auto-shutdown", "--lease", "6s", "train.py", "0")
        assert result.returncode == 0, result.stderr
        assert "NOT when the job is over" in result.stderr
        assert (here.project / "out/model.pt").exists()
        assert "The machine stays until" in " ".join(result.stderr.split())
        until(lambda: not here.living(), 15)
        assert here.costgpu("reap", "--yes").returncode == 0
        closed(here)

    def test_torchrun_takes_the_script(self, here: Here) -> None:
        here.write("train.py", "import os\nprint('rank', os.environ['RANK'], os.environ['WORLD_SIZE'])\n")
        here.write("torch/__init__.py", "")
        here.write("torch/distributed/__init__.py", "")
        here.write(
            "torch/distributed/run.py",
            "import os, runpy, sys\nprint(sys.argv[1:])\nos.environ.update(RANK='0', WORLD_SIZE='2')\n"
            "runpy.run_path(sys.argv[-1])\n",
        )
        result = here.run("--nproc", "2", "-e", "PYTHONPATH=.", "train.py")
        assert result.returncode == 0, result.stderr
        assert "--nproc-per-node=2" in result.stdout or "'--nproc-per-node', '2'" in result.stdout
        assert "rank 0 2" in result.stdout
        closed(here)


class TestDryRun:
    def test_nothing_is_made(self, here: Here) -> None:
        here.write("train.py", BOTH)
        result = here.run("--dry-run", "--max-duration", "2h", "train.py", "0")
        assert result.returncode == 0
        assert "--max-duration 2" in result.stdout
        assert "What ends the machine:" in result.stdout
        assert result.stderr == ""
        assert not (here.data / "ledger.sqlite").exists()
        assert not list((here.data / "machines").glob("local-*"))
        document = json.loads(here.run("--dry-run", "--json", "train.py").stdout)
        assert (document["schema"], document["version"]) == ("costgpu.plan", 1)
        assert [layer["name"] for layer in document["plan"]["layers"]][:1] == ["create call"]


@pytest.fixture
def steps(here: Here) -> Here:
    here.write("train.py", STEPS)
    return here


class TestAtATerminal:
    def in_the_job(self, seat: Terminal) -> None:
        seat.expect("step 3")
        seat.interrupt()
        seat.expect("Ctrl-C again")

    def test_enter_goes_on_and_d_detaches(self, steps: Here) -> None:
        with steps.terminal(*LOCAL, "train.py") as seat:
            self.in_the_job(seat)
            assert "[d]etach" in seat.text
            seat.type("\n")
            shown = seat.text.rpartition("step ")[2].split()[0]
            seat.expect(f"step {int(shown) + 20}\n")
            seat.interrupt()
            until(lambda: bool(seat.read_more()) and seat.text.count("Ctrl-C again") == 2)
            seat.type("d\n")
            assert seat.end() == 0
            assert "Detached. Run" in seat.text
        assert len(steps.living()) > 2
        run_id = json.loads(steps.costgpu("jobs", "--json").stdout)["runs"][0]["run_id"]
        assert steps.costgpu("cancel", run_id).returncode == 0
        steps.quiet()

    def test_c_cancels_and_brings_home_what_there_is(self, steps: Here) -> None:
        with steps.terminal(*LOCAL, "train.py") as seat:
            self.in_the_job(seat)
            seat.type("c\n")
            assert seat.end() == 64
            assert "The job is asked to end; it has 30 s" in seat.text
            assert "was cancelled" in seat.text
        assert (steps.project / "checkpoint").read_text() == "kept"
        assert closed(steps)["reason"] == "cancelled"

    def test_twice_cancels(self, steps: Here) -> None:
        with steps.terminal(*LOCAL, "train.py") as seat:
            self.in_the_job(seat)
            seat.interrupt()
            assert seat.end() == 64
        assert closed(steps)["reason"] == "cancelled"

    def test_before_the_job_runs_there_is_nothing_to_detach_from(self, steps: Here) -> None:
        with steps.terminal(*LOCAL, "--setup", "sleep 30", "train.py") as seat:
            seat.expect("Created")
            seat.interrupt()
            seat.expect("Ctrl-C again")
            seat.type("c\n")
            assert seat.end() == 64
        assert closed(steps)["reason"] == "cancelled"

    def test_yes_or_no(self, steps: Here) -> None:
        words = (*LOCAL, "--assume-price", "0.5", "--max-duration", "10s", "train.py")
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
            seat.interrupt()
            seat.expect("Ctrl-C again")
            seat.interrupt()
            assert seat.end() == 64
        steps.quiet()

    def test_a_terminal_that_is_closed_leaves_the_job_running(self, steps: Here) -> None:
        with steps.terminal(*LOCAL, "train.py") as seat:
            seat.expect("step 3")
            pid = seat.close()
            until(lambda: not alive(pid))
        assert steps.living()
        run = json.loads(steps.costgpu("jobs", "--json").stdout)["runs"][0]
        assert run["state"] == "running"
        assert steps.costgpu("cancel", str(run["run_id"])).returncode == 0
        steps.quiet()

    def test_a_terminal_that_is_closed_before_the_job_runs_ends_the_machine(self, steps: Here) -> None:
        with steps.terminal(*LOCAL, "train.py") as seat:
            seat.expect("Created")
            pid = seat.close()
            until(lambda: not alive(pid))
        assert closed(steps)["reason"] == "cancelled"


class TestSignals:
    def begun(self, here: Here, *words: str) -> tuple[int, Callable[[], tuple[int, str]]]:
        child = here.start(*LOCAL, *words, "train.py")
        assert child.stdout is not None
        while b"step 2\n" not in child.stdout.readline():
            assert child.poll() is None

        def ended() -> tuple[int, str]:
            _, said = child.communicate(timeout=30)
            return child.returncode, said.decode()

        return child.pid, ended

    @pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
    def test_a_client_that_is_asked_to_go_leaves_the_job(self, steps: Here, number: signal.Signals) -> None:
        pid, ended = self.begun(steps)
        os.kill(pid, number)
        code, said = ended()
        assert code == 128 + number
        assert "costgpu attach" in said
        assert steps.living()
        assert steps.costgpu("cancel", "train").returncode == 0
        assert (steps.project / "checkpoint").exists()
        steps.quiet()

    def test_an_interrupt_without_a_terminal_cancels(self, steps: Here) -> None:
        pid, ended = self.begun(steps)
        os.kill(pid, signal.SIGINT)
        code, said = ended()
        assert code == 64
        assert (steps.project / "checkpoint").exists()
        assert closed(steps)["reason"] == "cancelled"

    def test_a_job_that_ignores_the_end_is_killed_after_its_grace(self, here: Here) -> None:
        here.write("train.py", STEPS.replace("signal.signal(signal.SIGTERM, bye)", "signal.signal(15, signal.SIG_IGN)"))
        pid, ended = self.begun(here, "--grace", "1s")
        os.kill(pid, signal.SIGINT)
        started = time.monotonic()
        assert ended()[0] == 64
        assert time.monotonic() - started < 15
        assert closed(here)["reason"] == "cancelled"

    def test_a_reader_that_goes_away_does_not_end_the_run(self, here: Here) -> None:
        here.write("train.py", "print('a line\\n' * 100000)\nopen('made', 'w').write('x')\n")
        child = here.start(*LOCAL, "train.py")
        assert child.stdout is not None
        child.stdout.read(10)
        child.stdout.close()
        assert child.stderr is not None
        said = child.stderr.read().decode()
        assert child.wait(30) == 0, said
        assert "Exception" not in said
        assert "BrokenPipe" not in said
        assert (here.project / "made").exists()
        closed(here)


def told(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, *words: str) -> tuple[int, str, str]:
    """Runs a command that ends at once in this process: exit code, stdout, stderr."""
    monkeypatch.setattr(sys, "argv", ["costgpu", *words])
    monkeypatch.setattr(sys, "stdin", io.StringIO())
    with pytest.raises(SystemExit) as caught:
        main()
    out, err = capfd.readouterr()
    code = caught.value.code
    return code if isinstance(code, int) else 0, out, err


G5 = ("-t", "g5.xlarge")
BAD: list[tuple[tuple[str, ...], int, str, bool]] = [
    ((), 2, "Which script?", True),
    (("nope.py",), 21, "no script nope.py", True),
    (("trian.py",), 21, "Did you mean train.py?", True),
    ((".",), 22, "is a folder", True),
    (("pack",), 22, "-m pack", True),
    (("notes.ipynb",), 22, "nbconvert", True),
    (("--tag", "team", "train.py"), 2, "not key=value", True),
    (("--tag", "costgpu-run=x", "train.py"), 2, "reserved", True),
    (("--tag", "k=" + "v" * 61, "train.py"), 2, "too long", True),
    (("--nproc", "0", "train.py"), 2, "number of processes", True),
    (("--nproc", "all", "train.py"), 2, "--nproc auto", True),
    (("-e", "NOT_SET", "train.py"), 2, "no such variable", True),
    (("-e", "1A=2", "train.py"), 2, "'1A' is not the name", True),
    (("--env-file", "nope.env", "train.py"), 2, "No such file", False),
    (("--env-file", "bad.env", "train.py"), 2, "line 1", True),
    (("--lease", "2h", "train.py"), 2, "--no-auto-shutdown", True),
    (("--lease", "9d", "--no-auto-shutdown", "train.py"), 2, "longer than 7.0 days", True),
    (("--lease", "soon", "--no-auto-shutdown", "train.py"), 2, "time span", True),
    (("--max-duration", "-1", "train.py"), 2, "time span", True),
    (("--idle-duration", "x", "train.py"), 2, "time span", True),
    (("--grace", "x", "train.py"), 2, "time span", True),
    (("--max-cost", "5 EUR", "train.py"), 2, "only USD", True),
    (("--max-cost", "0", "train.py"), 2, "only USD", True),
    (("--assume-price", "-1", "train.py"), 2, "only USD", True),
    (("--assume-price", "0.5", "--max-cost", "0.001", "train.py"), 6, "used up", True),
    (("--assume-price", "0.5", "--max-cost", "5", "train.py"), 7, "Nobody is there", True),
    (("--outputs", "../x", "train.py"), 2, "leaves the working folder", True),
    (("--outputs", "/x", "train.py"), 2, "leaves the working folder", True),
    (("--workdir", "/no/such", "train.py"), 2, "no folder", True),
    (("--workdir", "pack", "train.py"), 2, "not in the folder that is sent", True),
    (("--sync-limit", "0.000001", "train.py"), 56, "--sync-limit", True),
    (("--sync-limit", "0", "train.py"), 2, "--sync-limit is", False),
    (("--bucket", "runs", "train.py"), 2, "s3://name/prefix", False),
    (("--profile", "nope.json", "train.py"), 5, "Cannot read", True),
    (("--python", "/no/such", "train.py"), 23, "no interpreter", True),
    (("-o", "yaml", "train.py"), 2, "text or json", True),
    (("--gpus", "L4", "train.py"), 2, "as it is", True),
    (("--spot", "train.py"), 2, "as it is", True),
    (("--disk", "100", "train.py"), 2, "as it is", True),
    (("--subnet", "subnet-0123456789abcdef0", "train.py"), 2, "as it is", True),
    (("--disk", "5", "train.py"), 2, "--disk", False),
    (("--no-such", "train.py"), 2, "No such option", False),
]
FAR: list[tuple[tuple[str, ...], int, str]] = [
    ((*G5, "--max-cost", "0.001", "train.py"), 6, "Allow at least $0.0"),
    (("-t", "g5.xlrge", "--max-cost", "1", "train.py"), 4, "Did you mean g5.xlarge"),
    (("--infra", "gcp", "--max-cost", "1", "train.py"), 2, "cannot launch on gcp yet"),
    (("-t", "g2-standard-4", "--max-cost", "1", "train.py"), 2, "cannot launch on gcp yet"),
    (("--infra", "aws/us-esat-1", "--max-cost", "1", "train.py"), 2, "us-east-1"),
    (("--gpus", "A10O", "--max-cost", "1", "train.py"), 2, "A100"),
    (("--infra", "aws", "train.py"), 2, "--max-cost 5 or --max-duration"),
    (("train.py",), 2, "Name a place"),
    ((*G5, "--infra", "local", "--max-cost", "1", "train.py"), 2, "as it is"),
    ((*G5, "--subnet", "here", "--max-cost", "1", "train.py"), 2, "--subnet is not the id of a subnet"),
    ((*G5, "--max-cost", "1", "train.py"), 41, "aws configure"),
    ((*G5, "--max-cost", "1", "--dry-run", "train.py"), 41, "--infra local needs no account"),
]


class TestBadInput:
    @pytest.fixture(autouse=True)
    def project(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
        (tmp_path / "pack").mkdir()
        for name, text in {"train.py": "print(1)", "notes.ipynb": "{}", "bad.env": "KEY VALUE\n"}.items():
            (tmp_path / name).write_text(text)
        monkeypatch.chdir(tmp_path)
        monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
        yield
        place = Path(os.environ["XDG_DATA_HOME"]) / "costgpu"
        assert not (place / "ledger.sqlite").exists()
        assert not list(place.glob("machines/local-*"))

    @pytest.mark.parametrize(("words", "code", "text", "hints"), BAD)
    def test_on_this_machine(
        self, words: tuple[str, ...], code: int, text: str, hints: bool, capfd: pytest.CaptureFixture[str],
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:  # fmt: skip
        found, out, err = told(capfd, monkeypatch, *LOCAL, *words)
        assert (found, out) == (code, ""), err
        assert text in err
        assert ("hint: " in err) is hints, err

    @pytest.mark.parametrize(("words", "code", "text"), FAR)
    def test_elsewhere(
        self, words: tuple[str, ...], code: int, text: str, capfd: pytest.CaptureFixture[str],
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:  # fmt: skip
        found, out, err = told(capfd, monkeypatch, "run", "--no-estimate", *words)
        assert (found, out) == (code, ""), err
        assert text in err


def test_a_data_folder_that_cannot_be_written(here: Here) -> None:
    here.write("train.py", BOTH)
    result = here.run("train.py", "0", XDG_DATA_HOME="/proc/costgpu")
    assert result.returncode == 3
    assert "XDG_DATA_HOME" in hint_of(result)
    assert not here.living()


def test_a_working_folder_that_cannot_take_the_outputs_keeps_them_and_says_so(here: Here) -> None:
    here.write("train.py", "open('a', 'w').write('new')\nimport time; time.sleep(1.5)\n")
    child = here.start(*LOCAL, "train.py")
    assert child.stderr is not None
    said = b""
    while b"The job runs" not in said:
        said += child.stderr.readline()
    moved = here.project.with_name("moved")
    here.project.rename(moved)
    here.project.write_text("in the way")
    said += child.stderr.read()
    assert child.wait(30) == 50, said
    assert b"The outputs wait on the machine until" in said
    here.project.unlink()
    moved.rename(here.project)
    assert here.costgpu("attach", "train").returncode == 0
    assert (here.project / "a").read_text() == "new"
    closed(here)
