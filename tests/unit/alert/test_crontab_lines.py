"""Crontab lines and blocks: nothing but our lines changes, and what runs is what was meant."""

import itertools
import os
import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from costgpu.alert import crontab_lines, systemd_timer
from costgpu.alert.crontab_lines import STEPS, Schedule, Task, install, line, remove
from costgpu.errors import ConfigError, UsageError
from tests.properties import examples

QUARTER = Schedule(15)
WORDS = st.binary(min_size=1, max_size=40).filter(lambda word: not set(word) & set(b"\0\n\r"))
NAMES = st.from_regex(rb"[A-Z_][A-Z0-9_]{0,12}", fullmatch=True)
CRONTABS = st.one_of(
    st.binary(max_size=200),
    st.lists(
        st.sampled_from(
            [
                b"# costgpu",
                b"MAILTO=me@example.com",
                b"*/5 * * * * true",
                b"",
                b"# costgpu begin",
                b"\xff\xfe",
                b"# costgpu end of it",
                b"A=b\r",
                b"# costgpu beginning: made by me",
                b" # costgpu end",
            ]
        ),
        max_size=8,
    ).map(b"\n".join),
)
LINES = st.lists(
    st.sampled_from([b"* * * * * true", b"0 * * * * env A=b /x/costgpu reap --yes"]), min_size=1, max_size=3
)


@given(CRONTABS, LINES)
@example(b"", [b"* * * * * x"])
@example(b"no end", [b"* * * * * x"])
@example(b"\r\n", [b"* * * * * x"])
def test_what_was_installed_can_be_removed_without_a_trace(crontab: bytes, lines: list[bytes]) -> None:
    assume(not crontab_lines._MARKS.search(crontab))
    installed = install(crontab, lines)
    assert remove(installed) == crontab
    assert remove(crontab) == crontab
    for text in lines:
        assert text in installed.split(b"\n")


@given(CRONTABS, LINES, LINES)
def test_installing_again_replaces(crontab: bytes, first: list[bytes], second: list[bytes]) -> None:
    assume(not crontab_lines._MARKS.search(crontab))
    installed = install(crontab, first)
    assert install(installed, first) == installed
    assert install(installed, second) == install(crontab, second)


@given(CRONTABS, st.binary(min_size=1, max_size=60), LINES, LINES)
def test_what_others_add_below_stays_and_stays_apart(
    crontab: bytes, more: bytes, first: list[bytes], second: list[bytes]
) -> None:
    assume(not crontab_lines._MARKS.search(crontab) and not crontab_lines._MARKS.search(more))
    both = install(crontab, first) + more
    changed = install(both, second)
    assert changed.endswith(crontab_lines.END + b"\n" + more)
    whole = crontab if not crontab or crontab.endswith(b"\n") else crontab + b"\n"
    assert remove(both) == remove(changed) == whole + more


@pytest.mark.parametrize(
    "text",
    [
        b"# costgpu begin: made by `costgpu budget cron`\n* * * * * x\n",
        b"# costgpu end\n",
        b"# costgpu end\n# costgpu begin: made by x\n",
        b"# costgpu end\n# costgpu end\n",
        install(b"", [b"* * * * * x"]) * 2,
    ],
)
def test_marks_that_do_not_belong_together_are_left_to_a_person(text: bytes) -> None:
    for change in (remove, lambda crontab: install(crontab, [b"* * * * * y"])):
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


VIXIE, CRONIE = b"%\\", b"%"  # cron of 1993 (and Debian's) takes two backslashes for one, too


def split_by_sh(command: bytes) -> list[bytes]:
    """The words as sh sees them."""
    script = b'f() { for w; do printf "%s\\0" "$w"; done; }; f ' + command
    done = subprocess.run(["sh", "-c", script], capture_output=True, check=True, env={"LC_ALL": "C"})
    return done.stdout.split(b"\0")[:-1]


@examples(60)
@given(st.lists(WORDS, min_size=1, max_size=3), st.dictionaries(NAMES, WORDS, max_size=3))
@example([b"/a b/100%/\\%/\\\\%\\/'q'/\\\\\\"], {b"X": b"%\\'\"$(x)`y`"})
@example([b"/a=b/costgpu", b"~", b"#", b"*"], {b"A": b"\\%\\%"})
def test_cron_and_sh_run_exactly_what_was_meant(words: list[bytes], variables: dict[bytes, bytes]) -> None:
    task = Task(argv=words, variables=variables)
    assume(sum(map(len, task.command)) < 200)
    text = line(QUARTER, task)
    prefix = QUARTER.cron.encode() + b" "
    assert text.startswith(prefix)
    assert b"\n" not in text
    for escapes in (VIXIE, CRONIE):
        assert split_by_sh(handed_to_sh(text.removeprefix(prefix), escapes)) == task.command


def test_a_program_with_an_equals_sign_in_its_path_is_started_all_the_same(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    place = tmp_path_factory.mktemp("a=b % c")
    program = place / "costgpu"
    program.write_text('#!/bin/sh\nprintf "%s|" "$X" "$@"\n')
    program.chmod(0o755)
    text = line(QUARTER, Task(argv=[str(program).encode(), b"budget", b"check"], variables={b"X": b"1 %"}))
    command = handed_to_sh(text.removeprefix(QUARTER.cron.encode() + b" "), VIXIE)
    done = subprocess.run(["sh", "-c", command], capture_output=True, check=True, text=True)
    assert done.stdout == "1 %|budget|check|"


@pytest.mark.parametrize("bad", [b"a\nb", b"a\rb", b"a\0b"])
def test_what_no_crontab_can_hold_is_refused(bad: bytes) -> None:
    with pytest.raises(ConfigError, match="line break"):
        line(QUARTER, Task(argv=[bad]))


def test_a_line_that_cron_would_cut_is_refused() -> None:
    with pytest.raises(ConfigError, match="990"):
        line(QUARTER, Task(argv=[b"/" + b"x" * 1000]))


@pytest.mark.parametrize(
    ("text", "expected", "calendar"),
    [
        ("1m", "* * * * *", "*:0/1"),
        ("15m", "*/15 * * * *", "*:0/15"),
        ("900s", "*/15 * * * *", "*:0/15"),
        ("1h", "0 * * * *", "0/1:00"),
        ("60m", "0 * * * *", "0/1:00"),
        ("6h", "0 */6 * * *", "0/6:00"),
        ("1d", "0 9 * * *", "09:00"),
        ("24h", "0 9 * * *", "09:00"),
    ],
)
def test_how_often(text: str, expected: str, calendar: str) -> None:
    assert Schedule.parse(text).cron == expected
    assert Schedule.parse(text).systemd == calendar


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


@pytest.mark.parametrize(
    ("crontab", "shell"),
    [
        (b"", ""),
        (b"SHELL=/bin/sh\n", ""),
        (b"SHELL=/bin/bash\n* * * * * x\n", ""),
        (b"SHELL=/usr/bin/fish\n", "/usr/bin/fish"),
        (b"SHELL=/usr/bin/fish\nSHELL = '/bin/zsh'\n", ""),
        (b"#SHELL=/usr/bin/fish\n", ""),
    ],
)
def test_a_shell_that_reads_lines_otherwise_is_named(crontab: bytes, shell: str) -> None:
    assert crontab_lines.foreign_shell(install(crontab, [b"* * * * * x"])) == shell


TASKS = [
    Task(
        argv=[b"/a b/100%/co$t", b"budget", b"a$b"],
        variables={b"X": b"a 'b' \"c\" \\ %h", b"Y": b"plain", b"Z": b"\xff"},
    ),
    Task(argv=[b"/a b/100%/co$t", b"reap", b"--yes"], variables={b"Y": b"plain"}),
]


def test_the_systemd_units_quote_what_systemd_would_expand() -> None:
    text = systemd_timer.service(TASKS)
    assert 'ExecStart=-"/a b/100%%/co$t" budget a$$b\n' in text
    assert 'ExecStart="/a b/100%%/co$t" reap --yes\n' in text
    assert 'Environment="X=a \'b\' \\"c\\" \\\\ %%h"\n' in text
    assert text.count("Environment=Y=plain\n") == 1
    assert 'Environment="Z=\\xff"\n' in text
    assert "Persistent=true" in systemd_timer.timer(QUARTER)


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="no systemd-analyze here")
@pytest.mark.parametrize("minutes", STEPS)
def test_systemd_understands_every_timer(minutes: int) -> None:
    done = subprocess.run(
        ["systemd-analyze", "calendar", "--iterations=3", Schedule(minutes).systemd],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="no systemd-analyze here")
@pytest.mark.parametrize("place", ["a b 100% $t", "plain", "é", "it's", 'say "x" \\ y'])
def test_systemd_accepts_a_program_with_an_odd_path(tmp_path: Path, place: str) -> None:
    program = tmp_path / place / "costgpu"
    program.parent.mkdir()
    units = tmp_path / "units"
    units.mkdir()

    def verify() -> str:
        task = Task(argv=[os.fsencode(program), b"budget", b"check"], variables={b"X": b'1 % \\ " $'})
        (units / "costgpu-budget.service").write_text(systemd_timer.service([task]))
        (units / "costgpu-budget.timer").write_text(systemd_timer.timer(QUARTER))
        command = ["systemd-analyze", "--man=no", "verify", *map(str, units.iterdir())]
        return subprocess.run(command, capture_output=True, text=True, check=False).stderr

    if not set(place) & set("'\""):
        assert "is not executable" in verify()  # it does complain
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    assert "costgpu-budget" not in verify()
