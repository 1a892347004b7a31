"""What happens in one simulation: a setting and timed steps, drawn from a seed before anything is carried out."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

DAY = 86400.0
HORIZON = 1200.0  # seconds in which steps are drawn
NEVER = float("inf")


@dataclass(frozen=True, order=True)
class Moment:
    """A moment in the life of a process.

    Attributes:
        call: Number of one of its calls, or ``name number`` of one by that name; empty if the time counts.
        after: Whether that call is still carried out.
        seconds: Since it began.
    """

    call: str = ""
    after: bool = False
    seconds: float = 0.0

    def __str__(self) -> str:
        return f"{'after' if self.after else 'before'} call {self.call}" if self.call else f"after {self.seconds} s"


@dataclass(frozen=True, kw_only=True)
class Step:
    """Something that happens at a time: a command that somebody gives, or a fault.

    Attributes:
        dies: When the command's process is killed; None for never.
        signals: When the process is sent which: (moment, ``INT`` or ``TERM``).
        answers: To Ctrl-C, one after the other.
        chases: ``name number`` of a call of `costgpu run` at which the command is given, if that comes first.
    """

    at: float
    what: str
    facts: tuple[tuple[str, Any], ...] = ()
    dies: Moment | None = None
    signals: tuple[tuple[Moment, str], ...] = ()
    answers: tuple[str, ...] = ()
    chases: str = ""

    def __getitem__(self, name: str) -> Any:
        return dict(self.facts)[name]

    def get(self, name: str, default: Any) -> Any:
        return dict(self.facts).get(name, default)

    def __str__(self) -> str:
        parts = [f"{self.at:8.1f} s  {self.what}", *(f"{key}={value!r}" for key, value in self.facts)]
        parts += [f"killed {self.dies}"] if self.dies else []
        parts += [f"SIG{kind} {moment}" for moment, kind in self.signals]
        parts += [f"answers {', '.join(self.answers)}"] if self.answers else []
        parts += [f"or at call {self.chases} of the run"] if self.chases else []
        return "  ".join(parts)


@dataclass(frozen=True, kw_only=True)
class Setting:
    """What is so from the beginning; the defaults are a world without faults."""

    job_seconds: float = 120.0
    setup_seconds: float = 0.0
    exit_code: int = 0
    setup_exit_code: int = 0
    sigterm_seconds: float = 1.0
    output: str = "some"  # ``none``, ``some``, ``odd`` (names), ``many`` or ``huge`` (for the disk at home)
    patterns: tuple[str, ...] = ()
    unreadable: bool = False
    pending_seconds: float = 2.0
    boot_seconds: float = 2.0
    boots: bool = True
    ssh: bool = True
    python: bool = True
    host_key_matches: bool = True
    visible_after_seconds: float = 0.0
    terminating_seconds: float = 2.0
    watchdog_works: bool = True
    agent_works: bool = True
    power_off_stops: bool = False
    disks_stay: bool = False
    remembers_seconds: float = 3600.0
    spot: bool = False
    auto_shutdown: bool = True
    bucket: bool = False
    cap_usd: str = "2.00"
    price_usd: str = "6.00"
    max_duration_seconds: float | None = None
    idle_seconds: float | None = None
    grace_seconds: float = 10.0
    env_names: tuple[str, ...] = ("TOKEN",)
    provider_skew_seconds: float = 0.0
    clock_offset_seconds: float = 0.0
    user_file: bool = False
    saves: float | None = None  # seconds between two checkpoints
    real_ledger: bool = False
    budget_usd: str = ""
    quota_vcpus: int | None = None
    refused_launch: str = (
        ""  # error with which the provider ends the first machine while it is launched; empty: it does not
    )
    damaged_neighbour: str = ""  # how an open run of long ago is damaged in the ledger; empty: there is none
    nodes: int = 1
    min_nodes: int = 0
    rank_0: bool = True  # whether only machine 0 brings outputs home
    ranks_hang: bool = False  # whether the others wait for ever for a machine that is gone; else they fail
    recover: int | None = None  # further machines, for a job on spot machines that goes on
    retry_until_up: bool = False
    next_size: bool = False  # whether a job that runs out of memory goes on on a larger machine
    fits_size: int = 0  # size of machines on which it does not run out of memory
    resumes: bool = True  # whether the job can go on from what it has saved
    idles_after: float | None = None  # seconds after which the job does nothing any more
    fills_after: float | None = None  # seconds after which the disk of its machine is full
    jobs: int = 1  # of one person, one after the other
    max_machines: int = 0  # how many of theirs the queue starts; 0 for jobs that do not wait in it
    knows_variables: bool = False  # whether whoever comes later has the job's variables set

    def __str__(self) -> str:
        told = [
            f"{one.name}={getattr(self, one.name)!r}" for one in fields(self) if getattr(self, one.name) != one.default
        ]
        return ", ".join(told) or "(nothing special)"


@dataclass(frozen=True, kw_only=True)
class Schedule:
    """One simulation, before it is carried out."""

    seed: int
    setting: Setting = field(default_factory=Setting)
    steps: tuple[Step, ...] = ()
    calm_at: float = HORIZON  # from then on nothing goes wrong any more, and cron comes by with `costgpu reap --yes`

    def __str__(self) -> str:
        lines = [f"seed {self.seed}: {self.setting}", *(f"  {step}" for step in self.steps)]
        return "\n".join([*lines, f"  {self.calm_at:8.1f} s  calm"])


def draw(seed: int, *, alone: bool = False) -> Schedule:
    """The schedule of a seed; nothing else goes into it.

    Args:
        alone: Whether it is one run of one machine, whatever else the seed would give.
    """
    return _Draw(random.Random(seed)).schedule(seed, alone=alone)


class _Draw:
    def __init__(self, chance: random.Random) -> None:
        self._chance = chance

    def _one(self, *choices: Any) -> Any:
        return choices[int(self._chance.random() * len(choices))]

    def _rarely(self, share: float, usual: Any, *others: Any) -> Any:
        """The usual value, but with this probability one of the others."""
        rare, other = self._chance.random() < share, self._one(*others)
        return other if rare else usual

    def _moment(self) -> float:
        """Early moments are interesting: there a run changes its state every second."""
        share = self._chance.random()
        return float(round(self._one(0.0, 20.0, 200.0, HORIZON) * share, 1))

    def schedule(self, seed: int, *, alone: bool) -> Schedule:
        # by a chance of its own: what the others draw, and with it which seed finds which bug, stays as it was
        launch = _Draw(random.Random(f"launch {seed}"))._rarely(0.05, "", "NoCapacity", "RefusedHere", "QuotaExceeded")
        setting = replace(self._setting(), refused_launch=launch)
        steps = [self._run()]
        steps += [self._command(setting) for _ in range(self._one(0, 1, 1, 2, 2, 3))]
        steps += [self._fault() for _ in range(self._one(0, 1, 2, 3, 4, 6))]
        if not alone:
            setting, steps = _Draw(random.Random(f"job {seed}"))._job(setting, steps)
        return Schedule(
            seed=seed,
            setting=setting,
            steps=tuple(sorted(steps, key=lambda step: step.at)),
            calm_at=self._one(60.0, 300.0, 700.0, HORIZON),
        )

    def _job(self, setting: Setting, steps: list[Step]) -> tuple[Setting, list[Step]]:
        """Draw for half of all seeds a job on several machines, in attempts, or in the queue, and what befalls it."""
        kind = self._one(*KINDS)
        if not kind:
            return setting, steps
        saves = self._one(10.0, 40.0, 100.0)
        group = {
            "nodes": self._one(2, 2, 3),
            "min_nodes": self._rarely(0.3, 0, 1, 2),
            "rank_0": self._rarely(0.3, True, False),
            "ranks_hang": self._chance.random() < 0.5,
            "cap_usd": self._one("4.00", "8.00"),
            "quota_vcpus": self._rarely(0.1, None, 4, 8),
        }
        spot = {
            "spot": True,
            "recover": self._one(1, 2, 5),
            "saves": saves,
            "resumes": self._chance.random() < 0.9,
            "cap_usd": self._one("2.00", "4.00", "8.00"),
            "retry_until_up": self._rarely(0.1, False, True),
            "job_seconds": self._one(60.0, 300.0, 300.0, 900.0),
        }
        queue = {
            "jobs": self._one(2, 3),
            "max_machines": self._one(1, 2, 2, 3),
            "real_ledger": self._chance.random() < 0.1 or setting.real_ledger,
            "job_seconds": self._one(5.0, 60.0, 300.0),
        }
        limits = {
            "idle_seconds": self._one(30.0, 120.0),
            "idles_after": self._rarely(0.5, None, 5.0, 100.0),
            "fills_after": self._rarely(0.5, None, 3.0, 50.0),
            "next_size": self._chance.random() < 0.3,
            "fits_size": self._one(0, 1, 2),
            "retry_until_up": self._rarely(0.3, False, True),
            "job_seconds": self._one(60.0, 300.0),
        }
        drawn = {"group": group, "spot": spot, "spot group": {**group, **spot}, "queue": queue, "limits": limits}
        facts: dict[str, Any] = drawn[kind.removeprefix("queued ")]
        if kind.startswith("queued"):
            facts = {**queue, **facts, "bucket": True}
        setting = replace(setting, knows_variables=self._chance.random() < 0.9, **facts)
        faults = SPOT_FAULTS if setting.recover is not None else GROUP_FAULTS
        steps = [*steps, *(self._fault(faults) for _ in range(self._one(1, 2, 2, 3)))]
        if not setting.max_machines:
            return setting, steps
        begun = [self._fate("enqueue", 0.0, job=0) if self._chance.random() < 0.8 else steps[0]]
        begun += [self._fate("enqueue", self._moment(), job=number) for number in range(1, setting.jobs)]
        begun += [self._fate("queue", self._moment()) for _ in range(self._one(1, 2, 3))]
        begun += [self._fate("attach", self._moment(), job=self._one(*range(setting.jobs)))]
        begun += [self._fate("cancel", self._moment(), now=False, by_tag=False, job=self._one(*range(setting.jobs)))]
        return setting, [*begun, *steps[1:]]

    def _setting(self) -> Setting:
        budget = self._rarely(0.08, "", "0.05", "0.50", "100")
        neighbour = self._rarely(0.08, "", "empty", "types", "text", "kind", "hole")
        return Setting(
            job_seconds=self._one(5.0, 60.0, 120.0, 300.0, 900.0, NEVER),
            setup_seconds=self._rarely(0.3, 0.0, 3.0, 60.0),
            exit_code=self._rarely(0.15, 0, 3),
            setup_exit_code=self._rarely(0.05, 0, 1),
            sigterm_seconds=self._rarely(0.2, 1.0, 8.0, NEVER),
            output=self._rarely(0.3, "some", "none", "odd", "many", "huge"),
            patterns=self._rarely(0.1, (), ("model.pt",), ("missing.pt",)),
            unreadable=self._rarely(0.03, False, True),
            pending_seconds=self._rarely(0.15, 2.0, 0.0, 30.0),
            boot_seconds=self._rarely(0.15, 2.0, 0.0, 40.0, 700.0),
            boots=self._rarely(0.03, True, False),
            ssh=self._rarely(0.03, True, False),
            python=self._rarely(0.02, True, False),
            host_key_matches=self._rarely(0.02, True, False),
            visible_after_seconds=self._rarely(0.2, 0.0, 5.0, 60.0, 110.0),
            terminating_seconds=self._rarely(0.3, 2.0, 0.0, 30.0, 600.0),
            watchdog_works=self._rarely(0.1, True, False),
            agent_works=self._rarely(0.08, True, False),
            power_off_stops=self._rarely(0.15, False, True),
            disks_stay=self._rarely(0.1, False, True),
            remembers_seconds=self._rarely(0.15, 3600.0, 0.0, 60.0),
            spot=self._rarely(0.2, False, True),
            auto_shutdown=self._rarely(0.08, True, False),
            bucket=self._rarely(0.12, False, True),
            cap_usd=self._one("1.00", "2.00", "2.00", "3.00"),
            price_usd=self._one("6.00", "6.00", "9.00"),
            max_duration_seconds=self._rarely(0.1, None, 30.0, 400.0),
            grace_seconds=self._rarely(0.1, 10.0, 0.0, 60.0),
            env_names=self._rarely(0.3, (), ("TOKEN",)),
            provider_skew_seconds=self._rarely(0.1, 0.0, 5.0, -5.0, 50.0, -50.0),
            clock_offset_seconds=self._rarely(0.06, 0.0, 30.0, -30.0, 300.0, -300.0),
            user_file=self._rarely(0.3, False, True),
            real_ledger=bool(budget) or self._chance.random() < 0.15,
            budget_usd=budget,
            quota_vcpus=self._rarely(0.04, None, 0, 4),
            damaged_neighbour=neighbour,
        )

    def _life(self) -> Moment:
        """A moment in the life of a process."""
        after, how = self._chance.random() < 0.5, self._chance.random()
        if how < 0.4:
            return Moment(str(1 + int(self._chance.random() * self._one(12, 30, 60, 120))), after)
        if how < 0.75:
            return Moment(f"{self._one(*MOMENTS)} {self._one(1, 1, 1, 2, 3)}", after)
        return Moment(seconds=round(self._chance.random() * self._one(10.0, 100.0, 1000.0), 1))

    def _fate(self, step: str, at: float, **facts: Any) -> Step:
        """A command, and what happens to its process."""
        dies = self._life() if self._chance.random() < 0.45 else None
        signals: list[tuple[Moment, str]] = []
        while self._chance.random() < 0.3 and len(signals) < 3:
            signals.append((self._life(), self._one("INT", "INT", "TERM")))
        chases = (
            f"{self._one(*MOMENTS)} {self._one(1, 2, 3, 5, 8)}" if step != "run" and self._chance.random() < 0.3 else ""
        )
        answers = tuple(self._one("continue", "detach", "cancel", "cancel", "INT") for _ in signals)
        return Step(
            at=at,
            what=step,
            facts=tuple(facts.items()),
            dies=dies,
            signals=tuple(sorted(signals)),
            answers=answers,
            chases=chases,
        )

    def _run(self) -> Step:
        return self._fate("run", 0.0, detach=self._chance.random() < 0.2)

    def _command(self, setting: Setting) -> Step:
        kinds = ["attach", "attach", "attach", "cancel", "fetch", "reap", "reap", "reap"]
        kinds += ["check", "check", "check"] if setting.budget_usd else []
        what = self._one(*kinds)
        at = self._moment() if self._chance.random() < 0.5 else round(HORIZON * self._chance.random(), 1)
        if what == "cancel":
            return self._fate(what, at, now=self._chance.random() < 0.25, by_tag=self._chance.random() < 0.1)
        if what == "reap":
            return self._fate(what, at, elsewhere=self._chance.random() < 0.25)
        if what == "fetch":
            return self._fate(what, at, by_tag=self._chance.random() < 0.15)
        return self._fate(what, at)

    def _fault(self, kinds: Sequence[tuple[Any, ...]] | None = None) -> Step:
        what, *choices = self._one(*(FAULTS if kinds is None else kinds))
        facts = {name: self._one(*values) for name, values in choices}
        return Step(at=self._moment(), what=what, facts=tuple(facts.items()))


KINDS = (
    *[""] * 9,
    "group",
    "group",
    "spot",
    "spot",
    "spot",
    "spot group",
    "spot group",
    "queue",
    "queued spot",
    "limits",
)
"""Of jobs; empty for one run of one machine."""
REFUSALS = ("NoCapacity", "QuotaExceeded", "InvalidRequest")

MOMENTS = (
    "provider.create",
    "ledger.append",
    "host.connect",
    "host.install",
    "host.start",
    "host.follow",
    "host.fetch_logs",
    "host.outputs",
    "host.fetch",
    "host.collected",
    "provider.terminate",
    "provider.describe",
    "disk.link",
    "disk.rename",
    "disk.mkdir",
    "provider.clean_up",
    "host.cancel",
)
"""Calls after or before which a process can be hit."""
CALLS = (
    "create",
    "create",
    "describe",
    "describe",
    "terminate",
    "terminate",
    "find",
    "list_owned",
    "clean_up",
    "identity",
)
HOST_CALLS = (
    "connect",
    "install",
    "send",
    "start",
    "status",
    "follow",
    "outputs",
    "fetch_file",
    "fetch_logs",
    "collected",
)
FAULTS: Sequence[tuple[Any, ...]] = (
    ("lost", ("method", CALLS), ("after", (True, True, False)), ("times", (1, 1, 2, 30, 500))),
    ("lost", ("method", ("create", "create", "terminate")), ("after", (True,)), ("times", (1, 3, 30, 60))),
    ("unheard and refused", ("error", REFUSALS)),
    ("throttled", ("method", CALLS), ("times", (1, 5, 40))),
    ("late", ("method", (*CALLS, *HOST_CALLS)), ("seconds", (5.0, 60.0, 130.0)), ("times", (1, 2))),
    ("refused", ("method", ("create",)), ("error", (*REFUSALS, "AuthError"))),
    ("provider forgets", ("seconds", (20.0, 300.0))),
    ("provider lags", ("seconds", (10.0, 60.0))),
    ("no capacity", ("region", ("us-east-1", "us-west-2", None)), ("times", (1, 3, None))),
    ("credentials expire", ("seconds", (0.0, 100.0, 600.0)), ("for_seconds", (60.0, 900.0))),
    (
        "host fails",
        ("method", HOST_CALLS),
        ("error", ("HostUnreachable", "HostUnreachable", "MachineUnusable", "OutputsDamaged")),
        ("times", (1, 1, 3, 20)),
    ),
    ("host lost", ("method", ("start", "collected", "cancel", "fetch_file", "outputs")), ("times", (1, 2))),
    ("wrong answers", ("times", (1, 3))),
    ("damaged transfer", ("times", (1, 2, 5))),
    ("network cut", ("seconds", (5.0, 40.0, 200.0, 800.0))),
    ("agent dies",),
    ("machine stuck",),
    ("reboot",),
    ("terminating sticks",),
    ("preempted", ("after", (0.0, 30.0, 200.0))),
    ("ended by somebody",),
    ("stopped by somebody",),
    ("powered off",),
    ("clock set", ("who", ("here", "elsewhere")), ("offset", (DAY, -DAY, 3600.0, -3600.0, 0.0))),
    ("disk full", ("which", ("work", "work", "state", "ledger", "ledger")), ("seconds", (30.0, 600.0))),
    ("ledger fails", ("seconds", (5.0, 300.0))),
    ("ledger slow", ("by_seconds", (0.3, 1.0, 15.0)), ("seconds", (20.0, 200.0))),
    ("ledger lost",),
    ("record damaged", ("how", ("empty", "types", "text", "kind", "hole"))),
    ("keys lost",),
)
"""Kind, and the choices for each of its facts."""
WHICH = ("which", (0, 1, 1, 2))  # machine of a job
GROUP_FAULTS: Sequence[tuple[Any, ...]] = (
    ("ended by somebody", WHICH),
    ("powered off", WHICH),
    ("agent dies", WHICH),
    ("reboot", WHICH),
    ("machine stuck", WHICH),
    ("network cut", WHICH, ("seconds", (5.0, 40.0, 200.0, 800.0))),
    ("no capacity", ("region", ("us-east-1", None)), ("times", (1, 2, None)), ("skip", (1, 1, 2))),
)
SPOT_FAULTS = (
    *[("preempted", WHICH, ("after", (0.0, 30.0, 121.0, 150.0, 200.0)))] * 6,
    ("no capacity", ("region", ("us-east-1", None, None)), ("times", (1, 4, None)), ("skip", (0, 1, 2))),
    ("agent dies", WHICH),
    ("network cut", WHICH, ("seconds", (5.0, 40.0, 200.0, 800.0))),
)
"""Of jobs on several machines, and of those that go on after interruptions."""
