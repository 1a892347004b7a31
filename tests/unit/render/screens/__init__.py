"""Answers of `estimate` made without measuring, and the first screens of eight of them; `python -m` this rewrites these.

It is `python -m tests.unit.render.screens`.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import date
from pathlib import Path
from typing import Any

from costgpu.estimator.advice.advise import advise
from costgpu.estimator.doubts import doubts_of
from costgpu.estimator.inference.notes import inference_notes
from costgpu.estimator.multi_gpu.words import rows_by_gpus
from costgpu.estimator.predict import predict
from costgpu.estimator.prepared import prepare
from costgpu.estimator.scope import scope_of
from costgpu.estimator.service import as_served, serve
from costgpu.estimator.verdict import Preferences, decide
from costgpu.models.prediction import Advice, Candidate, Objective, Prediction, Service, Verdict
from costgpu.models.workload import Extra, ExtraKind, Rhythm, Total, TotalKind, WorkloadProfile
from costgpu.render.text.advice import advice_block
from costgpu.render.text.blocks import Block
from costgpu.render.text.estimate import verdict_text
from costgpu.render.text.several_gpus import scaling_table
from tests.unit.estimator import builders, inferring
from tests.unit.estimator.advisable import MACHINE, checkpoint, gpu, host, loading, phase, product, profile
from tests.unit.estimator.test_several_gpus import place, script

TODAY = date(2026, 11, 21)
FOLDER = Path(__file__).parent
ANY = Preferences()
HOSTS = (host(0.2), host(0.4, vcpus=16), host(0.8, vcpus=32), host(1.6, vcpus=64))
SPOTS = (gpu("T4", 0.2, spot=True), gpu("L4", 0.3, spot=True), host(0.2))
PLACES = (
    *HOSTS,
    gpu("T4", 0.5),
    gpu("L4", 0.8),
    gpu("A10G", 1.0),
    gpu("L40S", 1.9),
    gpu("A100", 3.7, provider="gcp", region="us-central1"),
    gpu("H100", 6.9),
    gpu("H100", 55.0, count=8, vcpus=192),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """Everything that an answer is told from."""

    profile: WorkloadProfile
    verdict: Verdict
    service: Service | None
    advice: tuple[Advice, ...]
    by_gpus: tuple[Prediction, ...]

    def text(self, *besides: Block, explain: bool = False, log: str | None = None) -> str:
        blocks = [
            Block(full=scaling_table(self.by_gpus, self.verdict.recommended)),
            advice_block(self.advice, unit=self.verdict.unit),
            *besides,
        ]
        return verdict_text(
            self.verdict, self.profile, TODAY, explain=explain, log=log, besides=blocks, service=self.service
        )


def answer(
    of: WorkloadProfile,
    places: Sequence[Candidate] = PLACES,
    wanted: Preferences = ANY,
    *,
    rate: float | None = None,
) -> Answer:
    """Decide as the workflow does, with other offers."""
    scope = scope_of(of, per_items=rate is not None)
    workload = prepare(of, scope, year=2026)
    here, offers = predict(workload, Candidate(offer=None)), [predict(workload, place) for place in places]
    verdict = decide(scope, here, offers, wanted, inference_notes(of), of.machine.disturbed_share)
    service = None if rate is None else serve(workload, rate, here, offers, wanted.objective, wanted.instance_types)
    verdict = verdict if service is None else as_served(verdict, service)
    return Answer(
        profile=of,
        verdict=replace(verdict, doubts=doubts_of(verdict, of, scope, wanted, TODAY)),
        service=service,
        advice=() if service is not None else advise(workload, verdict, offers, wanted),
        by_gpus=rows_by_gpus(offers, verdict.recommended),
    )


def training(size: int = 2048, count: int = 20, **facts: Any) -> WorkloadProfile:
    """A network of square products that trains for ten epochs."""
    measured = {name: facts.pop(name) for name in ("machine", "notes") if name in facts}
    return profile(phase(product(size, count), **facts), **measured)


def total(kind: TotalKind, steps: float | None, per_epoch: float | None = None, **facts: Any) -> Total:
    how = "30 (train.py:74) × 391 (train.py:76)"
    return Total(kind=kind, steps=steps, steps_per_epoch=per_epoch, how=how, **facts)


VALIDATION = Extra(kind=ExtraKind.VALIDATION, seconds_each=9.0, rhythm=Rhythm.EPOCH, every=1.0)
KNOWN, MANY = total(TotalKind.EXACT, 100_000, 10_000), total(TotalKind.EXACT, 10_000_000, 100_000)
AT_MOST = total(TotalKind.UPPER_BOUND, 10_000_000, 100_000)
CLOSE = (*HOSTS, *PLACES[5:])


def tiny(seconds: float, of: Total, share: float) -> WorkloadProfile:
    """Many small steps, which keep no GPU busy, on a machine from which other programs took a share of the time."""
    busy, step = replace(MACHINE, disturbed_share=share), builders.step_times(seconds)
    note = f"Other programs took {share:.0%} of the script's time on this machine: that is taken off."
    return training(16, 10, total=of, step=step, machine=busy, calls_per_step=400, notes=[note])


SEVERAL = (host(0.4), place(1), place(4), place(8), place(8, 2))
EXAMPLES: dict[str, Callable[[], Answer]] = {
    "gpu": lambda: answer(
        training(4096, 40, total=KNOWN, data=loading(0.2, 2, wait=0.3), extras=[VALIDATION, checkpoint()])
    ),
    "cpu": lambda: answer(tiny(0.001, AT_MOST, 0.06), CLOSE),
    "too_close": lambda: answer(tiny(0.002, MANY, 0.69), CLOSE),
    "unknown_total": lambda: answer(training(4096, 20, total=total(TotalKind.UNKNOWN, None, 391))),
    "inference": lambda: answer(inferring.profile(inferring.chat(4, 50_000), script="chat.py")),
    "service": lambda: answer(inferring.profile(inferring.scoring(8, None)), rate=30.0),
    "several_gpus": lambda: answer(script(), SEVERAL, Preferences(objective=Objective.FASTEST)),
    "timed": lambda: answer(training(1024, 50, total=total(TotalKind.TIMED, None, seconds=7200.0))),
}


def rewrite() -> None:
    """Write the first screens as they are now."""
    for name, make in EXAMPLES.items():
        (FOLDER / f"{name}.txt").write_text(f"{make().text(log=LOG)}\n")


LOG = "/home/ada/.cache/costgpu/measurements/20261121-100000/output.log"
