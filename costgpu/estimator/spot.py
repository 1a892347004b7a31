"""Spot machines: what their interruptions make of a job, and the words on it. Pure.

Interruptions come at random (Poisson) with rate lambda; each machine needs R seconds before the job goes on from its
newest checkpoint, and can be taken back during these, too. Work of s seconds between two checkpoints is repeated until it
is done in one piece, which takes e^(lambda R) (e^(lambda s) - 1) / lambda seconds on average, so that a job of such pieces
takes

    W = [ (e^(lambda R) - 1) + e^(lambda R) sum (e^(lambda s) - 1) ] / lambda

seconds from the first machine's creation, and is interrupted lambda W times. A job without checkpoints is one piece.
Source: J. T. Daly, "A higher order estimate of the optimum checkpoint interval for restart dumps", Future Generation
Computer Systems 22 (2006), whose complete model this is, but for the last piece, which ends without a checkpoint.

What really happens is less even: machines of one kind are taken back together, and when there are few of them. Waiting
until there is a next machine is not in these figures.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from costgpu.estimator.cost import cost_range
from costgpu.estimator.storage import usual_checkpoint_bytes
from costgpu.models.defaults import DISK_BYTES_PER_SECOND
from costgpu.models.prediction import Checkpoints, Interruptions, Prediction, Range
from costgpu.models.workload import ExtraKind, Phase, Rhythm
from costgpu.units import format_duration, format_usd

# What would take more than this many times as long as without interruptions is not done there; the interval's upper end
# stops there, too.
MOST_FACTOR = 10.0
HARDLY_DONE = "it would hardly come to its end"
LEAST_SAVE_SECONDS = 1.0  # of a checkpoint that nobody saw: files are opened, synced and renamed (assumed)
LEAST_INTERVAL_SECONDS = 60.0  # more often is no advice
WORTH_SAYING = 0.02  # of the cost, that another interval saves
ALL_LOST = "each interruption loses all since the start"


def daly_interval(checkpoint_seconds: float, mean_seconds: float) -> float:
    """Return the best seconds of work between two checkpoints: sqrt(2 C M) [1 + sqrt(C / 2M) / 3 + (C / 2M) / 9] - C.

    M where C is 2 M or more. To first order it is sqrt(2 C M): J. W. Young, "A first order approximation to the optimum
    checkpoint interval", CACM 17 (1974).

    Args:
        checkpoint_seconds: C, seconds to save a checkpoint.
        mean_seconds: M, mean seconds between two interruptions; may be infinite.
    """
    if checkpoint_seconds >= 2 * mean_seconds:
        return mean_seconds
    ratio = checkpoint_seconds / (2 * mean_seconds)
    young = math.sqrt(2 * checkpoint_seconds * mean_seconds)
    return young * (1 + math.sqrt(ratio) / 3 + ratio / 9) - checkpoint_seconds


def expected_seconds(
    work_seconds: float,
    rate: float,
    *,
    restart_seconds: float = 0.0,
    checkpoint_seconds: float = 0.0,
    interval_seconds: float = math.inf,
) -> float:
    """Mean seconds from the creation of the first machine to the end of the job; infinite where no float holds it.

    Args:
        work_seconds: Seconds of the work itself, without checkpoints and restarts.
        rate: Interruptions per second while a machine runs.
        restart_seconds: From a machine's creation until the job goes on there, for the first one as for every other.
        checkpoint_seconds: Seconds to save a checkpoint, in which no work is done.
        interval_seconds: Seconds of work between two checkpoints; infinite without any.
    """
    pieces = max(0, math.ceil(work_seconds / interval_seconds) - 1) if interval_seconds > 0 else math.inf
    if math.isinf(pieces):
        return math.inf
    last = work_seconds - pieces * interval_seconds if pieces else work_seconds
    piece = interval_seconds + checkpoint_seconds if pieces else 0.0
    if rate <= 0:
        return restart_seconds + pieces * piece + last
    try:
        again = pieces * math.expm1(rate * piece) + math.expm1(rate * last)
        return (math.expm1(rate * restart_seconds) + math.exp(rate * restart_seconds) * again) / rate
    except OverflowError:
        return math.inf


def sustained_factor(
    rate: float, *, restart_seconds: float, checkpoint_seconds: float, interval_seconds: float
) -> float:
    """Seconds that a second of work takes in the long run, checkpoints included; infinite where no float holds it."""
    if rate <= 0:
        return 1 + checkpoint_seconds / interval_seconds
    try:
        again = math.expm1(rate * (interval_seconds + checkpoint_seconds))
        return math.exp(rate * restart_seconds) * again / (rate * interval_seconds)
    except OverflowError:
        return math.inf


def checkpoints_of(phase: Phase, steps: float, epochs: float, *, whole: bool = True) -> Checkpoints:
    """Return what the last phase saves again and again in so many steps; with an assumed length where nothing was seen."""
    found = []
    for extra in phase.extras:
        if extra.kind is not ExtraKind.CHECKPOINT or extra.rhythm is Rhythm.RUN:
            continue
        if count := extra.count(steps, epochs, whole=whole):
            found.append(Checkpoints(seconds_each=extra.seconds_each, count=count, measured=extra.measured))
    if found:
        return max(found, key=lambda one: one.count or 0.0)
    held = 0.0  # of inference, which keeps its results
    if phase.unit.trains:
        held = usual_checkpoint_bytes(phase)
    return Checkpoints(seconds_each=max(LEAST_SAVE_SECONDS, held / DISK_BYTES_PER_SECOND), count=None)


def with_interruptions(prediction: Prediction, checkpoints: Checkpoints | None) -> Prediction:
    """Return the prediction with wall clock and cost: of spot machines with what interruptions add, or why it is not done.

    Args:
        prediction: Its run, what comes before it, and its machines.
        checkpoints: What the job saves in this run; None on demand.
    """
    plain = prediction.run_seconds.plus(prediction.overhead_seconds)
    found = None if checkpoints is None else interrupted(prediction, checkpoints)
    wall = plain if found is None else found.wall_seconds
    cost = cost_range(prediction.candidate, wall, whole=prediction.overhead_seconds > 0, undisturbed=plain)
    other = "" if prediction.infeasible.startswith(HARDLY_DONE) else prediction.infeasible
    priced = replace(prediction, wall_seconds=wall, cost_usd=cost, interruptions=found)
    return replace(priced, infeasible=other or _never_done(priced))


def with_run(prediction: Prediction, run: Range, *, saves: float = 1.0) -> Prediction:
    """Return the prediction with other seconds of the run, and so of wall clock and cost.

    Args:
        saves: Factor of the number of its checkpoints.
    """
    known = prediction.interruptions
    checkpoints = None if known is None else known.checkpoints
    if checkpoints is not None and checkpoints.count is not None:
        checkpoints = replace(checkpoints, count=checkpoints.count * saves)
    return with_interruptions(replace(prediction, run_seconds=run), checkpoints)


def at_best_interval(prediction: Prediction) -> Prediction:
    """Return the prediction for the job if it saved a checkpoint at every best interval; itself on demand."""
    found = prediction.interruptions
    if found is None:
        return prediction
    each, had = found.checkpoints.seconds_each, (found.checkpoints.count or 0.0) * found.checkpoints.seconds_each
    run = prediction.run_seconds
    count = max(0.0, run.value - had) / found.best_interval_seconds
    better = replace(prediction, run_seconds=run.plus(count * each - had))
    return with_interruptions(better, Checkpoints(seconds_each=each, count=count))


def interrupted(prediction: Prediction, checkpoints: Checkpoints) -> Interruptions | None:
    """Return what interruptions make of a predicted run, pieces of work between checkpoints; None on demand.

    The interval takes the rate's and the run's together, as independent errors. Each of several machines may be taken.

    Args:
        prediction: Its run without them, the script's set-up and its checkpoints included; only a part of a job where
            nothing comes before it.
        checkpoints: What the job saves in this run.
    """
    rate = prediction.candidate.interruptions
    if rate is None:
        return None
    run, overhead, restart = prediction.run_seconds, prediction.overhead_seconds, prediction.fixed_seconds
    whole, count, each = overhead > 0, checkpoints.count, checkpoints.seconds_each
    setup = max(0.0, restart - overhead) if whole else 0.0
    low, middle, high = (
        prediction.candidate.nodes * per_hour / 3600
        for per_hour in (rate.low_per_hour, rate.per_hour, rate.high_per_hour)
    )
    best = max(LEAST_INTERVAL_SECONDS, daly_interval(each, 1 / middle))

    def took(seconds: float, per_second: float, interval: float = math.inf, save: float = 0.0) -> float:
        """Return the wall clock of a run of so many seconds; infinite without checkpoints for a part of a job."""
        if not whole:
            factor = sustained_factor(
                per_second, restart_seconds=restart, checkpoint_seconds=save, interval_seconds=interval
            )
            return seconds * factor
        return expected_seconds(
            max(0.0, seconds - setup),
            per_second,
            restart_seconds=restart,
            checkpoint_seconds=save,
            interval_seconds=interval,
        )

    def bare(seconds: float) -> float:
        return max(seconds - (count or 0.0) * each, setup)

    def at_best(seconds: float, per_second: float) -> float:
        return took(bare(seconds), per_second, best, each)

    def as_written(seconds: float, per_second: float) -> float:
        """Return it with its own checkpoints; if none was seen, without any, or the best ones for a part of a job."""
        if count is not None:
            return took(seconds, per_second, max(0.0, seconds - setup) / count)
        return took(seconds, per_second) if whole else at_best(seconds, per_second)

    plain = run.plus(overhead)
    most = MOST_FACTOR * plain.value
    value = min(as_written(run.value, middle), most)
    rarely = min(at_best(run.value, low), as_written(run.value, low), value)
    often = min(as_written(run.value, high), most)
    short, long = (min(as_written(end, middle), most) for end in (run.low, run.high))
    wall = Range(
        value=value,
        low=max(min(plain.low, value), value / math.exp(math.hypot(_log(value, rarely), _log(value, short)))),
        high=min(value * math.exp(math.hypot(_log(often, value), _log(long, value))), max(most, value)),
    )
    return Interruptions(
        rate=rate,
        checkpoints=checkpoints,
        restart_seconds=restart,
        interval_seconds=None if count is None else max(0.0, run.value - setup) / count,
        best_interval_seconds=best,
        expected=middle * value,
        undisturbed_seconds=plain,
        wall_seconds=wall,
        best_seconds=at_best(run.value, middle),
        bare_seconds=took(bare(run.value), middle) if whole else math.inf,
    )


def _log(one: float, other: float) -> float:
    return math.log(one / other) if one > 0 and other > 0 else 0.0


def enough_recoveries(interruptions: float) -> int:
    """Return the restarts that suffice with probability 0.95, 3 to 100, if so many interruptions are expected (Poisson)."""
    if interruptions >= 100:
        return 100
    probability = total = math.exp(-interruptions)
    count = 0
    while total < 0.95 and count < 100:
        count += 1
        probability *= interruptions / count
        total += probability
    return max(3, count)


# ------------------------------------------------------------------------------------------------------- words


def _never_done(prediction: Prediction) -> str:
    """Return why the job is not done on such machines; empty if it is."""
    found = prediction.interruptions
    if found is None or prediction.interruption_factor < MOST_FACTOR * (1 - 1e-9):  # it is cut off there
        return ""
    mean = format_duration(3600 / found.rate.per_hour)
    saves = "without checkpoints" if found.interval_seconds is None else "with so few checkpoints"
    return f"{HARDLY_DONE} {saves} on machines that are taken back every {mean} or so (assumed)"


def ruled_out_notes(offers: Sequence[Prediction]) -> list[str]:
    """Return how many offers interruptions rule out, and why the rarest taken back of them is."""
    out = [
        (one.interruptions.rate.per_hour, one.infeasible)
        for one in offers
        if one.interruptions is not None and one.infeasible.startswith(HARDLY_DONE)
    ]
    if not out:
        return []
    return [
        f"{len(out):,} of {len(offers):,} spot offers are left out: {min(out, key=lambda one: one[0])[1]}, at best."
    ]


def recover_option(found: Interruptions) -> str:
    """``--recover 3``: as many as suffice in nineteen cases of twenty."""
    return f"--recover {enough_recoveries(found.expected)}"


def interruption_sentences(prediction: Prediction | None) -> list[str]:
    """Return what the figures of a spot machine have in them, what its checkpoints do, and how to go on; none on demand."""
    found = prediction.interruptions if prediction is not None else None
    if prediction is None or found is None:
        return []
    return [
        f"Interruptions are in the figures of spot machines: {rate_words(prediction, found)}.",
        *_checkpoint_sentences(prediction, found),
        f"costgpu run --spot {recover_option(found)} goes on after each.",
    ]


def interruption_words(prediction: Prediction | None) -> str:
    """Return the same in one sentence; empty on demand."""
    found = prediction.interruptions if prediction is not None else None
    if prediction is None or found is None:
        return ""
    name = prediction.offer.instance_type if prediction.offer is not None else "such a machine"
    return (
        f"Interruptions are in the figures of spot machines: {found.expected:.2g} expected on {name};"
        f" costgpu run --spot {recover_option(found)} goes on after each."
    )


def rate_words(prediction: Prediction, found: Interruptions) -> str:
    """``g5.xlarge is taken back about every 20 h ..., 0.5 times in this job; the next goes on after 2.5 min``."""
    rate, nodes = found.rate, prediction.candidate.nodes
    name = prediction.offer.instance_type if prediction.offer is not None else "such a machine"
    name = name if nodes == 1 else f"one of {nodes} {name}"
    if rate.percent_a_month:
        share = rate.percent_a_month.replace("<", "less than ").replace(">", "more than ")
        basis = f"assumed from {share} % a month: {rate.source}, {rate.as_of}"
    else:
        basis = f"assumed: nothing is published about it, {rate.source}"
    mean, often, seldom = (
        f"every {format_duration(3600 / (per_hour * nodes))}" if per_hour else "hardly ever"
        for per_hour in (rate.per_hour, rate.high_per_hour, rate.low_per_hour)
    )
    where = "job" if prediction.overhead_seconds > 0 else "part of a job"
    return (
        f"{name} is taken back about {mean} that it runs ({basis}; 80 % interval: {often} to {seldom}),"
        f" {found.expected:.2g} times in this {where}, and the next machine goes on after"
        f" {format_duration(found.restart_seconds)}, not counting a wait for a free one"
    )


def _best_words(found: Interruptions) -> tuple[str, str]:
    """``every 6 min (Young/Daly)``, and how long it takes to save each checkpoint."""
    every = f"every {format_duration(found.best_interval_seconds)} (Young/Daly)"
    return every, f"{format_duration(found.checkpoints.seconds_each)} each"


def _checkpoint_sentences(prediction: Prediction, found: Interruptions) -> list[str]:
    """Return how often it saves, how often it should, and what that would change."""
    best = at_best_interval(prediction)
    other = f"{format_duration(best.wall_seconds.value)} and {format_usd(best.cost_usd.value)}"
    advised, each = _best_words(found)
    saves = prediction.cost_usd.value - best.cost_usd.value > WORTH_SAYING * prediction.cost_usd.value
    if found.interval_seconds is not None:
        how = "measured" if found.checkpoints.measured else "not reached: inferred from its source"
        words = f"It saves a checkpoint every {format_duration(found.interval_seconds)} there ({each}, {how})"
        if found.best_interval_seconds >= prediction.run_seconds.value:
            return [f"{words}; the job is too short to need any."]
        return [f"{words}, and is taken to resume from it; best is {advised}{f': {other}' if saves else ''}."]
    if prediction.overhead_seconds <= 0:
        return [f"No checkpoint was seen: these figures are for one {advised}, {each} (assumed)."]
    lost = f"No checkpoint was seen, so {ALL_LOST}"
    if found.best_interval_seconds >= prediction.run_seconds.value or not saves:
        return [f"{lost}; the job is short enough for that."]
    return [f"{lost}. With a checkpoint {advised}, {each} (assumed), it would take {other}."]


def advice_words(
    as_written: Prediction, after: Prediction, *, infers: bool, timed: bool, whole: bool
) -> tuple[str, list[str]]:
    """Return the advice to take a spot machine, and what that asks of the script.

    Args:
        as_written: The script there, as it is.
        after: The script there, with checkpoints if it infers nothing and none was seen.
        infers: Whether it infers, and so has results instead of checkpoints.
        timed: Whether it was measured.
        whole: Whether the whole job is predicted.
    """
    found = as_written.interruptions
    action = "Spot" if after.interruptions is None else f"Spot with {recover_option(after.interruptions)}"
    if infers:
        first = f"Unless it keeps its results and goes on after them, {ALL_LOST}; that is in it."
        first = first if whole else "An interruption loses what it has in hand."
    elif found is not None and found.interval_seconds is not None:
        advised, each = _best_words(found)
        action += ", as the script saves checkpoints"
        how = "measured" if found.checkpoints.measured else "inferred"
        first = (
            f"It saves every {format_duration(found.interval_seconds)} there ({each}, {how}), which is what an"
            f" interruption loses at most, if the script resumes from them; best is {advised}."
        )
    else:
        action += f" and checkpoints ({'none was seen in what was measured' if timed else 'a must'})"
        if found is None:
            return action, []
        advised, each = _best_words(found)
        first = f"Counted is a checkpoint {advised}, {each} (assumed), and a script that resumes from it."
        if whole and as_written.infeasible:
            first += f" Without one {ALL_LOST}, and it would hardly come to its end."
        elif whole:
            wall, usd = format_duration(as_written.wall_seconds.value), format_usd(as_written.cost_usd.value)
            first += f" Without one {ALL_LOST}: {wall} and {usd} on average."
    if found is None:
        return action, []
    return action, [first, f"Interruptions are in it: {rate_words(after, after.interruptions or found)}."]
