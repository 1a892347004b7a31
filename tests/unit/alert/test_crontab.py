"""`costgpu budget cron --install` and `--remove` on crontabs of all kinds, with a `crontab` command of ours."""

import itertools
import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st
from typer import Typer
from typer.testing import CliRunner

from costgpu.alert import crontab
from costgpu.alert.crontab import STEPS, Schedule, install, line, remove
from costgpu.cli import budget
from costgpu.config import data_path
from costgpu.errors import ConfigError, UsageError
from tests.properties import examples

SCRIPT = """#!/bin/sh
case "$1" in
-l) [ -e {folder}/deny ] && {{ echo "You (me) are not allowed to use this program (crontab)" >&2; exit 1; }}
    [ -e {folder}/tab ] || {{ echo "no crontab for me" >&2; exit 1; }}
    if [ -e {folder}/debian ]; then sed 's/\\r/\\\\r/g; s/\\x08/\\\\b/g' {folder}/tab; else cat {folder}/tab; fi ;;
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
    app.command()(budget.cron)
    app.command()(budget.test_alert)
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


def test_a_crontab_that_is_not_shown_as_it_is_is_left_alone(machine: Path, cli: Typer) -> None:
    (machine / "debian").touch()
    (machine / "tab").write_bytes(FOREIGN)
    _, error = run(cli, "--install")
    assert isinstance(error, ConfigError)
    assert "cannot be written back" in str(error)
    assert (machine / "tab").read_bytes() == FOREIGN


def test_a_crontab_that_is_replaced_is_kept(machine: Path, cli: Typer) -> None:
    (machine / "tab").write_bytes(FOREIGN)
    output, _ = run(cli, "--install")
    (copy,) = (data_path() / "crontabs").iterdir()
    assert copy.read_bytes() == FOREIGN
    assert copy.stat().st_mode & 0o777 == 0o600
    assert str(copy) in output


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
    assert "Cannot write the copy of the crontab" in str(error)
    assert (machine / "tab").read_bytes() == FOREIGN


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
    assert not (machine / "tab").exists()
    run(cli, "--install")
    assert b"hunter2" not in (machine / "tab").read_bytes()


WORDS = st.text(min_size=1, max_size=40).filter(lambda word: not set(word) & set("\0\n\r"))
NAMES = st.from_regex(r"[A-Z_][A-Z0-9_]{0,12}", fullmatch=True)
TABLES = st.lists(
    st.sampled_from(
        [b"# costgpu", b"MAILTO=me@example.com", b"*/5 * * * * true", b"", b"\xff\xfe", b"A=b\r", b" # costgpu end"]
    ),
    max_size=8,
).map(b"\n".join)
LINES = st.lists(
    st.sampled_from([b"* * * * * true", b"0 * * * * env A=b /x/costgpu reap --yes"]), min_size=1, max_size=3
)
OLD_BEGIN = b"# costgpu begin (the line above had no end): made by `costgpu budget cron`, taken out by it\n"


@given(TABLES, st.binary(max_size=60), LINES, LINES)
@example(b"no end", b"", [b"* * * * * x"], [b"* * * * * y"])
def test_only_our_block_changes(before: bytes, after: bytes, first: list[bytes], second: list[bytes]) -> None:
    assume(b"# costgpu" not in after)
    head = before if not before or before.endswith(b"\n") else before + b"\n"
    installed = install(before, first)
    assert installed.startswith(head + crontab.BEGIN)
    assert remove(installed + after) == head + after
    assert install(installed + after, second) == install(before, second) + after
    assert remove(installed.replace(crontab.BEGIN, OLD_BEGIN)) == head


@pytest.mark.parametrize(
    "text",
    [
        crontab.BEGIN + b"* * * * * x\n",
        b"# costgpu end\n",
        b"# costgpu end\n# costgpu begin: made by x\n",
        b"# costgpu end\n# costgpu end\n",
        install(b"", [b"* * * * * x"]) * 2,
    ],
)
def test_marks_that_do_not_belong_together_are_left_to_a_person(text: bytes) -> None:
    for change in (remove, lambda table: install(table, [b"* * * * * y"])):
        with pytest.raises(ConfigError, match="do not belong together"):
            change(text)


def handed_to_sh(command: bytes, escapes: bytes) -> bytes:
    """What cron hands to sh: an unescaped % ends it, and a backslash before one of `escapes` is dropped."""
    found, escaped = bytearray(), False
    for byte in command:
        if escaped:
            if byte in escapes:
                found.pop()
            found.append(byte)
            escaped = False
        elif byte == ord("%"):
            break
        else:
            found.append(byte)
            escaped = byte == ord("\\")
    return bytes(found)


QUARTER = Schedule(15)
VIXIE, CRONIE = b"%\\", b"%"  # cron of 1993 (and Debian's) takes two backslashes for one, too


def split_by_sh(command: bytes) -> list[bytes]:
    """The words as sh sees them."""
    script = b'f() { for w; do printf "%s\\0" "$w"; done; }; f ' + command
    done = subprocess.run(["sh", "-c", script], capture_output=True, check=True, env={"LC_ALL": "C"})
    return done.stdout.split(b"\0")[:-1]


@examples(60)
@given(st.lists(WORDS, min_size=1, max_size=3), st.dictionaries(NAMES, WORDS, max_size=3))
@example(["/a b/100%/\\%/\\\\%\\/'q'/\\\\\\"], {"X": "%\\'\"$(x)`y`"})
def test_cron_and_sh_run_exactly_what_was_meant(words: list[str], variables: dict[str, str]) -> None:
    text = line(QUARTER, words, variables)
    prefix = QUARTER.cron.encode() + b" "
    assert text.startswith(prefix)
    assert b"\n" not in text
    command = ["env", *(f"{name}={value}" for name, value in variables.items()), *words]
    for escapes in (VIXIE, CRONIE):
        assert split_by_sh(handed_to_sh(text.removeprefix(prefix), escapes)) == [os.fsencode(word) for word in command]


def test_a_line_that_cron_would_cut_or_no_crontab_can_hold_is_refused() -> None:
    with pytest.raises(ConfigError, match="990"):
        line(QUARTER, ["/" + "x" * 1000], {})
    with pytest.raises(ConfigError, match="line break"):
        line(QUARTER, ["a\nb"], {})


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1m", "* * * * *"),
        ("15m", "*/15 * * * *"),
        ("900s", "*/15 * * * *"),
        ("1h", "0 * * * *"),
        ("60m", "0 * * * *"),
        ("6h", "0 */6 * * *"),
        ("1d", "0 9 * * *"),
        ("24h", "0 9 * * *"),
    ],
)
def test_how_often(text: str, expected: str) -> None:
    assert Schedule.parse(text).cron == expected


@pytest.mark.parametrize(
    ("text", "near"),
    [
        ("7m", "6m or 10m"),
        ("45m", "30m or 1h"),
        ("90m", "1h or 2h"),
        ("5h", "4h or 6h"),
        ("10s", "1m"),
        ("90s", "1m or 2m"),
        ("2d", "1d"),
        ("1w", "1d"),
    ],
)
def test_what_cron_cannot_express_names_the_nearest(text: str, near: str) -> None:
    with pytest.raises(UsageError, match="cron cannot") as raised:
        Schedule.parse(text)
    assert raised.value.hint.endswith(f" {near}.")


@pytest.mark.parametrize("text", ["", "often", "-5m", "0m"])
def test_what_is_no_time_is_refused(text: str) -> None:
    with pytest.raises(UsageError):
        Schedule.parse(text)


def fires(field: str, value: int) -> bool:
    """Whether a field of a crontab matches."""
    return field == "*" or (value % int(field[2:]) == 0 if field.startswith("*/") else value == int(field))


@pytest.mark.parametrize("minutes", STEPS)
def test_every_step_fires_at_even_distances(minutes: int) -> None:
    minute, hour, *rest = Schedule(minutes).cron.split()
    assert rest == ["*", "*", "*"]
    times = [m for m in range(2 * 1440) if fires(minute, m % 60) and fires(hour, m // 60 % 24)]
    assert {b - a for a, b in itertools.pairwise(times)} == {minutes}
