"""Doubts about a verdict: their bounds, what the answer is there, and their order."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import date, timedelta
from decimal import Decimal

import pytest

from costgpu.estimator.cost import cost_range
from costgpu.estimator.doubts import OLD_DAYS, doubts_of
from costgpu.estimator.predict import predict
from costgpu.estimator.prepared import prepare
from costgpu.estimator.scope import scope_of
from costgpu.estimator.verdict import Preferences, decide
from costgpu.models.offer import OwnPrice
from costgpu.models.prediction import Candidate, Choice, Doubt, Objective, Range, Verdict
from costgpu.models.workload import Total, TotalKind, WorkloadProfile
from tests.unit.estimator import builders, inferring
from tests.unit.estimator.advisable import MACHINE, gpu, host, phase, product, profile

PRICED = date(2026, 9, 17)
PLACES = (host(0.2), gpu("L4", 0.8))
ANY = Preferences()


def tiny(
    seconds: float, *, kind: TotalKind = TotalKind.EXACT, busy: float = 0.0, drift: float = 1.0, count: int = 10
) -> WorkloadProfile:
    """Ten million small steps, which keep no GPU busy: 115 minutes on an L4."""
    step = builders.step_times(seconds, count, drift=drift)
    many = Total(kind=kind, steps=1e7, steps_per_epoch=1e5, how="")
    trained = phase(product(16, 14), step=step, total=many, calls_per_step=400)
    return profile(trained, machine=replace(MACHINE, disturbed_share=busy))


def doubted(
    of: WorkloadProfile,
    wanted: Preferences = ANY,
    *,
    today: date = PRICED,
    sure: bool = False,
    places: Sequence[Candidate] = PLACES,
) -> tuple[Verdict, tuple[Doubt, ...]]:
    """A verdict and the doubts about it.

    Args:
        sure: Whether the verdict is decided as on an idle machine.
    """
    scope = scope_of(of)
    decided = replace(of, machine=replace(of.machine, disturbed_share=0.0)) if sure else of
    workload = prepare(decided, scope, year=2026)
    here, *offers = [predict(workload, place) for place in (Candidate(offer=None), *places)]
    verdict = decide(scope, here, offers, wanted, ())
    return verdict, doubts_of(verdict, of, scope, wanted, today)


def test_a_sure_answer_has_no_doubts() -> None:
    assert doubted(tiny(0.001)) == (doubted(tiny(0.001))[0], ())


def test_a_busy_machine_turns_what_its_bound_turns_and_nothing_else() -> None:
    """The CPU costs a third of the GPU: 3.2 times as much turns that, and 1.4 times does not."""
    verdict, [doubt] = doubted(tiny(0.001, busy=0.69), sure=True)
    assert verdict.choice is Choice.CPU
    assert doubt.words == "busy machine: 69 %, CPU figures x0.66-3.2"
    assert doubt.turns == (
        "Unless CPU figures are really 3.2 times these (other programs took 69 % of this machine's time):"
        " then run it on a GPU."
    )
    _, [little] = doubted(tiny(0.001, busy=0.3), sure=True)
    assert (little.words, little.turns) == ("busy machine: 30 %, CPU figures x0.85-1.4", "")


def test_what_is_too_close_to_call_says_when_it_would_not_be() -> None:
    verdict, [doubt] = doubted(tiny(0.002, busy=0.69))
    assert verdict.choice is Choice.TOO_CLOSE
    assert doubt.turns.startswith("Unless CPU figures are really 3.2 times these")
    assert doubt.turns.endswith(": then run it on a GPU.")


def test_a_deadline_that_would_be_met_at_a_bound() -> None:
    hours = Preferences(deadline_seconds=4 * 3600)
    verdict, doubts = doubted(tiny(0.002, busy=0.69), hours, places=())
    assert verdict.choice is Choice.NOWHERE
    assert [doubt.turns.endswith(": then run it here.") for doubt in doubts] == [True]


def test_a_job_that_stops_early_may_belong_here() -> None:
    def of(steps: float, kind: TotalKind) -> WorkloadProfile:
        some = Total(kind=kind, steps=steps, steps_per_epoch=15, how="")
        return profile(phase(product(512, 20), total=some), machine=MACHINE)

    verdict, [doubt] = doubted(of(1500, TotalKind.UPPER_BOUND))
    assert verdict.choice is Choice.GPU
    assert doubt.turns == "Unless it stops within the first 19 % of its steps: then run it here."
    assert doubted(of(0.19 * 1500, TotalKind.EXACT))[0].choice is Choice.HERE
    assert doubted(of(0.20 * 1500, TotalKind.EXACT))[0].choice is not Choice.HERE


@pytest.mark.parametrize(
    ("of", "words"),
    [
        (tiny(0.001, drift=1.8), "steps grew: times x1.8"),
        (tiny(0.001, drift=0.5), "steps fell: times x0.5"),
        (tiny(0.001, kind=TotalKind.APPROXIMATE), "number of steps changes: x0.53-1.9"),
        (tiny(0.001, count=2), "only 2 of its steps timed: CPU figures x0.8-1.2"),
        (replace(inferring.profile(inferring.scoring(8, None))), "length unknown: amounts for 1,000 images"),
    ],
)
def test_each_doubt_in_a_few_words(of: WorkloadProfile, words: str) -> None:
    assert [doubt.words for doubt in doubted(of)[1]] == [words]


@pytest.mark.parametrize("drift", [0.0, float("inf"), float("nan")])
def test_what_somebody_has_edited_is_no_doubt(drift: float) -> None:
    scope = scope_of(sound := tiny(0.001))
    verdict, _ = doubted(sound)
    edited = replace(tiny(0.001, drift=drift), machine=replace(MACHINE, disturbed_share=4.0))
    assert doubts_of(verdict, edited, scope, ANY, PRICED) == ()


def test_the_most_important_come_first() -> None:
    of = tiny(0.001, kind=TotalKind.APPROXIMATE, busy=0.6, drift=1.2)
    _, doubts = doubted(of, today=PRICED + timedelta(days=OLD_DAYS + 1))
    assert [(doubt.words.split(":")[0], bool(doubt.turns)) for doubt in doubts] == [
        ("number of steps changes", True), ("busy machine", True), ("steps grew", False), ("prices of 91 days ago", False),
    ]  # fmt: skip


def test_an_interval_that_holds_the_break_even() -> None:
    verdict, doubts = doubted(tiny(0.002), Preferences(objective=Objective.BALANCED))
    assert verdict.choice is Choice.GPU
    assert doubts[0].words.startswith("speed-up 1.")
    assert "break-even 3.9x" in doubts[0].words
    assert not doubted(tiny(0.002), Preferences(objective=Objective.FASTEST))[1]


def test_a_deadline_that_the_bound_breaks() -> None:
    limited = Preferences(deadline_seconds=4 * 3600.0)
    verdict, [doubt] = doubted(tiny(0.001, busy=0.6), limited, sure=True)
    assert verdict.choice is Choice.CPU
    assert doubt.turns.endswith("then run it on a GPU.")


def test_a_job_that_outlasts_an_own_price_costs_the_list_price_from_then_on() -> None:
    """Six hours at $0.10 and the rest at $3: at its bound the CPU is the dearer only because of that."""
    own = OwnPrice(
        set_on=PRICED, until=PRICED, list_usd_per_hour=Decimal(3), list_as_of=PRICED, list_source="a list", note=""
    )
    place = host(0.1)
    assert place.offer is not None
    offer = replace(place.offer, own_price=own)
    ending = replace(place, offer=offer, own_price_seconds=6 * 3600.0)
    places = (ending, gpu("L4", 0.8))
    verdict, doubts = doubted(tiny(0.001, busy=0.69), sure=True, places=places)
    assert verdict.choice is Choice.CPU
    assert doubts[0].turns.endswith("then run it on a GPU.")
    _, [kept] = doubted(tiny(0.001, busy=0.69), sure=True, places=(replace(ending, own_price_seconds=1e9), places[1]))
    assert kept.turns == ""
    wall = Range(value=7 * 3600.0, low=6 * 3600.0, high=8 * 3600.0)
    held, free = cost_range(ending, wall), cost_range(host(0.1), wall)
    assert (held.value - free.value, held.low - free.low) == pytest.approx((2.9, 0.0))
    assert held.high - free.high == pytest.approx(5.8)
