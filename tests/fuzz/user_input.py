"""Mutated input of the user: command lines, settings, profiles, ledger rows, price documents. Everything from a seed."""

from __future__ import annotations

import contextlib
import random
import signal
import string
from collections.abc import Iterator, Sequence
from typing import Any

from costgpu.errors import EXIT_INTERRUPTED, exit_codes
from tests.cli.here import Result, told

HANG_SECONDS = 60.0  # an input that takes longer hangs: a failure, so that the rest can go on
CODES = {0, 1, EXIT_INTERRUPTED, *exit_codes()}

_NUMBERS = [
    "0",
    "-1",
    "1",
    "0.5",
    "5",
    "100",
    "1e308",
    "1e-400",
    "1e999999999",
    "inf",
    "-inf",
    "nan",
    "NaN",
    "1_000",
    "1__0",
    "１２",
    "٣",
    "0x10",
    "1,000",
    "1.",
    ".5",
    "+5",
    "$5",
    "€5",
    "1e15",
    "1e18",
    "99999999999",
]
NUMBERS = (*_NUMBERS, "9" * 300, "9" * 6000, "5 USD")
_TIMES = [
    "90s",
    "2h",
    "1h30m",
    "99999999999h",
    "1e9h",
    "0s",
    "-1h",
    "3d",
    "h",
    "1hh",
    "0.0000001s",
    "2026",
    "2026-11",
    "2026-13",
    "2026-11-01",
    "9100",
    "0001-01",
    "9999-12-31T23:59:59+14:00",
    "30d",
    "40000d",
    "200000w",
    "2026-11-01T12:00:00-23:59",
    "0000-00",
    "1970",
    "2199",
    "2200",
    "now",
    "yesterday",
    "24:00",
]
TIMES = (*_TIMES, "1 week", "9" * 400 + "d")
_TEXTS = [
    r"-",
    r"--",
    r"a",
    r"none",
    r"cpu",
    r"A100",
    r"A100:1",
    r"A100:1..0",
    r"24GB",
    r"24GB:1..2",
    r"L4:1e9",
    r"é",
    r"日本",
    r"🙂",
    r"../..",
    r"/",
    r"/dev/null",
    r"/dev/zero",
    r"/dev/full",
    r"a/b/c",
    r"~",
    r".",
    r"..",
    r"key=value",
    r"=",
    r"k=",
    r"=v",
    r"aws",
    r"gcp",
    r"local",
    r"aws/us-east-1",
    r"aws/nowhere",
    r"aws/us-east-1/x",
    r"/x",
    r"AWS",
    r"json",
    r"text",
    r"csv",
    r"focus",
    r"month",
    r"tag:",
    r"tag:a",
    r"resnet50",
    r"train.py",
    r"missing.py",
    r"saved.json",
    r"damaged.json",
    r"folder",
    r"fifo",
    r"-rf.py",
    r"%s%n",
    r"{0}",
    r"s3://b/x",
    r"s3://",
    r"http://[",
    r"sqlite://",
    r"50,80",
    r"101%",
    r",",
    r"*",
]
_ODD = (
    "",
    " ",
    "a\x1b[31mb\x07",
    "a\nb",
    "a\tb",
    "a\rb",
    "\u202etxt",
    "\udcff",
    "\ud800",
    "a\x00b",
    "'; DROP TABLE runs; --",
)
TEXTS = (*_TEXTS, *_ODD, "x" * 300, "x" * 5000, "x" * 100_000, "H100:" + "9" * 99)
WORDS = (*NUMBERS, *TIMES, *TEXTS)

_OPTIONS = """
    offers | --gpus --cpus --memory --infra --spot! --max-price --sort --top --currency --rate --json! -o
    prices | --json!
    prices set | @ --until --region --spot! --note
    prices unset | @ --region --spot!
    prices list | --json!
    jobs | -a! --by-tag! --json!
    logs | @ -f!
    attach | @
    cancel | @ -y! --now!
    fetch | @ --to
    reap | --older-than --mine! --infra=local --json!
    ledger | --by --limit --since --until --provider --person -n --tag --currency --rate --json!
    ledger export | --format -o --since --until --provider --person -n --tag --force!
    ledger report | --html=- --html --since --until --force!
    ledger accuracy | --limit --since --until --provider --person -n --tag --json!
    ledger billed | --month --stored! --json!
    budget set | @ --daily --weekly --monthly --total --alert --tag --provider --person --time-zone --enforce!
        --enforce-spent! --replace!
    budget show | @ --currency --rate --json!
    budget remove | @
    budget check | --offline! -v! --json!
    budget cron | --every --reap! --enforce!
    estimate | --measure-for --start-limit --steps --epochs --total-steps --like --save --step-pattern --objective
        --deadline --max-cost --value-of-time --gpus --nodes --infra --spot! --top --own --own-price --power-price --energy!
        --report --force! --explain! --json! --rate --currency --exchange-rate -o --params=1B --params --tokens
    run --dry-run --no-estimate --infra local | -t --gpus --fit! --currency --rate --max-cost --max-duration
        --idle-duration --outputs --setup
        -e --env-file -n --tag --lease --no-auto-shutdown! --nproc --workdir --profile --disk --bucket --sync-limit
        --include --exclude --grace --assume-price --json! -o
"""
OPTIONS = {
    tuple(command.split()): tuple(options.split())
    for command, _, options in (
        line.partition("|") for line in _OPTIONS.replace("\n        ", " ").strip().splitlines()
    )
}
"""Command -> its options; ``!``: a switch, ``=``: with this value, ``@``: an argument."""


class HangError(AssertionError):
    """An input that does not end."""


@contextlib.contextmanager
def limited() -> Iterator[None]:
    """Turns what does not end into a failure."""

    def ring(*_: object) -> None:
        raise HangError(f"not within {HANG_SECONDS:.0f} s")

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, HANG_SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def word(source: random.Random) -> str:
    """A value for an option."""
    chosen = source.choice(WORDS)
    if source.random() < 0.2:
        at = source.randint(0, min(len(chosen), 50))
        chosen = (
            chosen[:at]
            + source.choice([*string.printable, "\udc80", "é", "\u202e"])
            + chosen[at + source.randint(0, 1) :]
        )
    return chosen


def command_line(source: random.Random) -> list[str]:
    """A command with some of its options."""
    command, options = source.choice(list(OPTIONS.items()))
    words = list(command)
    for option in source.sample(options, min(len(options), source.choice([0, 1, 1, 2, 2, 3, 4]))):
        if option.endswith("!"):
            words.append(option[:-1])
        elif "=" in option:
            words.append(option)
        elif option == "@":
            words.append(word(source))
        else:
            words += [option, word(source)]
    if command[0] == "estimate" and len(command) == 1 and not any(each.startswith("--params") for each in words):
        words.append(
            source.choice(["saved.json", "saved.json", "damaged.json", "missing.py", "folder", "fifo", word(source)])
        )
        words[1:1] = ["--measure-for", "0.1s", "--start-limit", "1s"]
    if command[0] == "run":
        words.append(source.choice(["train.py", "train.py", "-rf.py", "missing.py", "folder", "fifo"]))
    return words


def starts_something(words: Sequence[str]) -> bool:
    """Whether a script or program of the input would really run: measuring has tests of its own."""
    return words[0] == "estimate" and any(each in ("train.py", "-rf.py", "A", "a", "*") for each in words)


def outcome(words: Sequence[str]) -> Result:
    """What a command says to this.

    Raises:
        AssertionError: No code that is documented, no word of why, or something that a terminal obeys.
    """
    exact = list(words[:2]) == ["ledger", "export"]  # every character as it was, where no terminal reads it
    with limited():
        result = told(*words, screen=exact)
    assert result.code in CODES, result
    assert "Traceback" not in result.err, result.err
    if result.code not in (0, 80, 81):
        assert result.err.strip() or result.out.strip(), result
    for text in (result.out, result.err):
        assert not any(letter < " " and letter not in "\n\t\r" for letter in text), ascii(text[:500])
        assert "\x1b" not in text and "\u202e" not in text  # noqa: PT018
    return result


def mutated_value(value: Any, source: random.Random) -> Any:
    """A JSON value with some part of it replaced."""
    if isinstance(value, dict) and value and source.random() < 0.85:
        key = source.choice(list(value))
        if source.random() < 0.1:
            return {name: item for name, item in value.items() if name != key}
        return {**value, key: mutated_value(value[key], source)}
    if isinstance(value, list) and value and source.random() < 0.85:
        at = source.randrange(len(value))
        return [*value[:at], mutated_value(value[at], source), *value[at + 1 :]]
    return source.choice(JSON_VALUES)


DEEP: Any = None
for _ in range(60):
    DEEP = [DEEP]
JSON_VALUES: tuple[Any, ...] = (
    None,
    True,
    False,
    0,
    -1,
    1,
    3,
    10**18,
    10**400,
    -(10**30),
    0.5,
    1e308,
    -1e308,
    1e-308,
    "",
    "x",
    "1e999",
    "NaN",
    "inf",
    "-1",
    "9" * 300,
    "2026-11-01T00:00:00+00:00",
    "9999-12-31T23:59:59+00:00",
    "0001-01-01T00:00:00+00:00",
    "yesterday",
    "2026-11-01T00:00:00",
    [],
    {},
    [[]],
    [{}],
    {"a": 1},
    [1, "a", None],
    "\udcff",
    "\x1b[31m",
    "a\nb",
    "x" * 5000,
    DEEP,
)


def mutated_text(text: str, source: random.Random) -> bytes:
    """A text with bytes replaced, removed, doubled, or cut short."""
    raw = bytearray(text.encode())
    for _ in range(source.choice([1, 1, 2, 5])):
        at = source.randrange(len(raw) + 1)
        way = source.randrange(5)
        if way == 0:
            raw[at : at + 1] = bytes([source.randrange(256)])
        elif way == 1:
            del raw[at : at + source.randint(1, 20)]
        elif way == 2:
            raw[at:at] = raw[at : at + source.randint(1, 40)]
        elif way == 3:
            raw[at:at] = source.choice(
                [b"[" * 3000, b'{"a":' * 2000, b"9" * 6000, b"1e999", b"\0", b"NaN", b"'''", b"a." * 900]
            )
        else:
            del raw[at:]
    return bytes(raw)
