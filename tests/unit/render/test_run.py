"""What a person reads of a run at 80 columns, and what a program reads of it."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from textwrap import dedent

import pytest

from costgpu.errors import InstanceLost
from costgpu.models.instance import Identity, Instance, InstanceRef, InstanceState, Safeguard
from costgpu.models.job import EndReason, JobPhase, JobSpec, JobStatus
from costgpu.models.offer import Accelerator, Offer, PurchaseOption
from costgpu.models.prediction import Candidate, Prediction, Provenance, Range
from costgpu.models.reap import TaggedInstance
from costgpu.models.run import Attempt, EndedBy, Option, Plan, Receipt, RunState, RunView
from costgpu.render.text import run as render
from costgpu.runner.lease import lease_for
from costgpu.runner.plan import this_machine
from costgpu.units import format_size

NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
UNTIL = NOW + timedelta(hours=2)
RUN = "k3v9x2m7q1ab"
GPU = Offer(
    provider="aws",
    instance_type="g5.xlarge",
    family="g5",
    region="us-east-1",
    zone=None,
    purchase_option=PurchaseOption.SPOT,
    price_usd_per_hour=Decimal("0.4567"),
    vcpus=4,
    memory_gib=16.0,
    architecture="x86_64",
    accelerator=Accelerator(name="A10G", count=1, memory_gib=24.0),
    price_source="test",
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


def option(offer: Offer = GPU, cost: Decimal | None = Decimal(2)) -> Option:
    lease = lease_for(
        offer,
        on_demand_usd_per_hour=Decimal("1.006"),
        max_cost_usd=cost,
        max_duration_seconds=None,
        estimated_seconds=None,
    )
    return Option(offer=offer, lease=lease, disk_gib=100, extras_usd_per_hour=Decimal("0.016"))


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
        attempt=Attempt(
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


def test_the_money_of_every_cloud_is_shown() -> None:
    other = Identity(provider="gcp", account="team-a", principal="ada@example.com", source="gcloud")
    lines = render.plan_text(plan(others=(other,)), NOW).splitlines()
    assert "  identity   user/ada in aws 123456789012 (profile research)" in lines
    assert "  identity   ada@example.com in gcp team-a (gcloud)" in lines
    assert json.loads(render.plan_json(plan(others=(other,)), NOW))["plan"]["others"][0]["account"] == "team-a"


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


def golden(text: str, expected: str) -> None:
    assert text == dedent(expected).strip("\n")
    assert max(map(len, text.splitlines())) <= 80


def test_a_plan() -> None:
    golden(
        render.plan_text(plan(), NOW),
        """
          verdict    Run it on a GPU: aws g5.xlarge (A10G), us-east-1, spot: 30 min,
                     $0.24.
          job        python train.py --epochs 10, sent from /home/ada/projects/vision
          files      41 files, 1.2 MB; left out: secrets: .env* (1), repositories (1)
          set-up     pip install -r requirements.txt
          variables  HF_TOKEN, WANDB_API_KEY (values are neither shown nor stored)
          machine    aws g5.xlarge (A10G), us-east-1, spot
          price      $0.46 an hour, 2 days old; with disk and address at most $1.02 an
                     hour
          else       1 other place if that has none free; at most $2.00
          estimate   30 min [25 min-35 min], $0.24 [0.20-0.28], 80 % interval
          at most    $2.00; ended after 116 min, by 2026-03-01 13:56 UTC (--max-cost
                     $2.00)
          outputs    out/, *.pt; also to s3://ada/runs
          identity   user/ada in aws 123456789012 (profile research)

        What ends the machine:
          + create call: powering off terminates it, by 2026-03-01 14:00 UTC
          - provider schedule: NOT armed: no role for EventBridge Scheduler is
              configured
          + watchdog: armed by the boot script as its first action, kept on disk, armed
              again at every boot, by 2026-03-01 14:00 UTC

        - The quota of spot vCPUs for G types is 4: one such machine at a time.
    """,
    )


def test_a_plan_on_this_machine() -> None:
    here = this_machine(Decimal(0), NOW.date(), vcpus=8, memory_gib=31.2)
    free = plan(
        spec=JobSpec(name="train", argv=("train.py",), workdir="/w"),
        options=(option(here, None),),
        prediction=None,
        verdict="",
        notes=(),
        left_out={},
        files=1,
        layers=LAYERS[:1],
        identity=Identity(provider="local", account="laptop", principal="ada", source="this machine"),
    )
    golden(
        render.plan_text(free, NOW),
        """
          job        python train.py, sent from /w
          files      1 file, 1.2 MB
          machine    this machine (8 CPUs, 31.2 GiB)
          estimate   none for the whole job
          at most    ended after 7.0 days, by 2026-03-08 12:00 UTC (a week, on this
                     machine)
          outputs    all files that are new or changed
          identity   ada in local laptop (this machine)

        What ends the machine:
          + create call: powering off terminates it, by 2026-03-01 14:00 UTC
    """,
    )
    priced = replace(here, price_usd_per_hour=Decimal("0.5"))
    text = render.plan_text(replace(free, options=(option(priced),)), NOW)
    assert "price      $0.50 an hour, as you say" in text
    assert "at most    $2.00; ended after" in text


def test_a_plan_without_auto_shutdown_says_what_that_costs() -> None:
    text = render.plan_text(plan(spec=replace(SPEC, auto_shutdown=False)), NOW)
    assert "  shutdown   NOT when the job is over: at the end of its lease, $2.00 in all\n" in text


@pytest.mark.parametrize(
    ("count", "words"),
    [
        (0, "0 bytes"),
        (1, "1 byte"),
        (999, "999 bytes"),
        (1000, "1.0 kB"),
        (999_949, "999.9 kB"),
        (999_950, "1.0 MB"),
        (4_000_000, "4.0 MB"),
        (2.5e9, "2.5 GB"),
        (7e12, "7.0 TB"),
    ],
)
def test_the_size_of_files(count: float, words: str) -> None:
    assert format_size(count) == words


@pytest.mark.parametrize(("days", "words"), [(0, "of today"), (1, "1 day old"), (30, "30 days old")])
def test_the_age_of_a_price(days: int, words: str) -> None:
    text = render.plan_text(plan(price_as_of=NOW.date() - timedelta(days=days)), NOW)
    assert f"an hour, {words};" in " ".join(text.split())


def test_a_receipt() -> None:
    golden(
        render.receipt_text(receipt(), closed()),
        """
        Receipt k3v9x2m7q1ab (train-resnet)
          machine    i-0123456789abcdef0, g5.xlarge, us-east-1
          job        succeeded, exit code 0
          ended by   this client, asked 12:00:00 UTC
          confirmed  terminated at 2026-03-01 12:00:31 UTC
                     (Client.UserInitiatedShutdown)
          metered    10 min, $0.075
        Layers:
          + create call: powering off terminates it, by 2026-03-01 14:00 UTC
          - provider schedule: NOT armed: no role for EventBridge Scheduler is
              configured
          + watchdog: armed by the boot script as its first action, kept on disk, armed
              again at every boot, by 2026-03-01 14:00 UTC
    """,
    )


def test_a_receipt_of_a_machine_that_went_by_itself_and_left_something() -> None:
    lost = closed(
        reason=EndReason.DEADLINE,
        ended_by=EndedBy.WATCHDOG,
        requested_at=None,
        provider_reason="",
        left_behind=("security group sg-1", "not asked: no answer"),
        layers=(),
    )
    assert lost.receipt is not None
    golden(
        render.receipt_text(lost.receipt, replace(lost, status=None)),
        """
        Receipt k3v9x2m7q1ab (train-resnet)
          machine    i-0123456789abcdef0, g5.xlarge, us-east-1
          job        ended by the deadline
          ended by   the deadline watchdog on the machine
          confirmed  terminated at 2026-03-01 12:00:31 UTC
          metered    10 min, $0.075
          LEFT       security group sg-1, not asked: no answer; costgpu reap --yes
                     removes it
    """,
    )


def test_a_receipt_of_nothing() -> None:
    nothing = receipt(instance=None, instance_type="", ended_by=EndedBy.NOTHING_CREATED)
    assert render.receipt_text(nothing, view()) == f"Receipt {RUN}: nothing was created, nothing is billed."


@pytest.mark.parametrize("by", [by for by in EndedBy if by is not EndedBy.NOTHING_CREATED])
def test_whoever_ends_a_machine_has_a_name(by: EndedBy) -> None:
    row = next(line for line in render.receipt_text(receipt(ended_by=by), closed()).splitlines() if "ended by" in line)
    assert "_" not in row


def test_a_list_of_runs() -> None:
    attempt = view().attempt
    assert attempt is not None
    views = [
        view(),
        view(run_id="b", name="a-job-with-a-name-that-is-long", state=RunState.PROVISIONING, instance=None),
        view(run_id="c", state=RunState.INTENT, instance=None, attempt=None),
        closed(reason=EndReason.HOST_KEY_MISMATCH),
        view(run_id="e", attempt=replace(attempt, lease_until=NOW - timedelta(minutes=5))),
    ]
    tagged = [
        TaggedInstance(instance=machine("i-9", InstanceState.RUNNING, UNTIL)),
        TaggedInstance(instance=machine("i-8", InstanceState.STOPPED, None)),
    ]
    golden(
        render.jobs_text(views, tagged, NOW),
        """
        RUN          JOB            STATE         WHERE                SINCE     COST
        k3v9x2m7q1ab train-resnet   running       g5.xlarge           10 min   $0.071
        b            a-job-with-a-… provisioning  g5.xlarge           10 min    $0.00
        c            train-resnet   intent        -                   10 min    $0.00
        k3v9x2m7q1ab train-resnet   host key mis… g5.xlarge           10 min   $0.075
        e            train-resnet   running       g5.xlarge           10 min   $0.039
        k3v9x2m7q1ab a-job-with-a-… running       p4d.24xlarge             2.0 h left
        k3v9x2m7q1ab a-job-with-a-… stopped       p4d.24xlarge               no lease
        k3v9x2m7q1ab: i-0123456789abcdef0, 2.0 h left
        b: being created, 2.0 h left
        e: i-0123456789abcdef0, 5 min over
    """,
    )
    assert render.jobs_text([], [], NOW) == "No runs. costgpu run train.py starts one."


def test_a_run_that_goes_on() -> None:
    golden(
        render.detached_text(view()),
        """
        Detached. Run k3v9x2m7q1ab (train-resnet) goes on without this terminal. At most
          $2.00 in all. When the job is over its outputs go to s3://ada/runs and the
          machine ends itself.
          costgpu attach k3v9x2m7q1ab    watch it again, bring the outputs home, end it
          costgpu logs -f k3v9x2m7q1ab   only watch
          costgpu cancel k3v9x2m7q1ab    end it now
    """,
    )


def test_a_run_that_goes_on_without_a_bucket() -> None:
    golden(
        render.detached_text(view(spec=replace(SPEC, bucket=""))),
        """
        Detached. Run k3v9x2m7q1ab (train-resnet) goes on without this terminal. At most
          $2.00 in all. When the job is over its outputs wait on the machine, which ends
          itself at 2026-03-01 14:00 UTC: fetch them before.
          costgpu attach k3v9x2m7q1ab    watch it again, bring the outputs home, end it
          costgpu logs -f k3v9x2m7q1ab   only watch
          costgpu cancel k3v9x2m7q1ab    end it now
    """,
    )


def test_a_run_that_goes_on_until_its_lease() -> None:
    golden(
        render.detached_text(view(spec=replace(SPEC, auto_shutdown=False))),
        """
        Detached. Run k3v9x2m7q1ab (train-resnet) goes on without this terminal. At most
          $2.00 in all. The machine stays until 2026-03-01 14:00 UTC, unless you end it.
          costgpu attach k3v9x2m7q1ab    watch it again, bring the outputs home, end it
          costgpu logs -f k3v9x2m7q1ab   only watch
          costgpu cancel k3v9x2m7q1ab    end it now
    """,
    )


def documents() -> dict[str, str]:
    lost = InstanceLost("gone", hint="again")
    other = TaggedInstance(instance=machine("i-3", InstanceState.RUNNING, UNTIL))
    return {
        "costgpu.plan": render.plan_json(plan(), NOW),
        "costgpu.run": render.launched_json(plan(), closed(), lost, NOW),
        "costgpu.run ": render.launched_json(plan(), closed(), None, NOW),
        "costgpu.run  ": render.detached_json(view()),
        "costgpu.run   ": render.receipt_json(closed()),
        "costgpu.jobs": render.jobs_json([view(), closed()], [other], NOW),
    }


@pytest.mark.parametrize("name", list(documents()))
def test_documents_carry_schema_and_version(name: str) -> None:
    def no_constants(text: str) -> None:
        raise AssertionError(f"{text} is not JSON")

    document = json.loads(documents()[name], parse_constant=no_constants)
    assert (document["schema"], document["version"]) == (name.strip(), 1)


def test_documents_say_what_programs_need() -> None:
    texts = documents()
    run = json.loads(texts["costgpu.run"])
    assert run["run"]["run_id"] == RUN
    assert run["run"]["state"] == "closed"
    assert run["receipt"]["confirmed_state"] == "terminated"
    assert run["receipt"]["metered_cost_usd"] == "0.075"
    assert run["error"] == {"type": "InstanceLost", "message": "gone", "hint": "again", "exit_code": 60}
    assert json.loads(texts["costgpu.run "])["error"] is None
    detached = json.loads(texts["costgpu.run  "])
    assert (detached["run"]["state"], detached["receipt"]) == ("running", None)
    jobs = json.loads(texts["costgpu.jobs"])
    assert jobs["runs"][0]["metered_seconds"] == 540.0
    assert Decimal(jobs["runs"][0]["metered_cost_usd"]) == pytest.approx(Decimal("0.0709"), abs=Decimal("0.0001"))
    assert jobs["tagged"][0]["ref"]["instance_id"] == "i-3"


def test_an_open_run_that_nobody_follows_is_metered_until_its_lease_and_no_longer() -> None:
    rows = render.jobs_text([view()], [], UNTIL + timedelta(seconds=60)).splitlines()
    later = render.jobs_text([view()], [], UNTIL + timedelta(days=20)).splitlines()
    assert later[1].split()[-1] == rows[1].split()[-1] != "$0.00"
    document = json.loads(render.jobs_json([view()], [], UNTIL + timedelta(days=20)))
    assert document["runs"][0]["metered_seconds"] == (UNTIL - NOW).total_seconds() + 60 + 540
