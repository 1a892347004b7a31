"""What the advice is worth: held against public measurements, and carried out on the example scripts.

    python -m benchmarks.advice rows ROWS.csv       # the error of a predicted saving, on pairs of public measurements
    python -m benchmarks.advice scripts [SECONDS [SCRIPT]]  # carried out on copies of examples/*.py, measured again
    python -m benchmarks.advice workers [RUNS [SCRIPT]]     # DataLoader workers here: predicted and really timed
    python -m benchmarks.advice toll                # what a batch from a worker, and a worker's start, cost here

`rows` is where `PAIRED_SIGMA` comes from: both sides of a pair are the same GPU and model, so that what both
predictions have wrong cancels, as it does in advice. ROWS.csv is that of `benchmarks.accuracy`. `scripts` compares the
advice's saving with what the prediction says of the script after the change (each a measurement of its own); the
change is made to a copy, by the advice's own words. `workers` runs the scripts without the probe, before and after in
turn, so that a busy machine slows both; OMP_NUM_THREADS says how many cores training takes.
"""

from __future__ import annotations

import math
import os
import re
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path

import torch
from torch.utils.data import DataLoader

from benchmarks import accuracy
from benchmarks.rows import PRECISIONS, Row, load
from costgpu.estimator.advice.advise import advise
from costgpu.estimator.advice.changes import with_workers
from costgpu.estimator.gpu import Execution
from costgpu.estimator.predict import predict
from costgpu.estimator.prepared import Workload, prepare
from costgpu.estimator.roofline import TRAINING, gpu_terms
from costgpu.estimator.scope import scope_of
from costgpu.estimator.verdict import Preferences, decide
from costgpu.measure import Interpreter, Request, measure_script
from costgpu.models.prediction import Advice, AdviceKind, Candidate, Verdict
from costgpu.models.workload import WorkloadProfile
from costgpu.workflows.offers import candidates
from costgpu.workflows.reporter import LogReporter

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"
YEAR = 2026
LONGER = 50  # the examples are jobs of minutes: the advice is for so many times as many steps
TRAIN_LOSS = "loss = F.cross_entropy(model(images.to(device)), labels.to(device))"
MICRO_BATCH = "(model(*batch(batch_size)) / accumulation).backward()"
NUMBER = re.compile(r"(\d+) (?:DataLoader workers?|times as large)")


def number(advice: Advice) -> int:
    """Return how many workers, or how many times as large: as the line says it."""
    found = NUMBER.search(advice.action)
    assert found is not None, advice.action
    return int(found.group(1))


def half(advice: Advice) -> str:
    return "torch.bfloat16" if "bfloat16" in advice.action else "torch.float16"


def train_half(source: str, advice: Advice) -> str:
    return source.replace(TRAIN_LOSS, f'with torch.autocast("cuda", {half(advice)}):\n                {TRAIN_LOSS}')


def train_workers(source: str, advice: Advice) -> str:
    return source.replace('"--workers", type=int, default=2', f'"--workers", type=int, default={number(advice)}')


def train_together(source: str, advice: Advice) -> str:
    return train_half(train_workers(source, advice), advice)


def transformer_half(source: str, advice: Advice) -> str:
    region = (
        f'with torch.autocast("cuda", {half(advice)}):\n            loss = model(*batch(batch_size)) / accumulation'
    )
    return source.replace(MICRO_BATCH, f"{region}\n        loss.backward()")


def transformer_accumulation(source: str, advice: Advice) -> str:
    factor = number(advice)
    return source.replace("eval_interval = 12, 4, ", f"eval_interval = {12 * factor}, {4 // factor}, ")


def lstm_batch(source: str, advice: Advice) -> str:
    return source.replace(
        "batch_size, bptt = 5000, 256, 20, 35", f"batch_size, bptt = 5000, 256, {20 * number(advice)}, 35"
    )


def mlp_workers(source: str, advice: Advice) -> str:
    return source.replace("shuffle=True)", f"shuffle=True, num_workers={number(advice)})")


CARRIED_OUT: list[tuple[str, AdviceKind, Callable[[str, Advice], str]]] = [
    ("transformer.py", AdviceKind.MIXED_PRECISION, transformer_half),
    ("transformer.py", AdviceKind.FEWER_ACCUMULATIONS, transformer_accumulation),
    ("train.py", AdviceKind.WORKERS, train_workers),
    ("train.py", AdviceKind.MIXED_PRECISION, train_half),
    ("train.py", AdviceKind.TOGETHER, train_together),
    ("lstm.py", AdviceKind.LARGER_BATCH, lstm_batch),
    ("mlp.py", AdviceKind.WORKERS, mlp_workers),
]


def profile_of(script: Path, seconds: float, cache: Path) -> WorkloadProfile:
    """Measures a script with this interpreter."""
    request = Request(
        script=script,
        module=None,
        arguments=[],
        workdir=script.parent,
        measure_for_seconds=seconds,
        start_limit_seconds=400,
    )
    return measure_script(request, Interpreter(sys.executable, "3", "benchmark"), cache, lambda *_: None)[0]


def workload_of(profile: WorkloadProfile, longer: float = LONGER) -> Workload:
    steps = profile.phases[-1].total.steps
    assert steps, profile.phases[-1].total
    return prepare(profile, scope_of(profile, total_steps=longer * steps), year=YEAR)


def advice_for(workload: Workload) -> tuple[Verdict, tuple[Advice, ...]]:
    """Return the verdict and the advice on it, over all on-demand offers."""
    offers = [predict(workload, place) for place in candidates(None, (), spot=False, reporter=LogReporter())]
    here = predict(workload, Candidate(offer=None))
    verdict = decide(workload.scope, here, offers, Preferences(), ())
    return verdict, advise(workload, verdict, offers, Preferences())


def scripts(seconds: float, only: str = "") -> None:
    """Carries the advice out on copies of the examples and compares what was said with what is then said."""
    print(f"jobs {LONGER} times as long as the examples; every script measured for {seconds:g} s")
    print(f"{'script':15}{'advice':21}{'$ before':>9}{'$ said':>8}{'$ then':>8}{'saving said':>13}{'then':>6}  where")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for script in dict.fromkeys(script for script, _, _ in CARRIED_OUT if only in script):
            copy = folder / script
            copy.write_text((EXAMPLES / script).read_text())
            profile = profile_of(copy, seconds, folder)
            verdict, given = advice_for(workload_of(profile))
            for _, kind, change in (row for row in CARRIED_OUT if row[0] == script):
                advice = next((one for one in given if one.kind is kind), None)
                if advice is None or advice.before is None or advice.after is None:
                    print(f"{script:15}{kind.value:21}no such advice ({verdict.sentence[:40]})", flush=True)
                    continue
                changed = copy.with_name(f"{kind.value}_{script}")
                changed.write_text(change(copy.read_text(), advice))
                assert changed.read_text() != copy.read_text(), "the change found nothing to change"
                again = replace(profile_of(changed, seconds, folder), setup_seconds=profile.setup_seconds)
                then = predict(workload_of(again), advice.after.candidate)
                before, after = advice.before.cost_usd.value, advice.after.cost_usd.value
                offer = advice.after.candidate.offer
                place = offer.instance_type if offer is not None else "here"
                print(
                    f"{script:15}{kind.value:21}{before:9.2f}{after:8.2f}{then.cost_usd.value:8.2f}"
                    f"{1 - after / before:12.0%}{1 - then.cost_usd.value / before:7.0%}  {place}",
                    flush=True,
                )


@dataclass(frozen=True)
class Loading:
    """A script that waits for its data, and how its number of workers is written."""

    script: str
    edits: tuple[tuple[str, str], ...]
    workers: Callable[[int], tuple[str, str]]
    epoch_steps: int


LOADINGS = [
    Loading("mlp.py", (("200_000", "30_000"),), lambda n: ("shuffle=True)", f"shuffle=True, num_workers={n})"), 59),
    Loading(
        "train.py",
        (
            ("evaluate(model, held_out, device)", "0.0"),
            ("default=50_000", "default=2_000"),
            ("default=64)", "default=4)"),
            ("torch.rand(3, 40, 40)", "torch.rand(3, 240, 240)"),  # as much work as to decode a photograph
        ),
        lambda n: ('"--workers", type=int, default=2', f'"--workers", type=int, default={n}'),
        16,
    ),
]
TIMED_EPOCHS = 4


def workers(runs: int, only: str = "") -> None:
    """Predicted and timed epochs here, without workers and with some."""
    print(f"{'script':10}{'workers':>8}{'said':>7}{'timed':>7}   medians of {runs} pairs: step before -> after, ms")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for loading in (one for one in LOADINGS if only in one.script):
            source = (EXAMPLES / loading.script).read_text()
            for old, new in loading.edits:
                assert old in source, old
                source = source.replace(old, new)
            old, new = loading.workers(0)
            base = folder / loading.script
            base.write_text(source.replace(old, new))
            for count in (1, 2):
                many = folder / f"with_{count}_{loading.script}"
                many.write_text(source.replace(old, loading.workers(count)[1]))
                ratios, pairs, said = [], [], []
                for _ in range(runs):
                    workload = workload_of(profile_of(base, 4, folder), 1)
                    here = Candidate(offer=None)
                    now, then = predict(workload, here), predict(with_workers(workload, count), here)
                    said.append(1 - then.step_seconds / now.step_seconds)
                    pair = (epoch_seconds(base), epoch_seconds(many))
                    pairs.append([1e3 * one / loading.epoch_steps for one in pair])
                    ratios.append(1 - pair[1] / pair[0])
                before, after = (statistics.median(one) for one in zip(*pairs, strict=True))
                print(
                    f"{loading.script:10}{count:8}{statistics.median(said):7.0%}{statistics.median(ratios):7.0%}"
                    f"   {before:.1f} -> {after:.1f}",
                    flush=True,
                )


def epoch_seconds(script: Path) -> float:
    """Median time from one line of output to the next of a script that prints one line an epoch, first epoch apart."""
    child = subprocess.Popen(
        [sys.executable, "-u", script], cwd=script.parent, stdout=subprocess.PIPE, env=os.environ, text=True
    )
    assert child.stdout is not None
    times = []
    for line in child.stdout:
        if line.startswith("epoch"):
            times.append(time.perf_counter())
        if len(times) > TIMED_EPOCHS:
            break
    child.kill()
    child.wait()
    return statistics.median(b - a for a, b in pairwise(times))


def toll() -> None:
    """CPU seconds of a batch on its way from a worker, and of a worker's start, which a busy machine does not change."""
    data = [torch.zeros(1)]
    for size in (1 << 10, 1 << 17, 3 << 19):
        data = [torch.zeros(size // 4) for _ in range(600)]
        each = []
        for count in (0, 1):
            batches = iter(DataLoader(data, batch_size=None, num_workers=count))
            for _ in range(50):
                next(batches)
            begin = time.process_time()
            for _ in range(500):
                next(batches)
            each.append((time.process_time() - begin) / 500)
            del batches
        print(f"a batch of {size} bytes from a worker: {1e3 * (each[1] - each[0]):.2f} ms more in the main process")
    for count in (1, 2, 8):
        begins = []
        for _ in range(5):
            begin, children = time.process_time(), _children()
            batches = iter(DataLoader(data[:count], batch_size=None, num_workers=count))
            list(batches)
            del batches
            begins.append((time.process_time() - begin + _children() - children) / count)
        print(f"a worker among {count}: {1e3 * statistics.median(begins):.0f} ms of CPU from fork to exit")


def _children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def rows(path: Path) -> None:
    """Error of the predicted saving of mixed precision and of another batch, on one GPU and one model."""
    known: dict[tuple[str, str, str, str], list[Row]] = {}
    for row in load([path]):
        known.setdefault((row.gpu, row.model, row.phase, row.precision), []).append(row)
    halves, batches = [], []
    for (gpu, model, phase, precision), ones in known.items():
        for one in ones:
            for other in known.get((gpu, model, phase, "amp"), []) if precision == "tf32" else []:
                said = accuracy.terms(one).seconds / one.batch / (accuracy.terms(other).seconds / other.batch)
                timed = one.seconds / one.batch / (other.seconds / other.batch)
                halves.append(math.log(said / timed))
            for other in ones:
                if other.batch > one.batch:
                    factor = other.batch / one.batch
                    work = one.work.scaled(size=factor, same_bytes=0.0)
                    more = gpu_terms(
                        work, one.spec, Execution(PRECISIONS[precision]), TRAINING, optimizers=one.optimizers
                    ).seconds
                    said = factor * accuracy.terms(one).seconds / more
                    batches.append(math.log(said / (factor * one.seconds / other.seconds)))
    print("log(predicted speed-up / measured speed-up) of one change on one GPU and model")
    print(f"{'':34}{'pairs':>6}{'median':>8}{'|median|':>9}{'sigma':>7}{'p10':>8}{'p90':>8}")
    for words, errors in (("fp32 or TF32 to mixed precision", halves), ("a larger batch, per sample", batches)):
        if errors:
            ordered = sorted(errors)
            middle = statistics.median(map(abs, errors))
            print(
                f"{words:34}{len(errors):6}{statistics.median(errors):+8.3f}{middle:9.3f}{statistics.pstdev(errors):7.3f}"
                f"{ordered[len(errors) // 10]:+8.3f}{ordered[len(errors) * 9 // 10]:+8.3f}"
            )


def main(words: list[str]) -> None:
    if words[:1] == ["rows"] and len(words) == 2:
        rows(Path(words[1]))
    elif words[:1] == ["scripts"]:
        scripts(float(words[1]) if len(words) > 1 else 10.0, words[2] if len(words) > 2 else "")
    elif words[:1] == ["workers"]:
        workers(int(words[1]) if len(words) > 1 else 3, words[2] if len(words) > 2 else "")
    elif words == ["toll"]:
        toll()
    else:
        sys.exit(__doc__)


if __name__ == "__main__":
    main(sys.argv[1:])
