"""Every document of a job: of runs that the command line carries out on the fake cloud, one file for each story.

`python -m tests.unit.render.documents` rewrites the files.
"""

from __future__ import annotations

import contextlib
import functools
import json
import random
import socket
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import tenacity.wait

from costgpu.cli import jobs, ledger
from costgpu.cli.terminal_reporter import TerminalReporter
from costgpu.errors import SyncRefused
from costgpu.ledger import Ledger
from costgpu.models.job import EndReason, Launcher, OutputsFrom, Recovery
from costgpu.models.offer import Accelerator
from costgpu.providers import registry
from costgpu.workflows.context import AppContext
from costgpu.workflows.runs import start
from costgpu.workflows.runs.plan import PlannedRun
from tests.cli.here import told
from tests.fake_cloud import JobScript, MachineScript
from tests.fake_cloud.script import NEVER, PROGRESS
from tests.fake_cloud.spec import SPEC
from tests.job.world import JOB, MACHINE, SAVING, World, plan, press
from tests.unit.render.documents.short_json import short
from tests.unit.render.documents.texts import texts
from tests.unit.render.runs import prediction

FOLDER = Path(__file__).parent
RUN = "run -y --json train.py"
RUNS = tuple(f"run{number:09}" for number in range(1, 40))  # as long as real ones
FIRST, SECOND = RUNS[:2]
EXPORT = "ledger export --format json"
FIRST_STORY = "instance_lost"  # whose plan most others have, too
BRIEF = ("jobs -a", f"ledger job {FIRST}")
SHORT = ("jobs -a", "jobs -a --json", f"ledger job {FIRST}", f"ledger job {FIRST} --json", "ledger --json")
LONG = (
    *SHORT,
    "jobs -a --by-tag --json",
    "ledger",
    "ledger --by reason",
    "ledger --by job --json",
    "ledger accuracy",
    "ledger accuracy --json",
    "ledger export --format csv",
    EXPORT,
    "ledger export --format focus",
)
GOES_ON = Recovery(most=2, checkpoints=(PROGRESS,), resume_args=("--resume", "{latest}"))
RECOVERS: dict[str, Any] = {"spot": True, "recovery": GOES_ON}


@dataclass(frozen=True, kw_only=True)
class Story:
    """A person plans a job and types commands, and something happens."""

    world: Callable[[Path], World] = World
    planned: dict[str, Any] = field(default_factory=dict)  # what the plan has besides its defaults
    happens: Callable[[World], None] = lambda world: None
    types: tuple[str, ...] = (RUN, *BRIEF)
    estimated: bool = False
    verbatim: tuple[str, ...] = ()  # commands whose JSON is shown as it was printed


class Desk(AppContext):
    """What commands work with: the parts that reach outside are those of a world."""

    def __init__(self, world: World) -> None:
        super().__init__(TerminalReporter(), owner="me@here")
        self.clock = world.clock  # type: ignore[assignment]
        self.__dict__.update(ledger=Ledger.open(folder=world.folder), tools=world.tools)

    def provider(self, name: str) -> Any:
        """Return the fake cloud, whatever the name."""
        return self.tools.provider(name)

    def providers(self) -> list[Any]:
        """Return the fake cloud."""
        return [self.provider("fake")]


def in_its_place(world: World, story: Story) -> contextlib.ExitStack:
    """Put the world where commands look for clouds, prices, names and chance."""
    stack = contextlib.ExitStack()

    @contextlib.contextmanager
    def planned_run(*_: object) -> Iterator[tuple[AppContext, PlannedRun]]:
        made = plan(Path("work"), **story.planned)
        made = replace(made, prediction=prediction() if story.estimated else None)
        with Desk(world) as desk:
            yield desk, PlannedRun(plan=made, environment={"TOKEN": "x"}, refusal=None, at=world.clock.now())

    for module in (jobs, ledger):
        stack.enter_context(mock.patch.object(module, "AppContext", side_effect=lambda _: Desk(world)))
    stack.enter_context(mock.patch.object(start, "planned_run", planned_run))
    stack.enter_context(mock.patch("costgpu.job.launch.new_run_id", side_effect=RUNS))
    stack.enter_context(mock.patch.object(socket, "gethostname", return_value="here"))
    stack.enter_context(mock.patch.object(tenacity.wait, "random", random.Random(0)))
    known = {"fake": replace(SPEC, has_credentials=lambda: True)}
    stack.enter_context(mock.patch.dict(registry._registered, known))
    return stack


@functools.cache
def shown_before() -> dict[str, str]:
    """Return where the first story shows what is too long for one line, as `short` has it."""
    told_of(FIRST_STORY, seen := dict[str, str]())
    return {value: f"{FIRST_STORY} {place}" for value, place in seen.items()}


def told_of(name: str, seen: dict[str, str] | None = None) -> str:
    """Return all that the commands of a story say, with their exit codes.

    Args:
        seen: As of `short`; None for what the first story has shown.
    """
    story, seen = STORIES[name], dict(shown_before()) if seen is None else seen
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        world = story.world(Path())
        Path("work/train.py").write_text("train")
        story.happens(world)
        shown = []
        with in_its_place(world, story):
            for number, command in enumerate(story.types, 1):
                result = told(*command.split())
                out = result.out
                if out.startswith("{") and command not in story.verbatim:
                    out = f"{short(json.loads(out), seen, str(number))}\n"
                shown.append(f"$ costgpu {command}\n[exit code {result.code}]\n{result.err}[stdout]\n{out}")
        return "\n".join(shown)


def after(seconds: float, happens: Callable[[World, Any], None], number: int = 0) -> Callable[[World], None]:
    """Return what plans that something happens to one of our machines, so long after the command was typed."""

    def strike(world: World) -> None:
        happens(world, [one for one in world.cloud.instances.values() if one.ours][number])

    return lambda world: world.cloud.schedule(seconds, lambda: strike(world))


def ended_by_agent(reason: EndReason) -> Callable[[World], None]:
    """Return what plans that the agent ends the job for this reason."""
    return after(100, lambda world, machine: machine.guest.stop_job(world.cloud.time(), reason))


def preempts(world: World, machine: Any) -> None:
    """Take a machine back, which is told two minutes before."""
    world.cloud.preempt(machine.ref.instance_id, after=120)


def vanishes(world: World, machine: Any) -> None:
    """End a machine by hand."""
    world.cloud.terminate_by_somebody(machine.ref.instance_id)


def no_room(world: World) -> None:
    """Leave no machine anywhere."""
    world.cloud.no_capacity()


def room_for_one(world: World) -> None:
    """Leave one machine in each region, and no more."""
    for region in world.cloud.regions:
        for zone in "abc":
            world.cloud.no_capacity(region=region, zone=f"{region}{zone}", skip=1)


def quota(world: World) -> None:
    """Allow fewer processors than one machine has."""
    world.cloud.quota_vcpus = 3


def cannot_be_sent(world: World) -> None:
    """Refuse the working folder."""
    world.cloud.faults.next("send", error=SyncRefused("The folder is too large.", hint="Raise --sync-limit."), times=9)


def leaves_rule(world: World) -> None:
    """Keep the access rules of machines that have ended."""
    world.cloud.disks_stay = True


def booting(script: MachineScript) -> Callable[[Path], World]:
    """Return worlds whose machines come up like this."""
    return lambda folder: World(folder, JOB, script)


def doing(script: JobScript) -> Callable[[Path], World]:
    """Return worlds whose jobs do this."""
    return lambda folder: World(folder, script)


def taken_back(*seconds: float) -> Callable[[Path], World]:
    """Return worlds that take back machines after so many seconds, one after the other."""
    return lambda folder: World(folder, SAVING, takes_back=seconds)


GPU = Accelerator(name="V100", count=1, memory_gib=16.0)
GROUP: dict[str, Any] = {"nodes": 2}
STORIES = {
    "success": Story(types=(RUN, *LONG), estimated=True, verbatim=(RUN, EXPORT), planned={"tags": {"team": "vision"}}),
    "no_outputs": Story(world=doing(JobScript(seconds=900)), planned={"outputs": ("*.pt",)}),
    "job_failed": Story(world=doing(replace(JOB, exit_code=3)), types=(RUN, *LONG), estimated=True),
    "setup_failed": Story(world=doing(replace(JOB, setup_exit_code=2)), planned={"setup": "pip install x"}),
    "max_duration": Story(planned={"max_duration_seconds": 60.0, "max_cost_usd": Decimal(2)}),
    "deadline": Story(planned={"max_cost": "0.12"}),
    "agent_dies": Story(
        world=doing(replace(JOB, seconds=NEVER)),
        happens=after(100, lambda world, machine: world.cloud.kill_agent(machine.ref.instance_id)),
        planned={"max_cost": "0.12"},
    ),
    "idle": Story(happens=ended_by_agent(EndReason.IDLE), planned={"idle_seconds": 60.0}),
    "disk_full": Story(happens=ended_by_agent(EndReason.DISK_FULL)),
    "told_to_stop": Story(
        world=doing(replace(JOB, sigterm_exit_code=0)),
        happens=after(100, lambda world, machine: world.cloud.shut_down_job(machine.ref.instance_id)),
    ),
    "cancelled": Story(happens=lambda world: world.cloud.schedule(100, press)),
    "preempted": Story(happens=after(100, preempts), planned={"spot": True}),
    "host_maintained": Story(happens=after(100, preempts)),
    "recovered": Story(world=taken_back(300, 400), planned=RECOVERS, types=(RUN, *LONG), estimated=True),
    "recovery_given_up": Story(world=taken_back(300, 300, 300, 300), planned=RECOVERS),
    "instance_lost": Story(happens=after(100, vanishes), types=(RUN, *SHORT)),
    "no_capacity": Story(happens=no_room, types=(RUN, *SHORT)),
    "provision_failed": Story(happens=quota),
    "boot_failed": Story(world=booting(replace(MACHINE, ssh=False))),
    "host_key_mismatch": Story(world=booting(replace(MACHINE, host_key_matches=False))),
    "machine_unusable": Story(world=booting(replace(MACHINE, python=False))),
    "driver_failed": Story(world=booting(replace(MACHINE, driver_seconds=NEVER)), planned={"gpu": GPU}),
    "sync_failed": Story(happens=cannot_be_sent),
    "left_behind": Story(happens=leaves_rule),
    "two_machines": Story(planned=GROUP, types=(RUN, *LONG), estimated=True),
    "two_machines_outputs_of_all": Story(planned={**GROUP, "outputs_from": OutputsFrom.ALL}),
    "two_machines_one_lost": Story(planned=GROUP, happens=after(100, vanishes, 1)),
    "two_machines_one_taken_back": Story(planned={**GROUP, "spot": True}, happens=after(100, preempts, 1)),
    "two_machines_no_room": Story(planned=GROUP, happens=room_for_one),
    "ray_cluster": Story(planned={**GROUP, "launcher": Launcher.RAY}),
    "as_text": Story(types=("run -y train.py",)),
    "recovered_as_text": Story(world=taken_back(300), planned=RECOVERS, types=("run -y train.py",)),
    "two_machines_as_text": Story(planned=GROUP, types=("run -y train.py",)),
    "planned": Story(types=("run --dry-run train.py", "run --dry-run --json train.py"), planned=RECOVERS),
    "detached": Story(
        types=("run -y -d train.py", "jobs", "jobs --json", f"logs --all {FIRST}", f"attach {FIRST}", "jobs -a")
    ),
    "detached_as_json": Story(types=("run -y -d --json train.py", f"cancel {FIRST}", "jobs -a")),
    "detached_group": Story(
        planned=GROUP,
        types=("run -y -d train.py", "jobs", "jobs --json", f"attach {FIRST}", "jobs -a"),
    ),
    "queued": Story(
        types=(
            "run -y --queue train.py",
            "run -y --queue --json train.py",
            "queue",
            "queue --json",
            "jobs",
            f"attach {FIRST}",
            "queue",
            "queue --start",
            f"cancel {SECOND}",
            "queue",
            "queue --json",
            "jobs -a",
        )
    ),
    "queued_without_room": Story(happens=no_room, types=("run -y --queue train.py", "queue", "jobs -a", "ledger")),
}


DOCUMENTS: dict[str, Callable[[], str]] = {
    "texts": texts,
    FIRST_STORY: lambda: told_of(FIRST_STORY, {}),
    **{name: partial(told_of, name) for name in STORIES if name != FIRST_STORY},
}


def rewrite() -> None:
    """Write what every story says now."""
    for name, make in DOCUMENTS.items():
        (FOLDER / f"{name}.txt").write_text(make())
