"""Answers of `estimate` made without measuring: their first screens, explanations, pages and documents; other pages.

`python -m tests.unit.render.screens` rewrites the files.
"""

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any

from costgpu.estimator.advice.advise import advise
from costgpu.estimator.buy_vs_rent import OwnershipTerms, ownership
from costgpu.estimator.cost import energy_kwh
from costgpu.estimator.doubts import doubts_of
from costgpu.estimator.gpu_fits import gpu_fits
from costgpu.estimator.multi_gpu.words import rows_by_gpus
from costgpu.estimator.predict import predict
from costgpu.estimator.prepared import prepare
from costgpu.estimator.scope import scope_of
from costgpu.estimator.service import as_served, serve
from costgpu.estimator.unit_notes import unit_notes
from costgpu.estimator.verdict import Preferences, decide
from costgpu.ledger.costs.periods import Every
from costgpu.ledger.records.budget_rules import Budget
from costgpu.models.estimate import Estimate
from costgpu.models.prediction import Candidate, Objective
from costgpu.models.workload import Extra, ExtraKind, Rhythm, Total, TotalKind, WorkloadProfile
from costgpu.pricing.hardware import accelerators
from costgpu.render.estimate.documents import estimate_json
from costgpu.render.estimate.first_screen import estimate_text
from costgpu.render.estimate.sections import estimate_report
from costgpu.render.html.ledger_page import ledger_report
from costgpu.render.html.page import report_html
from costgpu.render.html.sweep_page import sweep_report
from costgpu.render.report import Report
from costgpu.version import __version__
from tests.unit.estimator import builders, inferring
from tests.unit.estimator.advisable import MACHINE, checkpoint, gpu, host, loading, phase, product, profile
from tests.unit.estimator.test_several_gpus import place, script
from tests.unit.render import sweeps
from tests.unit.render.ledgers import NOW, RUNS, ledger_with, report_with

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


def answer(
    of: WorkloadProfile,
    places: Sequence[Candidate] = PLACES,
    wanted: Preferences = ANY,
    *,
    rate: float | None = None,
) -> Estimate:
    """Decide as the workflow does, with other offers."""
    scope = scope_of(of, per_items=rate is not None)
    workload = prepare(of, scope, year=2026)
    here, offers = predict(workload, Candidate(offer=None)), [predict(workload, place) for place in places]
    verdict = decide(scope, here, offers, wanted, unit_notes(of), of.machine.disturbed_share)
    service = None if rate is None else serve(workload, rate, here, offers, wanted.objective, wanted.instance_types)
    verdict = verdict if service is None else as_served(verdict, service)
    return Estimate(
        profile=of,
        today=TODAY,
        verdict=replace(verdict, doubts=doubts_of(verdict, of, scope, wanted, TODAY)),
        service=service,
        advice=() if service is not None else advise(workload, verdict, offers, wanted),
        by_gpus=rows_by_gpus(offers, verdict.recommended),
        fits=gpu_fits(workload, places, verdict.recommended),
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
    return training(16, 14, total=of, step=step, machine=busy, calls_per_step=400, notes=[note])


def without_weights() -> WorkloadProfile:
    """LoRA on a model that this machine has no room for."""
    measured = training(4096, 40, total=KNOWN, step=builders.step_times(120.0, count=0))
    return replace(measured, memory=builders.lora_memory(), without_weights=True, weights_bytes=16 * 10**9)


def everything() -> Estimate:
    """Return an answer with all that an option can ask for."""
    loops = ["train.py:74 for epoch in range(30): 30", "train.py:76 for batch in loader: 391"]
    of = training(4096, 40, total=replace(KNOWN, loops=loops), gpu_reason="no GPU was there.")
    found = answer(of)
    work = prepare(of, scope_of(of), year=2026)
    terms = OwnershipTerms(price_usd=Decimal(699), power_usd_per_kwh=0.3, hours_per_year=500)
    shown = (found.verdict.here, *found.verdict.table)
    return replace(
        found,
        own=ownership(work, accelerators()["RTX 3090"], terms, found.verdict),
        energy=tuple((one, energy_kwh(one, of.machine)) for one in shown),
        fits_colab=True,
        looked_up=("stacked-lstm",),
    )


SEVERAL = (host(0.4), place(1), place(4), place(8), place(8, 2))
EXAMPLES: dict[str, Callable[[], Estimate]] = {
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
    "everything": everything,
    "nowhere": lambda: answer(training(4096, 40), (), Preferences(deadline_seconds=1.0)),
    "spot": lambda: answer(training(4096, 40), SPOTS),
    "without_weights": lambda: answer(without_weights()),
    "trains_and_infers": lambda: answer(
        profile(phase(product(2048, 20), label="score.py:3"), inferring.scoring(), script="score.py")
    ),
}


def page(of: Estimate) -> str:
    """Return the page of an answer."""
    return report_html(estimate_report(of))


def without_style(html: str) -> str:
    """Return a page without its style sheet and the version of costgpu."""
    return re.sub("<style>.*?</style>", "", html, flags=re.DOTALL).replace(f"costgpu {__version__}", "costgpu")


def ledger() -> Report:
    """Return the report of a small ledger with two budgets."""
    budgets = [Budget(name=name, amount_usd=Decimal(5), every=Every.MONTHLY, provider=name) for name in ("", "aws")]
    budgets = [replace(budget, name=budget.name or "team") for budget in budgets]
    found = report_with(ledger_with(*RUNS), budgets)
    return ledger_report(found, place="/x/ledger.sqlite", all_time=found.summary.total.cost_usd)


PAGES: dict[str, Callable[[], Report]] = {
    "ledger": ledger,
    "empty_ledger": lambda: ledger_report(report_with(ledger_with()), place="/x/ledger.sqlite", all_time=Decimal(0)),
    "sweep": lambda: sweep_report(sweeps.results(), sweeps.METRIC, title="Sweep of train.py", at=NOW),
}


def shown(of: Estimate) -> dict[str, str]:
    """Return the texts of an answer by the endings of their files: of the page without its style sheet, of the document
    without the workload but for its units."""
    of = replace(of, log=LOG)
    told = json.loads(estimate_json(of), parse_float=lambda digits: float(f"{float(digits):.5g}"))
    phases = told["workload"]["phases"]
    told["workload"] = {"phases": [{name: phase[name] for name in ("unit", "inference")} for phase in phases]}
    return {
        "txt": f"{estimate_text(of)}\n",
        "explained.txt": f"{estimate_text(of, explain=True)}\n",
        "html": without_style(page(of)),
        "json": f"{json.dumps(told, indent=1)}\n",
    }


def rewrite() -> None:
    """Write all of them as they are now."""
    for name, make in EXAMPLES.items():
        for ending, text in shown(make()).items():
            (FOLDER / f"{name}.{ending}").write_text(text)
    for name, report in PAGES.items():
        (FOLDER / f"{name}.html").write_text(without_style(report_html(report())))


LOG = "/home/ada/.cache/costgpu/measurements/20261121-100000/output.log"
