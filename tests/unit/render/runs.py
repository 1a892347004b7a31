"""Plans, runs, receipts and machines to show, and what they look like at 80 columns."""

from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal

from costgpu.job.plan import Limits, lease_for
from costgpu.models.instance import Identity, Instance, InstanceRef, InstanceState, Safeguard
from costgpu.models.job import EndReason, JobPhase, JobSpec, JobStatus
from costgpu.models.offer import Offer
from costgpu.models.prediction import Candidate, Prediction, Provenance, Range
from costgpu.models.run import CreateCall, EndedBy, LaunchOption, Plan, Receipt, RunState, RunView
from tests.unit.estimator.builders import offer

NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
UNTIL = NOW + timedelta(hours=2)
RUN = "k3v9x2m7q1ab"
GPU = offer(
    "0.4567",
    gpu="A10G",
    gpu_memory_gib=24.0,
    spot=True,
    instance_type="g5.xlarge",
    family="g5",
    vcpus=4,
    memory_gib=16.0,
    price_as_of=date(2026, 2, 27),
)
SPEC = JobSpec(
    name="train-resnet",
    argv=("train.py", "--epochs", "10"),
    workdir="/home/ada/projects/vision",
    setup="pip install -r requirements.txt",
    env_names=("HF_TOKEN", "WANDB_API_KEY"),
    outputs=("out/", "*.pt"),
    max_cost_usd=Decimal(2),
    bucket="s3://ada/runs",
)
LAYERS = (
    Safeguard(name="create call", armed=True, detail="powering off terminates it", deadline=UNTIL),
    Safeguard(name="provider schedule", armed=False, detail="no role for EventBridge Scheduler is configured"),
    Safeguard(
        name="watchdog",
        armed=True,
        deadline=UNTIL,
        detail="armed by the boot script as its first action, kept on disk, armed again at every boot",
    ),
)


def option(place: Offer = GPU, cost: Decimal | None = Decimal(2)) -> LaunchOption:
    lease = lease_for(place, Limits(max_cost_usd=cost), on_demand_usd_per_hour=Decimal("1.006"))
    return LaunchOption(offer=place, lease=lease, disk_gib=100, extras_usd_per_hour=Decimal("0.016"))


def prediction() -> Prediction:
    wall = Range(value=1800.0, low=1500.0, high=2100.0)
    return Prediction(
        candidate=Candidate(offer=GPU),
        step_seconds=0.1,
        run_seconds=wall,
        overhead_seconds=0.0,
        wall_seconds=wall,
        cost_usd=Range(value=0.236, low=0.197, high=0.275),
        terms={},
        parts={},
        sigma=0.1,
        provenance=Provenance.MODELLED,
    )


def plan(**changes: object) -> Plan:
    whole = Plan(
        spec=SPEC,
        options=(option(), option(replace(GPU, region="us-west-2"))),
        prediction=prediction(),
        verdict="Run it on a GPU: aws g5.xlarge (A10G), us-east-1, spot: 30 min, $0.24.",
        identity=Identity(provider="aws", account="123456789012", principal="user/ada", source="profile research"),
        layers=LAYERS,
        files=41,
        bytes=1_234_567,
        left_out={"secrets: .env*": 1, "repositories": 1},
        price_as_of=GPU.price_as_of,
        notes=("The quota of spot vCPUs for G types is 4: one such machine at a time.",),
    )
    return replace(whole, **changes)  # type: ignore[arg-type]


def view(**changes: object) -> RunView:
    whole = RunView(
        run_id=RUN,
        state=RunState.RUNNING,
        name="train-resnet",
        owner="ada@laptop",
        client="laptop",
        spec=SPEC,
        identity=plan().identity,
        options=plan().options,
        created_at=NOW - timedelta(minutes=10),
        changed_at=NOW,
        create_call=CreateCall(
            number=1,
            token=f"{RUN}-1",
            option=0,
            zone="us-east-1b",
            at=NOW - timedelta(minutes=9),
            lease_until=UNTIL,
            allow_from="192.0.2.1/32",
        ),
        instance=InstanceRef(provider="aws", region="us-east-1", instance_id="i-0123456789abcdef0"),
        layers=LAYERS,
    )
    return replace(whole, **changes)  # type: ignore[arg-type]


def receipt(**changes: object) -> Receipt:
    whole = Receipt(
        run_id=RUN,
        instance=view().instance,
        instance_type="g5.xlarge",
        layers=LAYERS,
        reason=EndReason.SUCCEEDED,
        ended_by=EndedBy.CLIENT,
        requested_at=NOW,
        confirmed_state="terminated",
        confirmed_at=NOW + timedelta(seconds=31),
        provider_reason="Client.UserInitiatedShutdown",
        left_behind=(),
        metered_seconds=571.0,
        metered_cost_usd=Decimal("0.075"),
    )
    return replace(whole, **changes)  # type: ignore[arg-type]


def closed(**changes: object) -> RunView:
    return view(
        state=RunState.CLOSED,
        reason=changes.get("reason", EndReason.SUCCEEDED),
        receipt=receipt(**changes),
        confirmed_at=NOW + timedelta(seconds=31),
        collected=True,
        status=JobStatus(phase=JobPhase.FINISHED, reason=EndReason.SUCCEEDED, exit_code=0),
    )


def machine(instance_id: str, state: InstanceState, lease: datetime | None, run_id: str = RUN) -> Instance:
    return Instance(
        ref=InstanceRef(provider="aws", region="eu-west-1", instance_id=instance_id),
        zone="eu-west-1a",
        instance_type="p4d.24xlarge",
        state=state,
        launched_at=NOW,
        endpoint=None,
        run_id=run_id,
        name="a-job-with-a-name-that-is-long" if run_id else "",
        owner="bob@desk" if run_id else "",
        lease_until=lease,
    )
