"""No script of the corpus changes the victim's tree when it is measured, and every one does when it just runs."""

import contextlib
import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue

import pytest

from costgpu.measure.isolation.levels import Isolation
from tests.measure.destructive import (
    deletes,
    home,
    metadata,
    native,
    own_places,
    plain_writes,
    processes,
    programs,
    races,
    repository,
    training,
)
from tests.measure.destructive.corpus import Script, scripts
from tests.measure.destructive.run import Ran, Runner
from tests.shared_memory import shared_memory

CLASSES = (
    plain_writes, deletes, metadata, programs, repository, processes, native, own_places, home, training, races,
)  # fmt: skip
ALL: list[Script] = [script for module in CLASSES for script in module.SCRIPTS]
AT_ONCE = 2
LEVELS = (Isolation.COPY_ON_WRITE, Isolation.WRITE_PROTECTED)
(HARMLESS,) = scripts("harmless", "### nothing\n")
SAMPLE = [module.SCRIPTS[len(module.SCRIPTS) // 2] for module in CLASSES]  # for `make test`
PARTS = 10  # of about the same length, each with some of every class, for processes that share the tests
SCRIPTS_OF = [ALL[part::PARTS] for part in range(PARTS)]


@contextlib.contextmanager
def runners(folder: Path, count: int) -> Iterator[Callable[[Callable[[Runner], Ran]], Ran]]:
    """Lends victims to those who want to harm them."""
    free: SimpleQueue[Runner] = SimpleQueue()
    for _ in range(count):
        free.put(Runner(folder))

    def lend(use: Callable[[Runner], Ran]) -> Ran:
        runner = free.get()
        try:
            return use(runner)
        finally:
            free.put(runner)

    yield lend
    for _ in range(count):
        free.get().close()


@pytest.fixture(scope="module")
def lend(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[Callable[[Runner], Ran]], Ran]]:
    with runners(tmp_path_factory.mktemp("victims"), AT_ONCE) as lent:
        yield lent


def run_all(found: list[Script], action: Callable[[Script], Ran]) -> dict[Script, Ran]:
    """Some at once."""
    found = [script for script in found if not script.missing()]
    with ThreadPoolExecutor(AT_ONCE) as pool:
        return dict(zip(found, pool.map(action, found), strict=True))


def need(level: Isolation, lend: Callable[[Callable[[Runner], Ran]], Ran]) -> None:
    """Skips where this machine does not give a level."""
    ran = lend(lambda runner: runner.measured(HARMLESS, level))
    if "ConfigError" in ran.answer.get("raised", ""):
        pytest.skip(ran.answer["raised"])
    assert not ran.faults
    assert ran.finished, ran.output


def faults(script: Script, ran: Ran, level: Isolation) -> list[str]:
    """What was harmed, and whether the script did not get to do its worst, though it sees a world of its own."""
    found = list(ran.faults) if ran.begun else [*ran.faults, f"did not begin: {ran.output[-500:]}"]
    asked = not ran.skipped and "refused" not in script.flags
    if level is Isolation.COPY_ON_WRITE and asked and ran.finished == bool(script.flags & {"unfinished", "endless"}):
        found.append(f"{'finished' if ran.finished else 'did not finish'}: {ran.output[-500:]}")
    return found


def test_the_corpus_is_large() -> None:
    assert len({script.id for script in ALL}) == len(ALL) >= 500
    assert len(CLASSES) >= 10


def test_a_sample_changes_nothing_that_was_there(tmp_path: Path) -> None:
    """One script of each class; the tree is made once, and is as it was after each."""
    with shared_memory(alone=False), runners(tmp_path, 1) as lend:
        need(Isolation.COPY_ON_WRITE, lend)
        check([script for script in SAMPLE if not script.missing()], Isolation.COPY_ON_WRITE, lend)


def check(found: list[Script], level: Isolation, lend: Callable[[Callable[[Runner], Ran]], Ran]) -> None:
    """Measures scripts, and fails with what went wrong, by script."""
    ran = run_all(found, lambda script: lend(lambda runner: runner.measured(script, level)))
    wrong = {script.id: faults(script, result, level) for script, result in ran.items()}
    assert not {name: lines for name, lines in wrong.items() if lines}


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("part", range(PARTS))
def test_nothing_that_was_there_changes(
    part: int, level: Isolation, lend: Callable[[Callable[[Runner], Ran]], Ran]
) -> None:
    """Every second script at each of the levels, or with FULL=1 every one at both."""
    need(level, lend)
    check(SCRIPTS_OF[part] if os.environ.get("FULL") else SCRIPTS_OF[part][LEVELS.index(level) :: 2], level, lend)


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("part", range(PARTS))
def test_every_script_really_harms(part: int, lend: Callable[[Callable[[Runner], Ran]], Ran]) -> None:
    """Else the other tests would prove nothing. What is dangerous by nature, or harms only through costgpu, is left out."""
    harmful = [script for script in SCRIPTS_OF[part] if not script.flags & {"only-isolated", "through-us"}]
    ran = run_all(harmful, lambda script: lend(lambda runner: runner.unprotected(script)))
    assert not [script.id for script, result in ran.items() if not result.changed]
    early = {script: bool(script.flags & {"unfinished", "endless"}) for script in ran}
    assert not {script.id: result.output for script, result in ran.items() if result.finished == early[script]}
