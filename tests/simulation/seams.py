"""Where the product reaches past its seams: the file system (calls that can fail, or be a process's last), names drawn at
random, the keys' costly mathematics, host names. In place while simulations run, and only felt by simulated processes."""

from __future__ import annotations

import contextlib
import errno
import functools
import io
import itertools
import os
import random
import secrets
import shutil
import socket
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import tenacity.wait

from costgpu.job import find_run, load_runs
from costgpu.job.drive.job import JobDriver
from costgpu.job.files import place_outputs, safe_move
from costgpu.job.machine import boot_script, keys
from costgpu.job.state import attempts, journal, states
from costgpu.models.instance import Instance, InstanceRef
from costgpu.models.provider_costs import ProviderCosts
from costgpu.models.run import RunEvent, RunView
from costgpu.providers import registry
from costgpu.workflows.runs import reap
from costgpu.workflows.spending import budget_check, enforce
from tests.fake_cloud.spec import SPEC
from tests.simulation.process import Process
from tests.simulation.timeline import Timeline

COSTS = ProviderCosts(disk_usd_per_gb_month=8.0, address_usd_per_hour=0.05)
_PATCHED = ("link", "rename", "replace", "mkdir", "unlink")
_WRITES = frozenset("wxa+")


class Felt:
    """The simulation that goes on, and where its files are."""

    timeline: Timeline | None = None
    root = ""

    @classmethod
    def process(cls) -> Process | None:
        """Whose turn it is; None while no simulated process acts."""
        acting = cls.timeline.acting if cls.timeline is not None else None
        assert acting is None or isinstance(acting, Process)
        return acting


def disk(
    name: str, real: Callable[..., Any], *, writes: Callable[..., bool] = lambda *_, **__: True
) -> Callable[..., Any]:
    """A call to the file system as one of the process's, which fails on a full disk."""

    def called(path: Any, *args: Any, **kwargs: Any) -> Any:
        process = Felt.process()
        if process is None or not isinstance(path, (str, os.PathLike)) or not writes(path, *args, **kwargs):
            return real(path, *args, **kwargs)
        text = os.fspath(path)
        if not isinstance(text, str) or not text.startswith(Felt.root):
            return real(path, *args, **kwargs)

        made: list[Any] = []

        def carry_out() -> Any:
            if name != "unlink" and process.world.is_full(text) and not (name == "mkdir" and os.path.isdir(text)):  # noqa: PTH112
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), text)
            made.append(real(path, *args, **kwargs))
            return made[0]

        try:
            return process.call(f"disk.{name}", "", carry_out)
        except BaseException:
            for file in made:  # whoever is killed now never hears of it
                if isinstance(file, io.IOBase):
                    file.close()
            raise

    return called


def _opens_to_write(_path: Any, mode: str = "r", *_: Any, **__: Any) -> bool:
    return not _WRITES.isdisjoint(mode)


def _to_disk(paths: Iterable[Path]) -> None:
    """As the real one, without threads."""
    found = list(paths)
    process = Felt.process()
    for path in found:
        if process is not None:
            process.call("disk.sync", "", path.stat)


def _disk_usage(path: Any) -> Any:
    process = Felt.process()
    full = process is not None and (process.world.is_full(os.fspath(path)) or process.world.small_disk)
    return SimpleNamespace(free=1000 if full else 10**12)


def _runs_folder() -> Path:
    process = Felt.process()
    assert process is not None
    return process.world.here.runs


def _prices(machines: Sequence[Instance]) -> dict[InstanceRef, Decimal]:
    return {machine.ref: Decimal(6) for machine in machines}


def _noted(drive: Callable[..., RunView]) -> Callable[..., RunView]:
    """The same, and who drives is known."""

    def noted(self: JobDriver, **how: bool) -> RunView:
        process = Felt.process()
        if process is None:
            return drive(self, **how)
        job_id, told = self.view.job_id, process.world.invariants.driving
        told(job_id, process)
        try:
            return drive(self, **how)
        finally:
            told(job_id, None)

    return noted


class Replays:
    """`states.replay`, which goes on from where it was if the events of a run are those that it has seen, and more."""

    def __init__(self) -> None:
        self._seen: dict[str, tuple[tuple[RunEvent, ...], RunView]] = {}

    def __call__(self, events: Iterable[RunEvent]) -> RunView:
        now = tuple(events)
        before, view = self._seen.get(now[0].run_id, ((), None)) if now else ((), None)
        if (
            view is None
            or len(before) > len(now)
            or any(one is not other for one, other in zip(before, now, strict=False))
        ):
            view = states.replay(now)
        else:
            for event in now[len(before) :]:
                view = states.apply(view, event)
        self._seen[now[0].run_id] = now, view
        return view


@functools.cache
def _key(number: int) -> bytes:
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    return Ed25519PrivateKey.from_private_bytes(bytes([number] * 32)).private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.OpenSSH, serialization.NoEncryption()
    )


@contextlib.contextmanager
def in_place() -> Iterator[None]:
    """While simulations run."""
    numbers = itertools.count()
    read_key, known = keys._read, {}

    def read(path: Path) -> tuple[str, str]:
        try:
            content = path.read_bytes()
        except OSError:
            return read_key(path)
        if content not in known:
            known[content] = read_key(path)
        return known[content]

    with contextlib.ExitStack() as stack:
        patch = functools.partial(mock.patch.object)
        for name in _PATCHED:
            stack.enter_context(patch(os, name, disk(name, getattr(os, name))))
        stack.enter_context(patch(io, "open", disk("open", io.open, writes=_opens_to_write)))
        stack.enter_context(patch(os, "fsync", lambda _: None))
        stack.enter_context(patch(shutil, "disk_usage", _disk_usage))
        stack.enter_context(patch(place_outputs, "to_disk", _to_disk))
        stack.enter_context(patch(safe_move, "to_disk", _to_disk))
        stack.enter_context(patch(secrets, "token_hex", lambda size=4: f"{next(numbers):0{2 * size}x}"))
        stack.enter_context(patch(socket, "gethostname", lambda: "here"))
        stack.enter_context(patch(tenacity.wait, "random", random.Random(0)))
        stack.enter_context(patch(keys, "_new_private_key", lambda: _key(1)))
        stack.enter_context(patch(keys, "_read", read))
        stack.enter_context(patch(boot_script, "_BODY", SimpleNamespace(read_text=lambda encoding: "")))
        stack.enter_context(patch(budget_check, "askable", lambda provider: ([provider("fake")], {})))
        stack.enter_context(patch(enforce, "runs_folder", _runs_folder))
        stack.enter_context(patch(reap, "shipped_prices", _prices))
        stack.enter_context(patch(budget_check, "shipped_prices", _prices))
        replays = Replays()
        for module in (journal, find_run, attempts, load_runs):
            stack.enter_context(patch(module, "replay", replays))
        stack.enter_context(patch(JobDriver, "drive", _noted(JobDriver.drive)))
        stack.enter_context(mock.patch.dict(registry._registered, {"fake": _costly()}))
        yield


def begin(seed: int, timeline: Timeline, folder: Path, variables: Mapping[str, str]) -> None:
    """Of a simulation: the waits between tries are drawn from its seed.

    Args:
        variables: What is set where its commands are given.
    """
    Felt.timeline, Felt.root = timeline, str(folder)
    os.environ.update(variables)
    tenacity.wait.random.seed(seed)  # type: ignore[attr-defined]


def _costly() -> Any:
    import dataclasses

    return dataclasses.replace(SPEC, costs=COSTS, has_credentials=lambda: True)


def end() -> None:
    """Of a simulation."""
    Felt.timeline = None
    os.environ.pop("TOKEN", None)
