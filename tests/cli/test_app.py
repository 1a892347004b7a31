"""`costgpu` itself: commands are loaded when they are called, and the help of every one of them is fit to be read."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from typer.core import TyperGroup

from costgpu.cli.app import app
from costgpu.cli.lazy_group import COMMANDS, load_command
from tests.cli.here import Here, budgeted, told

SUBCOMMANDS = [
    (name, sub)
    for name in COMMANDS
    if isinstance(command := load_command(name), TyperGroup)
    for sub in ("", *command.commands)
]
ALL = [*((name,) for name in COMMANDS), *((name, sub) for name, sub in SUBCOMMANDS if sub)]


@pytest.mark.parametrize("name", COMMANDS)
def test_the_summary_is_the_first_line_of_the_command_s_help(name: str) -> None:
    assert (load_command(name).help or "").splitlines()[0] == COMMANDS[name][1]


def test_the_help_lists_every_command_with_its_whole_summary() -> None:
    out = told("--help").check(0, err="").out
    assert max(map(len, out.splitlines())) <= 80
    for name, (_, summary) in COMMANDS.items():
        assert re.search(rf"^  {name} +{re.escape(summary)}$", out, re.MULTILINE), name


@pytest.mark.parametrize("words", ALL, ids=" ".join)
def test_help_fits_a_narrow_terminal_and_says_something_about_every_option(words: tuple[str, ...]) -> None:
    out = told(*words, "--help").check(0, err="").out
    assert max(map(len, out.splitlines())) <= 80
    _, _, options = out.partition("Options:\n")
    for entry in re.split(r"\n(?=  -)", options.partition("\n\n")[0]):
        text = re.sub(r"^ *-[^\n]*?(?: {2,}|\n)", "", entry, count=1).strip()
        assert text[:1].isupper() or text[:1].isdigit(), entry
        assert "--install-completion" not in entry


def test_a_command_that_is_misspelt() -> None:
    told("offer").check(2, out="", err="Did you mean 'offers'?")


@pytest.mark.parametrize(
    ("words", "unloaded"),
    [
        (
            "--help",
            (
                "costgpu.workflows costgpu.pricing costgpu.ledger costgpu.measure"
                " pathspec pydantic rich boto3 botocore google psutil torch"
            ),
        ),
        ("offers --gpus A100", "costgpu.cli.run costgpu.job costgpu.ledger rich sqlalchemy"),
        ("jobs", "asyncssh rich boto3 botocore costgpu.config.settings cryptography psutil tenacity"),
        (
            "budget check --offline",
            "boto3 botocore costgpu.config.settings apprise asyncssh rich psutil tzlocal tenacity",
        ),
        ("doctor --infra local", "boto3 botocore google.auth google.cloud.compute_v1"),
    ],
)
def test_only_what_a_command_needs_is_imported(here: Here, words: str, unloaded: str) -> None:
    budgeted(here, "20")
    code = (
        f"import sys; sys.argv = ['costgpu', *{words.split()!r}]\n"
        "from costgpu.cli.app import main\n"
        "try:\n    main()\nexcept SystemExit as end:\n    print(end.code)\n"
        f"print([name for name in {unloaded.split()!r} if name in sys.modules])"
    )
    told_alone = [sys.executable, "-c", code]
    result = subprocess.run(told_alone, env=here.environment, capture_output=True, text=True, check=True)
    assert result.stdout.endswith("0\n[]\n"), result.stderr


def test_the_program_has_a_name_and_a_version() -> None:
    assert app.info.name == "costgpu"
    assert re.fullmatch(r"costgpu \d+\.\d+\.\d+\n", told("--version")[1])


def in_a_shell(words: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Runs costgpu with what a shell can do to its streams and its folder; `@` stands for it."""
    command = words.replace("@", f"'{sys.executable}' -m costgpu")
    return subprocess.run(["bash", "-c", command], cwd=folder, capture_output=True, text=True, timeout=120, check=False)


@pytest.mark.parametrize(
    "line",
    [
        *(f"@ jobs {stream}" for stream in ("<&-", ">&-", "2>&-")),
        *(f"@ {words} <&- >&- 2>&-" for words in ("ledger export", "ledger report --html -", "jobs")),
    ],
)
def test_closed_streams_change_nothing(line: str, here: Here, tmp_path: Path) -> None:
    done = in_a_shell(line, tmp_path)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_job_runs_without_streams(here: Here, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("open('made', 'w').write('x')\nprint(1)\n")
    done = in_a_shell(f"@ run -y --infra local --no-estimate --python '{sys.executable}' train.py <&- >&-", tmp_path)
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    assert (tmp_path / "made").read_text() == "x"


@pytest.mark.parametrize("words", ["ledger export", "ledger report --html -", "offers", "--version"])
def test_what_cannot_be_written_is_said_with_an_exit_code(words: str, here: Here, tmp_path: Path) -> None:
    done = in_a_shell(f"@ {words} > /dev/full", tmp_path)
    assert (done.returncode, done.stderr) == (
        8,
        "costgpu: the disk or terminal cannot be read or written: No space left on device\n",
    )


def test_notes_that_cannot_be_written(here: Here, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("open('made', 'w').write('x')\n")
    run = f"@ run -y --infra local --no-estimate --python '{sys.executable}'"
    assert in_a_shell(f"{run} train.py 2> /dev/full", tmp_path).returncode == 8
    assert not (tmp_path / "made").exists()
    assert in_a_shell(f"{run} nope.py 2> /dev/full", tmp_path).returncode == 21
    assert in_a_shell("@ --version > /dev/full 2>&1", tmp_path).returncode == 8


def test_a_folder_that_was_removed(here: Here, tmp_path: Path) -> None:
    done = in_a_shell("mkdir gone && cd gone && rmdir ../gone && @ jobs", tmp_path)
    assert done.returncode == 1
    assert "costgpu: The current folder is not there any more.\nhint: Change to another one" in done.stderr
