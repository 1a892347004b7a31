"""What a person reads of a run at 80 columns, and what a program reads of it."""

import json
from dataclasses import replace
from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest

from costgpu.errors import InstanceLost
from costgpu.job.plan import this_machine
from costgpu.models.instance import Identity, InstanceState
from costgpu.models.job import EndReason, JobNode, JobPhase, JobSpec, JobStatus, Launcher
from costgpu.models.reap import TaggedInstance
from costgpu.models.run import EndedBy, RunState
from costgpu.render.text.receipt import receipt_text
from costgpu.render.text.run import (
    detached_text,
    jobs_json,
    jobs_text,
    launched_json,
    plan_json,
    plan_text,
    run_json,
)
from tests.unit.render.runs import (
    GPU,
    LAYERS,
    NOW,
    RUN,
    SPEC,
    UNTIL,
    closed,
    golden,
    machine,
    option,
    plan,
    receipt,
    view,
)


def test_the_money_of_every_cloud_is_shown() -> None:
    other = Identity(provider="gcp", account="team-a", principal="ada@example.com", source="gcloud")
    lines = plan_text(plan(others=(other,)), NOW).splitlines()
    assert "  identity   user/ada in aws 123456789012 (profile research)" in lines
    assert "  identity   ada@example.com in gcp team-a (gcloud)" in lines
    assert parsed(plan_json(plan(others=(other,)), NOW), "costgpu.plan")["plan"]["others"][0]["account"] == "team-a"


def test_a_plan_that_goes_on_elsewhere() -> None:
    sizes = [replace(option(replace(GPU, instance_type=f"g6e.{number}xlarge")), size=number) for number in (1, 1, 2)]
    spec = replace(SPEC, retry_until_up=True, search_seconds=21600.0, on_oom_next_size=True)
    text = " ".join(plan_text(plan(spec=spec, options=(*plan().options, *sizes)), NOW).split())
    assert "else 1 other place if there is no capacity" in text
    assert "at last every 10 min; that costs nothing, for 6.0 h" in text
    assert "memory if the job runs out of it, it begins again on a larger machine: aws g6e.1xlarge (A10G), at" in text
    assert ", then aws g6e.2xlarge (A10G), at most" in text
    assert "one after the other" in text
    assert "it ends: no larger machine" in " ".join(plan_text(plan(spec=spec), NOW).split())


def test_a_plan() -> None:
    golden(
        plan_text(plan(), NOW),
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
          else       1 other place if there is no capacity; at most $2.00
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
        plan_text(free, NOW),
        """
          job        python train.py, sent from /w
          files      1 file, 1.2 MB
          machine    this machine (8 CPUs, 31.2 GiB)
          estimate   none for the whole job
          at most    ended after 7.0 days, by 2026-03-08 12:00 UTC (a week, on this
                     machine)
          outputs    all new and changed files
          identity   ada in local laptop (this machine)

        What ends the machine:
          + create call: powering off terminates it, by 2026-03-01 14:00 UTC
    """,
    )
    priced = replace(here, price_usd_per_hour=Decimal("0.5"))
    text = plan_text(replace(free, options=(option(priced),)), NOW)
    assert "price      $0.50 an hour, as given" in text
    assert "at most    $2.00; ended after" in text


def test_a_plan_of_a_ray_cluster() -> None:
    spec = replace(SPEC, launcher=Launcher.RAY, nodes=3)
    text = plan_text(plan(spec=spec), NOW)
    assert "  cluster    Ray on 3 machines; machine 0 is the head and runs the script; all\n" in text
    assert "ranks" not in text
    assert "  cluster    Ray on one machine\n" in plan_text(plan(spec=replace(spec, nodes=1)), NOW)


def test_a_receipt_of_a_ray_node_does_not_call_the_script_a_success() -> None:
    def job_of(node: int) -> str:
        run_ids = (RUN, f"{RUN}b")
        spec = replace(SPEC, launcher=Launcher.RAY, nodes=2, node=JobNode(node=node, run_ids=run_ids))
        lines = receipt_text(receipt(), view(spec=spec)).splitlines()
        return next(line for line in lines if line.startswith("  job"))

    assert job_of(0) == "  job        succeeded"
    assert job_of(1) == "  job        a Ray node; it ended with the script on machine 0"


def test_a_receipt_says_what_was_left_running() -> None:
    told = replace(
        closed(), status=JobStatus(phase=JobPhase.FINISHED, exit_code=0, detail="1 process was ended: serve")
    )
    assert "\n  note       1 process was ended: serve\n" in receipt_text(receipt(), told)
    assert "serve" not in receipt_text(receipt(reason=EndReason.CANCELLED), told)


def test_a_plan_without_auto_shutdown_says_what_that_costs() -> None:
    text = plan_text(plan(spec=replace(SPEC, auto_shutdown=False)), NOW)
    assert "  shutdown   NOT when the job is over, but at the end of the lease: $2.00 in all\n" in text


@pytest.mark.parametrize(("days", "words"), [(0, "of today"), (1, "1 day old"), (30, "30 days old")])
def test_the_age_of_a_price(days: int, words: str) -> None:
    text = plan_text(plan(price_as_of=NOW.date() - timedelta(days=days)), NOW)
    assert f"an hour, {words};" in " ".join(text.split())


def test_a_receipt() -> None:
    golden(
        receipt_text(receipt(), closed()),
        """
        Receipt k3v9x2m7q1ab (train-resnet)
          machine    i-0123456789abcdef0, g5.xlarge, us-east-1
          job        succeeded, exit code 0
          ended by   this client, requested at 12:00:00 UTC
          confirmed  terminated at 2026-03-01 12:00:31 UTC
                     (Client.UserInitiatedShutdown)
          metered    10 min, $0.075
        Safeguards:
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
        receipt_text(lost.receipt, replace(lost, status=None)),
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
    assert receipt_text(nothing, view()) == f"Receipt {RUN}: nothing was created, nothing is billed."


@pytest.mark.parametrize("by", [by for by in EndedBy if by is not EndedBy.NOTHING_CREATED])
def test_whoever_ends_a_machine_has_a_name(by: EndedBy) -> None:
    row = next(line for line in receipt_text(receipt(ended_by=by), closed()).splitlines() if "ended by" in line)
    assert "_" not in row


def test_a_list_of_runs() -> None:
    create_call = view().create_call
    assert create_call is not None
    views = [
        view(),
        view(run_id="b", name="a-job-with-a-name-that-is-long", state=RunState.PROVISIONING, instance=None),
        view(run_id="c", state=RunState.INTENT, instance=None, create_call=None),
        closed(reason=EndReason.HOST_KEY_MISMATCH),
        view(run_id="e", create_call=replace(create_call, lease_until=NOW - timedelta(minutes=5))),
    ]
    tagged = [
        TaggedInstance(instance=machine("i-9", InstanceState.RUNNING, UNTIL)),
        TaggedInstance(instance=machine("i-8", InstanceState.STOPPED, None)),
    ]
    golden(
        jobs_text(views, tagged, NOW),
        """
        RUN          JOB            STATE         WHERE      SINCE   COST
        k3v9x2m7q1ab train-resnet   running       g5.xlarge 10 min $0.071
        b            a-job-with-a-… provisioning  g5.xlarge 10 min  $0.00
        c            train-resnet   intent        -         10 min  $0.00
        k3v9x2m7q1ab train-resnet   host key mis… g5.xlarge 10 min $0.075
        e            train-resnet   running       g5.xlarge 10 min $0.039
        k3v9x2m7q1ab: i-0123456789abcdef0, 2.0 h left
        b: being created, 2.0 h left
        e: i-0123456789abcdef0, 5 min over
        TAGGED RUN   JOB            STATE   WHERE             LEASE
        k3v9x2m7q1ab a-job-with-a-… running p4d.24xlarge 2.0 h left
        k3v9x2m7q1ab a-job-with-a-… stopped p4d.24xlarge   no lease
    """,
    )
    assert jobs_text([], [], NOW) == "No runs. costgpu run train.py starts one."


END = "2026-03-01 14:00 UTC"


@pytest.mark.parametrize(
    ("changes", "end"),
    [
        ({}, "When the job is over, its outputs go to s3://ada/runs and the machine ends itself."),
        (
            {"bucket": ""},
            f"When the job is over, its outputs stay on the machine, which ends itself at {END}: fetch them first.",
        ),
        ({"auto_shutdown": False}, f"The machine stays until {END}, unless you end it."),
    ],
)
def test_a_detached_run_says_how_to_come_back(changes: dict[str, Any], end: str) -> None:
    *lines, attach, logs, cancel = detached_text(view(spec=replace(SPEC, **changes))).splitlines()
    assert max(map(len, lines)) <= 80
    assert " ".join(" ".join(lines).split()) == (
        "Detached. Run k3v9x2m7q1ab (train-resnet) goes on without this terminal. It costs at most $2.00 in all. " + end
    )
    assert attach == "  costgpu attach k3v9x2m7q1ab    watch it again, fetch the outputs, end it"
    assert logs == "  costgpu logs -f k3v9x2m7q1ab   only watch"
    assert cancel == "  costgpu cancel k3v9x2m7q1ab    end it now"


def parsed(text: str, schema: str) -> dict[str, Any]:
    """A document of this schema, in JSON that every parser knows."""

    def no_constants(name: str) -> None:
        raise AssertionError(f"{name} is not JSON")

    document: dict[str, Any] = json.loads(text, parse_constant=no_constants)
    assert (document["schema"], document["version"]) == (schema, 1)
    return document


def test_documents_say_what_programs_need() -> None:
    run = parsed(launched_json(plan(), [closed()], InstanceLost("gone", hint="again"), NOW), "costgpu.run")
    assert (run["run"]["run_id"], run["run"]["state"]) == (RUN, "closed")
    assert run["receipt"]["confirmed_state"] == "terminated"
    assert run["receipt"]["metered_cost_usd"] == "0.075"
    assert run["error"] == {"type": "InstanceLost", "message": "gone", "hint": "again", "exit_code": 60}
    assert parsed(launched_json(plan(), [closed()], None, NOW), "costgpu.run")["error"] is None
    detached = parsed(run_json(view()), "costgpu.run")
    assert (detached["run"]["state"], detached["receipt"]) == ("running", None)
    assert parsed(run_json(closed()), "costgpu.run")["receipt"]["run_id"] == RUN
    other = TaggedInstance(instance=machine("i-3", InstanceState.RUNNING, UNTIL))
    jobs = parsed(jobs_json([view(), closed()], [other], NOW), "costgpu.jobs")
    assert jobs["runs"][0]["metered_seconds"] == 540.0
    assert Decimal(jobs["runs"][0]["metered_cost_usd"]) == pytest.approx(Decimal("0.0709"), abs=Decimal("0.0001"))
    assert jobs["tagged"][0]["ref"]["instance_id"] == "i-3"


def test_an_open_run_that_nobody_follows_is_metered_until_its_lease_and_no_longer() -> None:
    rows = jobs_text([view()], [], UNTIL + timedelta(seconds=60)).splitlines()
    later = jobs_text([view()], [], UNTIL + timedelta(days=20)).splitlines()
    assert later[1].split()[-1] == rows[1].split()[-1] != "$0.00"
    document = parsed(jobs_json([view()], [], UNTIL + timedelta(days=20)), "costgpu.jobs")
    assert document["runs"][0]["metered_seconds"] == (UNTIL - NOW).total_seconds() + 60 + 540
