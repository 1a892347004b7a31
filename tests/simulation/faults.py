"""What a step of a schedule does to the world."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import TYPE_CHECKING

from costgpu import errors
from costgpu.models.instance import InstanceState
from costgpu.models.job import EndReason
from tests.fake_cloud.instance import FakeInstance
from tests.fake_cloud.script import NEVER
from tests.simulation.commands import RUN

if TYPE_CHECKING:
    from tests.simulation.schedule import Step
    from tests.simulation.simulation import Simulation

REBOOT_SECONDS = 20.0


def lost(world: Simulation, step: Step) -> None:
    error = errors.Unreachable("no answer")
    world.cloud.faults.next(step["method"], error=error, after=step["after"], times=step["times"])


def throttled(world: Simulation, step: Step) -> None:
    world.cloud.faults.next(step["method"], error=errors.Throttled("slow down"), times=step["times"])


def late(world: Simulation, step: Step) -> None:
    world.cloud.faults.next(step["method"], delay_seconds=step["seconds"], times=step["times"])


def refused(world: Simulation, step: Step) -> None:
    world.cloud.faults.next(step["method"], error=getattr(errors, step["error"])("refused"))


def unheard_and_refused(world: Simulation, step: Step) -> None:
    """The machine is made, its client hears nothing, and the same call is refused when it is made again."""
    world.cloud.faults.next("create", error=errors.Unreachable("no answer"), after=True)
    world.cloud.faults.next("create", error=getattr(errors, step["error"])("refused"), skip=1)


def forgets(world: Simulation, step: Step) -> None:
    world.cloud.forgets_until = world.timeline.seconds + step["seconds"]


def lags(world: Simulation, step: Step) -> None:
    world.cloud.lags_until, world.cloud.lag_seconds = NEVER, step["seconds"]


def no_capacity(world: Simulation, step: Step) -> None:
    world.cloud.no_capacity(region=step["region"], times=step["times"], skip=step.get("skip", 0))


def credentials_expire(world: Simulation, step: Step) -> None:
    cloud = world.cloud
    cloud.credentials_expire_at = cloud.clock.now() + timedelta(seconds=step["seconds"])

    def log_in() -> None:
        cloud.credentials_expire_at = None

    world.timeline.at(world.timeline.seconds + step["seconds"] + step["for_seconds"], log_in)


def host_fails(world: Simulation, step: Step) -> None:
    error = getattr(errors, step["error"])("the agent answers nothing that makes sense")
    world.cloud.faults.next(step["method"], error=error, times=step["times"])


def host_lost(world: Simulation, step: Step) -> None:
    world.cloud.faults.next(step["method"], error=errors.HostUnreachable("lost"), after=True, times=step["times"])


def wrong_answers(world: Simulation, step: Step) -> None:
    world.wrong_answers += step["times"]


def damaged_transfer(world: Simulation, step: Step) -> None:
    world.cloud.damage_transfers("model.pt", step["times"])


def network_cut(world: Simulation, step: Step) -> None:
    for instance_id in (
        [one.ref.instance_id for one in _running(world, step)] if "which" in dict(step.facts) else [None]
    ):
        world.cloud.cut_network(step["seconds"], instance_id=instance_id)


def agent_dies(world: Simulation, step: Step) -> None:
    for instance in _running(world, step):
        world.cloud.kill_agent(instance.ref.instance_id)


def machine_stuck(world: Simulation, step: Step) -> None:
    """Its kernel hangs: nothing on it does anything any more, and the provider calls it running."""
    for instance in _running(world, step):
        if instance.guest is not None:
            instance.guest.agent = False
            instance.guest._watchdog_works = lambda: False
            world.cloud.cut_network(instance_id=instance.ref.instance_id)
            world.unguarded.add(instance.ref.instance_id)


def reboot(world: Simulation, step: Step) -> None:
    """The job does not survive it; its machine, files, watchdog and agent do."""
    for instance in _running(world, step):
        guest = instance.guest
        if guest is None:
            continue
        world.cloud.cut_network(REBOOT_SECONDS, instance_id=instance.ref.instance_id)
        if guest.job is not None and guest.job.finished_at is None:
            guest._finish(world.timeline.seconds, EndReason.JOB_FAILED, 137, guest.job.script.checkpoint)


def terminating_sticks(world: Simulation, step: Step) -> None:
    world.cloud.terminating_seconds = NEVER
    for instance in world.cloud.instances.values():
        instance.terminating_seconds = NEVER if instance.terminated_at is None else instance.terminating_seconds


def preempted(world: Simulation, step: Step) -> None:
    for instance in _meant(world, step):
        if instance.spot:
            world.cloud.preempt(instance.ref.instance_id, after=step["after"])


def ended_by_somebody(world: Simulation, step: Step) -> None:
    for instance in _meant(world, step):
        world.cloud.terminate_by_somebody(instance.ref.instance_id)


def stopped_by_somebody(world: Simulation, step: Step) -> None:
    for instance in _running(world, step):
        world.cloud.stop_by_somebody(instance.ref.instance_id)


def powered_off(world: Simulation, step: Step) -> None:
    for instance in _running(world, step):
        world.cloud.power_off(instance.ref.instance_id)


def clock_set(world: Simulation, step: Step) -> None:
    clock = world.computers[step["who"]].clock
    clock.offset_seconds = step["offset"]
    world.clock_set = True


def disk_full(world: Simulation, step: Step) -> None:
    which = step["which"]
    world.full.add(which)
    world.was_full.add(which)
    world.timeline.at(world.timeline.seconds + step["seconds"], lambda: world.full.discard(which))


def ledger_fails(world: Simulation, step: Step) -> None:
    world.here.store.failing_until = world.timeline.seconds + step["seconds"]


def ledger_slow(world: Simulation, step: Step) -> None:
    """Another process writes to it for long."""
    world.ledger_seconds = step["by_seconds"]
    world.timeline.at(world.timeline.seconds + step["seconds"], lambda: setattr(world, "ledger_seconds", 0.0))


def ledger_lost(world: Simulation, step: Step) -> None:
    world.here.store.lose()


def record_damaged(world: Simulation, step: Step) -> None:
    run_id = next(reversed(world.here.store.written), RUN)
    written = world.here.store.written.get(run_id, ())
    # never the last event: that it was there cannot be known afterwards
    sequence = min(len(written) // 2, max(0, len(written) - 2)) if step["how"] == "hole" else 0
    world.here.store.harm(run_id, step["how"], sequence=sequence)


def keys_lost(world: Simulation, step: Step) -> None:
    for path in sorted(world.here.runs.glob("*/*_ed25519")):
        path.unlink()
        world.keys_lost = True


FAULTS: dict[str, Callable[[Simulation, Step], None]] = {
    "lost": lost,
    "throttled": throttled,
    "late": late,
    "refused": refused,
    "unheard and refused": unheard_and_refused,
    "provider forgets": forgets,
    "provider lags": lags,
    "no capacity": no_capacity,
    "credentials expire": credentials_expire,
    "host fails": host_fails,
    "host lost": host_lost,
    "wrong answers": wrong_answers,
    "damaged transfer": damaged_transfer,
    "network cut": network_cut,
    "agent dies": agent_dies,
    "machine stuck": machine_stuck,
    "reboot": reboot,
    "terminating sticks": terminating_sticks,
    "preempted": preempted,
    "ended by somebody": ended_by_somebody,
    "stopped by somebody": stopped_by_somebody,
    "powered off": powered_off,
    "clock set": clock_set,
    "disk full": disk_full,
    "ledger fails": ledger_fails,
    "ledger slow": ledger_slow,
    "ledger lost": ledger_lost,
    "record damaged": record_damaged,
    "keys lost": keys_lost,
}


def _running(world: Simulation, step: Step) -> list[FakeInstance]:
    return [one for one in _meant(world, step) if one.state is InstanceState.RUNNING]


def _meant(world: Simulation, step: Step) -> list[FakeInstance]:
    """Return the machines that a step is about: one of a job's, by its number, or all."""
    which, alive = step.get("which", None), list(world.cloud.alive())
    return alive if which is None or not alive else [alive[which % len(alive)]]
