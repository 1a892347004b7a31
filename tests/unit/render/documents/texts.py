"""Plans, receipts and lists of what the fake cloud has not: GPUs, this computer, long names, orphans, sweeps."""

import json
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from decimal import Decimal

from costgpu.errors import InstanceLost, ProviderError
from costgpu.models.instance import Identity, InstanceState, OrphanedResource
from costgpu.models.job import EndReason, JobPhase, JobSpec, JobStatus, Launcher
from costgpu.models.reap import Orphan, OrphanReason, ReapFindings
from costgpu.models.run import EndedBy, LaunchOption, RunState
from costgpu.models.storage import StorageNeed
from costgpu.providers.local import own_offer
from costgpu.render.document import document
from costgpu.render.text.reap import count_text, rate_text, reap_json, reap_text
from costgpu.render.text.receipt import receipt_text
from costgpu.render.text.run import detached_text, jobs_json, jobs_text, launched_json, plan_text, run_json
from costgpu.render.text.sweep import (
    end_text,
    live_rows,
    progress_text,
    results_text,
    results_value,
    sweep_plan_json,
    sweep_plan_text,
    trials_question,
)
from costgpu.sweep.metric import Mode
from costgpu.sweep.results import Results
from costgpu.sweep.space import parse_space
from tests.unit.render.documents.short_json import short
from tests.unit.render.runs import GPU, LAYERS, NOW, RUN, SPEC, UNTIL, closed, machine, option, plan, receipt, view
from tests.unit.render.sweeps import METRIC, SWEEP, TIME, results

OTHER = Identity(provider="gcp", account="team-a", principal="ada@example.com", source="gcloud")
SERVED = JobStatus(phase=JobPhase.FINISHED, exit_code=0, detail="1 process was ended: serve")
LEFT = closed(
    reason=EndReason.DEADLINE,
    ended_by=EndedBy.WATCHDOG,
    requested_at=None,
    provider_reason="",
    left_behind=("security group sg-1", "not asked: no answer"),
    layers=(),
)
CREATE_CALL = view().create_call
assert CREATE_CALL is not None
RUNS = [
    view(),
    view(run_id="b", name="a-job-with-a-name-that-is-long", state=RunState.PROVISIONING, instance=None),
    view(run_id="c", state=RunState.INTENT, instance=None, create_call=None),
    closed(reason=EndReason.HOST_KEY_MISMATCH),
    view(run_id="e", create_call=replace(CREATE_CALL, lease_until=NOW - timedelta(minutes=5))),
]
TAGGED = [
    machine("i-9", InstanceState.RUNNING, UNTIL),
    machine("i-8", InstanceState.STOPPED, None),
]


def findings(*, done: bool = False) -> ReapFindings:
    """Return what `costgpu reap` has found, and how ending some of it has failed."""
    past = machine("i-1", InstanceState.RUNNING, NOW - timedelta(hours=3))
    found = ReapFindings(
        orphans=[
            Orphan(instance=past, why=OrphanReason.PAST_LEASE, usd_per_hour=Decimal("32.79")),
            Orphan(
                instance=machine("i-2", InstanceState.STOPPED, None, ""),
                why=OrphanReason.NO_LEASE,
                usd_per_hour=Decimal("0.010959"),
            ),
        ],
        leftovers=[
            OrphanedResource(
                provider="aws", region="eu-west-1", kind="disk", resource_id="vol-1", run_id=RUN, usd_per_hour=0.011
            ),
            OrphanedResource(
                provider="aws", region="eu-west-1", kind="security group", resource_id="sg-1", run_id=RUN, owner="bob"
            ),
        ],
        kept=[machine("i-3", InstanceState.RUNNING, NOW + timedelta(hours=2))],
        unreachable={"aws/ap-south-1": "it does not answer"},
    )
    if done:
        found.ended, found.removed = [past.ref], [found.leftovers[0]]
        found.failed = {"i-2": ProviderError("i-2 is protected.")}
    return found


FINE_TUNE = StorageNeed(
    download_bytes=16_060_000_000, download_seconds=160.6, checkpoint_bytes=48_200_000_000, saves=2, kept=2
)


def on_disk(gib: int) -> LaunchOption:
    """Return a place with a root disk of so many GiB."""
    return replace(option(), disk_gib=gib)


def planned(**changes: object) -> str:
    """Return a plan whose job has these changes."""
    return plan_text(plan(spec=replace(SPEC, **changes)), NOW)  # type: ignore[arg-type]


def here(price: str) -> str:
    """Return a plan for this computer, with as many processors as others have."""
    offer = replace(own_offer(Decimal(price), NOW.date()), vcpus=8, memory_gib=31.2)
    shown = plan(
        spec=JobSpec(name="train", argv=("train.py",), workdir="/w"),
        options=(option(offer, Decimal(2) if float(price) else None),),
        prediction=None,
        verdict="",
        notes=(),
        left_out={},
        files=1,
        layers=LAYERS[:1],
        identity=Identity(provider="local", account="laptop", principal="ada", source="this machine"),
    )
    return plan_text(shown, NOW)


def unknown_price() -> ReapFindings:
    """Return what `costgpu reap` has found where a price is not known."""
    found = findings()
    return replace(found, orphans=[replace(found.orphans[0], usd_per_hour=None), found.orphans[1]])


def elsewhere() -> str:
    """Return a plan that goes on in other places, on larger machines and later."""
    sizes = [replace(option(replace(GPU, instance_type=f"g6e.{number}xlarge")), size=number) for number in (1, 1, 2)]
    spec = replace(SPEC, retry_until_up=True, search_seconds=21600.0, on_oom_next_size=True)
    return plan_text(plan(spec=spec, options=(*plan().options, *sizes), price_as_of=NOW.date()), NOW)


def drawn() -> str:
    """Return a plan of random draws whose length is not known."""
    axes = ["dropout=0.0..0.5", "width=1..9", "wd=1e-6..1e-2:log", "act=a|b"]
    sweep = replace(SWEEP, space=parse_space(["lr=1,2"], axes, 5, 3), gpus_per_trial=0.5)
    return sweep_plan_text(plan(), NOW, sweep, None, ["train.py"], "costgpu-runs/x")


def counts() -> str:
    """Return how much `costgpu reap` may have found."""
    found = findings()
    numbers = ((1, 0), (2, 1), (0, 2), (1, 2))
    parts = [ReapFindings(orphans=found.orphans[:few], leftovers=found.leftovers[:more]) for few, more in numbers]
    parts.append(ReapFindings(leftovers=found.leftovers[1:]))
    return "\n".join(f"{count_text(part)}: {rate_text(part)}" for part in parts)


def while_it_runs() -> str:
    """Return what is told of a sweep on the way."""
    found = results()
    live = [*live_rows(found, "val_loss", 10), "", *live_rows(found, "val_loss", 3)]
    ends = [end_text(found.trials[number], found, "val_loss") for number in (0, 2)]
    questions = [trials_question(plan(), 10_000), trials_question(plan(prediction=None), 300)]
    return "\n".join([progress_text(found, "val_loss"), *live, "", *ends, *questions])


TEXTS: dict[str, Callable[[], str]] = {
    "plan": planned,
    "plan for two clouds": lambda: plan_text(plan(others=(OTHER,)), NOW),
    "plan for this computer": lambda: here("0"),
    "plan for this computer at a price": lambda: here("0.5"),
    "plan of a fine-tune": lambda: plan_text(plan(storage=FINE_TUNE, options=(on_disk(210),)), NOW),
    "plan of a fine-tune that keeps more than the disk holds": lambda: plan_text(
        plan(storage=replace(FINE_TUNE, saves=40, kept=5), options=(on_disk(360),)), NOW
    ),
    "plan of a fine-tune on a small disk": lambda: plan_text(plan(storage=FINE_TUNE, options=(on_disk(60),)), NOW),
    "plan of a cluster": lambda: planned(launcher=Launcher.RAY, nodes=3),
    "plan of a cluster of one": lambda: planned(launcher=Launcher.RAY),
    "plan of a machine that stays": lambda: planned(auto_shutdown=False),
    "plan that goes on elsewhere": elsewhere,
    "plan that needs more memory than there is": lambda: planned(on_oom_next_size=True),
    "receipt of what was left running": lambda: receipt_text(receipt(), replace(closed(), status=SERVED)),
    "receipt of what was cancelled": lambda: receipt_text(
        receipt(reason=EndReason.CANCELLED), replace(closed(), status=SERVED)
    ),
    "receipt of what was left behind": lambda: receipt_text(LEFT.receipt or receipt(), replace(LEFT, status=None)),
    "runs": lambda: jobs_text(RUNS, TAGGED, NOW),
    "no runs": lambda: jobs_text([], [], NOW),
    "left, with a bucket": lambda: detached_text(view()),
    "left, without a bucket": lambda: detached_text(view(spec=replace(SPEC, bucket=""))),
    "left, with a machine that stays": lambda: detached_text(view(spec=replace(SPEC, auto_shutdown=False))),
    "found by reap": lambda: reap_text(findings(), NOW, done=False),
    "found by reap, at a price that is not known": lambda: reap_text(unknown_price(), NOW, done=False),
    "counted by reap": counts,
    "nothing found by reap": lambda: reap_text(ReapFindings(kept=findings().kept), NOW, done=True),
    "ended by reap": lambda: reap_text(findings(done=True), NOW, done=True),
    "plan of a sweep": lambda: sweep_plan_text(plan(), NOW, SWEEP, TIME, ["train.py", "--fast"], "costgpu-runs/x"),
    "plan of a sweep of random draws": drawn,
    "sweep on the way": while_it_runs,
    "results of a sweep": lambda: results_text(results(), "val_loss", "costgpu-runs/x"),
    "results of a sweep without any": lambda: results_text(Results(1, Mode.MIN), "val_loss", None),
    "reap as JSON": lambda: reap_json(findings(done=True), NOW),
    "reap at a price that is not known as JSON": lambda: reap_json(unknown_price(), NOW),
    "plan of a sweep as JSON": lambda: sweep_plan_json(plan(), NOW, SWEEP, TIME, "costgpu-runs/x"),
    "results of a sweep as JSON": lambda: document(
        "costgpu.sweep", sweep=results_value(results(), METRIC, "costgpu-runs/x")
    ),
    "run as JSON": lambda: run_json(view()),
    "runs as JSON": lambda: jobs_json(RUNS, TAGGED, NOW),
    "failure as JSON": lambda: launched_json(plan(), [closed()], InstanceLost("gone", hint="again"), NOW),
}


def texts() -> str:
    """Return all of them; JSON documents in few lines."""
    shown, seen = [], dict[str, str]()
    for name, show in TEXTS.items():
        text = show()
        shown.append(f"== {name}\n{short(json.loads(text), seen, name) if name.endswith('JSON') else text}")
    return "\n\n".join(shown) + "\n"
