"""Whatever a user, a file or a damaged ledger says: an answer, or an error of ours. Never a traceback, a warning, a hang.

From fixed seeds: `make test` tries some hundred inputs, `make test-all` more than ten thousand. A failure names its
seed: `command_line(random.Random(seed))` and its like make the same input again.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from costgpu.config import data_path
from costgpu.errors import CostGpuError
from costgpu.measure.profile_file import save_profile
from tests.cli.here import told
from tests.fuzz import other_files
from tests.fuzz.damaged_ledger import LEDGER_COMMANDS, damage_ledger, plant_ledger
from tests.fuzz.user_input import command_line, limited, outcome, starts_something
from tests.unit.estimator import builders, inferring

FEW, SHARDS = 30, 10
COMMAND_LINES, DAMAGED_LEDGERS = 2000, 600
OTHER_FILES = {
    "settings": 2500,
    "environment_file": 1000,
    "profile": 1000,
    "price_cache": 200,
    "bill": 1200,
    "price_documents": 2500,
    "quantities": 4000,
}


def shards(count: int) -> list[Any]:
    """Seeds by test: a few in `make test`, and the others in `make test-all`."""
    many = (range(FEW + shard, count, SHARDS) for shard in range(SHARDS))
    slow = [pytest.param(seeds, marks=pytest.mark.slow, id=f"from {seeds.start}") for seeds in many]
    return [pytest.param(range(FEW), id="few"), *slow]


def person(folder: Path) -> None:
    """A project with whatever can lie in one."""
    (folder / "train.py").write_text("print(1)\n")
    (folder / "-rf.py").write_text("print(1)\n")
    (folder / "folder").mkdir()
    os.mkfifo(folder / "fifo")
    (folder / ".gitignore").write_text("fifo\n")
    save_profile(builders.profile(), folder / "saved.json")
    (folder / "damaged.json").write_text((folder / "saved.json").read_text()[:300])
    save_profile(inferring.profile(inferring.scoring(64, 100_000)), folder / "score.json")


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    person(tmp_path)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")  # nobody is asked whether this is one of Amazon's
    with contextlib.chdir(tmp_path):
        yield tmp_path


@pytest.fixture
def ledger(project: Path) -> Path:
    """A ledger that is whole; damage is done to a copy of it."""
    data_path().mkdir(parents=True)
    plant_ledger(data_path())
    return (data_path() / "ledger.sqlite").rename(project / "whole.sqlite")


def say_anything(seed: object) -> None:
    words = command_line(random.Random(f"command {seed}"))
    if not starts_something(words):
        outcome(words)


def damage_anything(seed: object, whole: Path) -> None:
    source, file = random.Random(f"ledger {seed}"), data_path() / "ledger.sqlite"
    damage_ledger(file, whole.read_bytes(), source)
    outcome(source.choice(LEDGER_COMMANDS).split())
    for part in file.parent.glob("ledger.sqlite*"):
        part.unlink()


@contextlib.contextmanager
def changed(whole: Path) -> Iterator[sqlite3.Connection]:
    """The ledger, open for damage."""
    file = data_path() / "ledger.sqlite"
    file.write_bytes(whole.read_bytes())
    with contextlib.closing(sqlite3.connect(file, isolation_level=None)) as raw:
        yield raw


def read_anything(kind: str, seed: object, folder: Path) -> None:
    with limited(), contextlib.suppress(CostGpuError):
        other_files.KINDS[kind](random.Random(f"{kind} {seed}"), folder)


def try_all(seeds: range, attempt: Callable[[int], None]) -> None:
    """Try every seed, and name those that fail."""
    failed: list[str] = []
    for seed in seeds:
        try:
            attempt(seed)
        except Exception as error:  # noqa: BLE001 - that it is none of ours is what is looked for
            failed.append(f"seed {seed}: {type(error).__name__}: {ascii(str(error))[:500]}")
    assert not failed, f"{len(failed)} of {len(seeds)}:\n" + "\n".join(failed[:10])


@pytest.mark.parametrize("seeds", shards(COMMAND_LINES))
def test_command_lines(seeds: range, project: Path) -> None:
    try_all(seeds, say_anything)


@pytest.mark.parametrize("seeds", shards(DAMAGED_LEDGERS))
def test_damaged_ledgers(seeds: range, ledger: Path) -> None:
    try_all(seeds, lambda seed: damage_anything(seed, ledger))


def test_a_damaged_ledger_that_exports_a_zero_byte(ledger: Path) -> None:
    damage_anything(602556844, ledger)


@pytest.mark.parametrize("few", [pytest.param(True, id="few"), pytest.param(False, id="many", marks=pytest.mark.slow)])
@pytest.mark.parametrize("kind", OTHER_FILES)
def test_files(kind: str, *, few: bool, project: Path) -> None:
    seeds = range(FEW) if few else range(FEW, OTHER_FILES[kind])
    try_all(seeds, lambda seed: read_anything(kind, seed, project))


LIKE = ("estimate", "--like", "resnet50")
BILLION = ("estimate", "--params", "1B", "--tokens", "1B")
HERE = ("run", "--dry-run", "--no-estimate", "--infra", "local")
LONG = "x" * 300
FOUND: list[tuple[tuple[str, ...], int, str]] = [
    # amounts and times that no arithmetic stands
    ((*LIKE, "--max-cost", "1e308"), 2, "--max-cost '1e308' is out of range"),
    ((*LIKE, "--max-cost", "9" * 300), 2, "--max-cost"),
    ((*LIKE, "--deadline", "99999999999h"), 2, "--deadline '99999999999h' is out of range"),
    ((*LIKE, "--value-of-time", "inf"), 2, "--value-of-time 'inf' is not"),
    ((*LIKE, "--epochs", "nan"), 2, "--epochs nan is not a number"),
    ((*LIKE, "--top", "9" * 300), 2, ""),
    (("estimate", "--params", "9" * 300, "--tokens", "1B"), 2, "--params is from"),
    (("estimate", "--params", "1B", "--tokens", "9e99T"), 2, "--tokens is from"),
    ((*HERE, "--max-duration", "99999999999h", "train.py"), 2, "--max-duration"),
    ((*HERE, "--sync-limit", "1e308", "train.py"), 2, "--sync-limit"),
    ((*HERE, "--assume-price", "1e308", "train.py"), 2, "--assume-price"),
    (("reap", "--older-than", "9" * 400 + "d"), 2, "--older-than"),
    (("ledger", "--limit", "9" * 300), 2, ""),  # SQLite knows no such number
    (("ledger", "export", "--format", "focus", "--since", "9100"), 2, "between the years 1970 and 2199"),
    (("ledger", "--since", "0001-01"), 2, "between the years 1970 and 2199"),
    (("offers", "--cpus", "１２"), 2, "is not a number or range for --cpus"),
    # an unset variable of the shell is not "no limit"
    *(((*LIKE, option, ""), 2, f"{option} is empty") for option in ("--max-cost", "--deadline", "--gpus", "--infra")),
    *(
        ((*HERE, option, "", "train.py"), 2, f"{option} is empty")
        for option in ("--max-cost", "--idle-duration", "--lease")
    ),
    ((*HERE, "--workdir", "", "train.py"), 2, "--workdir is empty"),
    ((*HERE, "--setup", "", "train.py"), 0, ""),  # no set-up at all
    (("ledger", "--person", ""), 2, "--person is empty"),
    # names that no file can have
    ((*LIKE, "--report", f"{LONG}.html"), 2, "is too long"),
    (("estimate", "--save", f"{LONG}.json", "train.py"), 2, "is too long"),
    (("ledger", "export", "-o", LONG), 2, "is too long"),
    (("ledger", "report", "--html", LONG), 2, "is too long"),
    (("ledger", "export", "-o", "a\0b"), 2, "zero byte"),
    (("ledger", "export", "-o", "\ud800"), 2, "characters in it that no file name can have"),
    ((*HERE, "-e", "\ud800", "train.py"), 2, "is not the name"),
    ((*HERE, "--env-file", "fifo", "train.py"), 2, "not an ordinary file"),
    (("estimate", "fifo"), 22, "is no ordinary file"),  # it was read for ever
    (("fetch", "\ud800"), 51, "no run"),
]


@pytest.mark.parametrize(("words", "code", "says"), FOUND, ids=range(len(FOUND)))
def test_what_was_found(words: tuple[str, ...], code: int, says: str, project: Path) -> None:
    result = outcome(words)
    assert result.code == code, result
    assert says in result.err, result.err


@pytest.mark.parametrize("place", ["fifo", "/dev/zero", "folder"])
def test_settings_that_are_no_file(place: str, project: Path) -> None:
    (project / "costgpu.toml").symlink_to(place)
    result = outcome(["run", "--infra", "local", "-y", "train.py"])
    assert result.code == 3, result
    assert "costgpu.toml cannot be read" in result.err


def test_a_profile_with_a_text_that_reads_as_no_number(project: Path) -> None:
    """pydantic takes the text NaN for a number, and the cost of that many seconds is none."""
    document = json.loads((project / "saved.json").read_text())
    (project / "nan.json").write_text(json.dumps({**document, "setup_seconds": "NaN"}))
    result = outcome(["estimate", "nan.json"])
    assert result.code == 5, result
    assert "damaged at setup_seconds" in result.err


def test_a_damaged_first_event_is_named_and_hides_nothing(ledger: Path) -> None:
    with changed(ledger) as raw:
        raw.execute("UPDATE events SET data = '{}' WHERE run_id = 'openrun1aaaa' AND sequence = 0")
        raw.execute("UPDATE events SET data = CAST(x'ff' AS TEXT) WHERE run_id = 'closedrun1aa' AND sequence = 0")
        raw.execute("UPDATE closings SET metered_nano_usd = 'much' WHERE run = 3")
    jobs = told("jobs", "-a")
    assert "openrun2" in jobs.out
    assert "Event 0 (intended) of run openrun1aaaa cannot be read: spec: Field required" in jobs.err
    assert "event 0 of run closedrun1aa is not readable" in jobs.err
    told("reap").check(46, out="runs openrun1aaaa, openrun2aaaa may")  # who could tell has no credentials here
    history = told("ledger", "--by", "month")
    assert "$2.50" in history.out
    assert "run closedrun2aa cannot be read" in history.err
    check = told("budget", "check", "--offline", "-v")
    assert "at least" in check.out
    assert "openrun1aaaa is open and is not counted" in check.err


def test_nothing_reaches_a_terminal_that_it_obeys(ledger: Path) -> None:
    with changed(ledger) as raw:
        raw.execute("UPDATE runs SET name = 'a\x1b[2Jb\u202ec' WHERE run_id = 'closedrun1aa'")
    assert r"a\x1b[2Jb\u202ec" in told("ledger").out
    assert r"\x1b" in told("jobs", "\x1b[2J").err
