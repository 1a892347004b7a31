"""A computer that clients run on: its folders and disks, its clock, and what a command works with there."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

from costgpu.errors import Unreachable
from costgpu.job.drive.context import Services
from costgpu.job.files.bucket_outputs import BucketOutputs
from costgpu.job.files.selection import FileSelection
from costgpu.job.machine.agent_reply import bad_reply
from costgpu.job.state.observer import Answer
from costgpu.models.instance import Instance
from costgpu.models.job import FileEntry, LogStream, Outputs
from costgpu.models.run import RunView
from costgpu.workflows.context import AppContext
from tests.simulation.process import Process, Remote
from tests.simulation.timeline import OwnClock

OWNER = "me@here"
QUIET = frozenset({"layers", "zones", "name", "close"})


class Computer:
    """One of them; what is on it outlives its processes."""

    def __init__(self, name: str, folder: Path, clock: OwnClock, store: Any) -> None:
        self.name, self.clock, self.store = name, clock, store
        self.runs, self.work = folder / name / "runs", folder / name / "work"
        self.work.mkdir(parents=True)
        (self.work / "train.py").write_text("train")


class Terminal:
    """An observer that remembers nothing, and answers Ctrl-C as the step says."""

    def __init__(self, process: Process, *, ask: bool = True) -> None:
        self._process, self._ask = process, ask
        self._answers = list(process.step.answers)
        self._cancels = 0

    def changed(self, view: RunView) -> None:
        """Nothing."""

    def waiting(self, view: RunView, what: str) -> None:
        assert what

    def output(self, stream: LogStream, data: bytes) -> None:
        """Nothing."""

    def note(self, text: str) -> None:
        self._process.world.log(self._process, "note", "", text)
        self._process.told_end = self._process.told_end or "does not go on" in text
        if "cannot be interrupted. The job does not go on" in text:
            self._process.world.invariants.said_cancelled(self._process)

    def interrupted(self, view: RunView) -> Answer:
        answer = (self._answers.pop(0) if self._answers else "cancel") if self._ask else "cancel"
        if answer in ("cancel", "INT"):
            self._cancels += 1
            self._process.world.end_wanted.add(view.job_id)
            self._process.discards = self._process.discards or self._cancels > 1 or not self._ask
        if answer == "INT":  # pressed again at the question: the machine ends at once
            self._process.discards = True
            raise KeyboardInterrupt
        return Answer(answer)


class Notes:
    """A reporter."""

    def __init__(self, process: Process) -> None:
        self._process = process

    def note(self, text: str, hint: str = "") -> None:
        self._process.world.log(self._process, "note", "", text)


class Context(AppContext):
    """The parts of a command, simulated; the workflows take it for the real one."""

    def __init__(self, process: Process, computer: Computer) -> None:
        world = process.world
        self.reporter: Any = Notes(process)
        self.unusable = {}
        self.clock: Any = computer.clock
        self._process = process
        self._provider = Remote(process, world.cloud.provider(), "provider", free=QUIET)
        self._provider.__dict__["terminate"] = self._terminate
        bucket = BucketOutputs(computer.clock, lambda url: Remote(process, world.bucket, "provider"))
        # the cached parts of the real one
        self.__dict__["settings"] = SimpleNamespace(
            owner=OWNER, alert_urls=(), max_machines=world.schedule.setting.max_machines or 1
        )
        self.__dict__["ledger"] = Remote(process, computer.store, "ledger", free=frozenset({"place", "close"}))
        self.__dict__["tools"] = Services(
            provider=self.provider,
            connect=self._connect,
            clock=computer.clock,
            folder=computer.runs,
            select=_selection,
            allow_from=lambda name: "192.0.2.1/32",
            bucket=bucket if world.schedule.setting.bucket else None,
        )

    def checked_settings(self) -> Any:
        return self.settings

    def provider(self, name: str) -> Any:
        if name != "fake":
            raise Unreachable(f"There is no {name} here.")
        return self._provider

    def providers(self) -> list[Any]:
        return [self._provider]

    def _connect(self, instance: Instance, keys: Any) -> Any:
        process, cloud = self._process, self._process.world.cloud
        host = process.call("host.connect", instance.ref.instance_id, lambda: cloud.connect(instance, keys))
        return Machine(process, host, instance.ref.instance_id)

    def _terminate(self, ref: Any) -> None:
        world, provider = self._process.world, self._provider._target

        def carry_out() -> None:
            with world.invariants.ending(self._process, ref.instance_id):
                provider.terminate(ref)

        self._process.call("provider.terminate", ref.instance_id, carry_out)


class Machine(Remote):
    """The connection to a machine, whose answers may be wrong."""

    def __init__(self, process: Process, host: Any, instance_id: str) -> None:
        super().__init__(process, host, "host", subject=instance_id, free=QUIET)

    def outputs(self) -> Outputs:
        """What the agent says; wrong now and then."""
        process = self._process
        found: Outputs = process.call("host.outputs", self._subject, self._target.outputs)
        if process.world.wrong_answers <= 0:
            return found
        process.world.wrong_answers -= 1
        wrong = ("model.pt", "made-up", "")[process.calls % 3]
        if not wrong:  # a path that leads out of its folder, which the border refuses
            raise bad_reply("outputs", ValueError("a file is named '../evil', which is not inside its folder"))
        return Outputs(files=(*found.files, FileEntry(path=wrong, size=10**15, sha256="0" * 64)), missing=found.missing)

    def cancel(self) -> None:
        """The agent ends the job."""
        process = self._process

        def carry_out() -> None:
            process.world.invariants.told_to_cancel(process, self._subject)
            self._target.cancel()

        process.call("host.cancel", self._subject, carry_out)

    def collected(self) -> None:
        """The agent may end the machine from now on."""
        process = self._process

        def carry_out() -> None:
            process.world.invariants.told_collected(process, self._subject)
            self._target.collected()

        process.call("host.collected", self._subject, carry_out)


def _selection(view: RunView) -> FileSelection:
    return FileSelection(root=Path(view.spec.workdir), files=(FileEntry(path="train.py", size=5, sha256="0" * 64),))
