"""Plain loops of a script, as looks at it from beside it tell how far they are."""

from types import SimpleNamespace
from typing import Any

import pytest

from costgpu.measure.probe.loops import script_frames, script_loops

probe: Any = script_loops  # for Python 3.8, without types
frames: Any = script_frames


def looks(*seen: Any, driven: bool = False, gated: bool = False, clock: Any = None) -> Any:
    """What was seen of loops: seconds, and (name, trips, iterations) of each."""
    recorder: Any = SimpleNamespace(started=0.0, thread=0)
    watched = probe.ScriptLoops(recorder)
    place = {"caller": "scipy" if driven else "", "driven": driven, "early": False, "file": "a.py", "line": 3}
    place |= {"gated": gated, "clock": clock}
    for at, loops in seen:
        found = [place | {"key": name, "trips": trips, "index": index} for name, trips, index in loops]
        watched.looks.append((at, found))
    return watched.progress()


def test_loops_that_begin_anew() -> None:
    inner = [(0.2 * n, [("t", 60, 7 * n % 60)]) for n in range(60)]
    found = looks(*inner)
    assert found["again"]["by"] == ""
    assert found["last"] / found["seconds"] == pytest.approx(35, rel=0.05)
    assert found["again"]["times"] == pytest.approx(60 * 7 / 60, rel=0.05)
    nested = [(at, [("epoch", 100, n // 3), *loops]) for n, (at, loops) in enumerate(inner)]
    assert "again" not in looks(*nested)
    assert len(looks(*nested)["loops"]) == 1, "it is made more than once in each of the outer loop's"
    waiting = [(at, [("epoch", 100, 0), *loops]) for at, loops in inner]
    assert len(looks(*waiting)["loops"]) == 1, "the outer one has not moved yet"
    assert looks(*waiting)["again"]["times"] == pytest.approx(7, rel=0.05)


def test_a_loop_that_is_not_made_in_every_round() -> None:
    first = [(0.2 * n, [("step", 900, 0), ("evaluation", 400, n)]) for n in range(5)]
    assert looks(*first, gated=True)["loops"][-1]["early"], "at most so many"
    later = [(2 + 0.2 * n, [("step", 900, 40 * n + 40), ("evaluation", 400, n)]) for n in range(5)]
    assert len(looks(*first, *later, gated=True)["loops"]) == 1
    assert len(looks(*first, *later)["loops"]) == 2


def test_a_loop_that_a_clock_ends_is_measured_in_seconds() -> None:
    clock = {"seconds": 3600.0, "test": "time.time() - t0 < 3600"}
    found = looks(*[(0.5 * n, [("while", None, None)]) for n in range(9)], clock=clock)
    assert (found["loops"][0]["trips"], found["last"], found["clock"]) == (3600.0, 4.0, clock["test"])
    assert looks(*[(0.5 * n, [("while", None, None)]) for n in range(9)]) is None


def test_looks_at_which_a_loop_could_not_be_read_are_left_out() -> None:
    seen = [(0.2 * n, [("t", 60, n if n % 3 else None)]) for n in range(12)]
    found = looks(*seen)
    assert (found["first"], found["last"]) == (1.0, 11.0)


def test_one_call_by_a_library_is_not_all() -> None:
    seen = [(0.2 * n, [("t", 60, n)]) for n in range(12)]
    assert "again" not in looks(*seen)
    assert looks(*seen, driven=True)["again"]["by"] == "scipy"
    assert looks(*seen[:4], driven=True) is None, "many calls may have come and gone between the looks"


def test_what_comes_round_between_two_looks_is_no_speed() -> None:
    assert looks(*[(0.2 * n, [("t", 60, 47 * n % 60)]) for n in range(60)]) is None


@pytest.mark.parametrize(
    ("packages", "callers"),
    [
        (["scipy", ""], []),  # a library that calls the script is not called by it
        (["", "scipy", ""], ["scipy"]),
        (["", "scipy", "", "", "emcee", ""], ["scipy", "emcee"]),
        (["", "click", ""], []),  # it calls the script's main function once
        (["", "tqdm", ""], []),
        (["", ""], []),
    ],
)
def test_who_calls_the_functions_of_a_script(packages: list[str], callers: list[str]) -> None:
    paths = [f"/lib/site-packages/{package}/it.py" if package else "/w/train.py" for package in packages]
    live = [SimpleNamespace(f_code=SimpleNamespace(co_filename=path)) for path in paths]
    assert [package for _, package, _ in frames.called_by_libraries(live)] == callers
