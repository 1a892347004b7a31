"""Every n-th call of the operating system fails, one after the other: no output is lost, and the error says what to do."""

import contextlib
import errno
import io
import json
import os
import shutil
import tarfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from costgpu.clock import ManualClock
from costgpu.errors import CostGpuError
from costgpu.job.files.bucket_outputs import LOGS, OUTPUTS, BucketOutputs
from costgpu.job.files.download import fetch_verified
from costgpu.job.files.place_outputs import PlacedOutputs, fetch_and_place
from costgpu.job.machine.transport.local import LocalTransport
from costgpu.models.job import FileEntry
from tests.job.examples import spec
from tests.unit.job.test_place_outputs import contents, entry

CALLS = ("open", "write", "pwrite", "fsync", "ftruncate", "replace", "rename", "link", "mkdir", "unlink", "chmod")
MACHINE = {"a.bin": b"new" * 1000, "folder/b.txt": b"b", "folder/deep/c": b"", "run.sh": b"#!/bin/sh\n"}
MINE = {"a.bin": b"old", "folder/other": b"mine", "keep": b"me"}


class Failing:
    """From the n-th call on, calls of `os` below a folder fail; `once` lets only that one fail."""

    def __init__(self, folder: Path, number: int, code: int, *, once: bool) -> None:
        self.folder, self.number, self.code, self.once = os.fspath(folder), number, code, once
        self.calls = 0

    @contextlib.contextmanager
    def active(self, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
        with monkeypatch.context() as patch:
            for name in CALLS:
                patch.setattr(os, name, self._failing(getattr(os, name), name))
            yield

    def _failing(self, real: Any, name: str) -> Any:
        def call(*arguments: Any, **more: Any) -> Any:
            path = os.fspath(arguments[0]) if not isinstance(arguments[0], int) else ""
            writes = name != "open" or (len(arguments) > 1 and arguments[1] & (os.O_WRONLY | os.O_RDWR))
            if writes and (not path or str(path).startswith(self.folder)) and self._is_due():
                raise OSError(self.code, os.strerror(self.code), path or None)
            return real(*arguments, **more)

        return call

    def _is_due(self) -> bool:
        self.calls += 1
        return self.calls == self.number if self.once else self.calls >= self.number


class Machine:
    """A folder that outputs are fetched from as from a local machine."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.transport = LocalTransport(folder)

    def fetch(self, entries: Sequence[FileEntry], folder: Path) -> None:
        fetch_verified(self.transport.download, str(self.folder), entries, folder)


def written(folder: Path, files: dict[str, bytes]) -> None:
    for name, data in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)


ENTRIES = tuple(entry(name, data) for name, data in sorted(MACHINE.items()))


@pytest.mark.parametrize(("code", "once"), [(errno.ENOSPC, False), (errno.EIO, True)])
def test_outputs_come_home_whole_or_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int, once: bool
) -> None:
    number, complete = 0, False
    while not complete:
        number += 1
        base = tmp_path / str(number)
        machine, home = base / "machine", base / "home"
        written(machine, MACHINE)
        written(home, MINE)
        failing = Failing(home, number, code, once=once)

        def bring(home: Path = home, machine: Path = machine) -> PlacedOutputs:
            return fetch_and_place(Machine(machine), ENTRIES, workdir=home, run_id="r")

        placed: PlacedOutputs | None = None
        with contextlib.suppress(CostGpuError), failing.active(monkeypatch):
            placed = bring()
        complete = failing.calls < number
        there = contents(home)
        assert b"me" in there.values()
        assert MINE["a.bin"] in there.values(), "what was in the place is kept, wherever"
        assert contents(machine) == MACHINE
        if placed is not None:  # the machine may end now: everything is here
            assert set(MACHINE.values()) <= set(there.values())
            assert placed.files + len(placed.stuck) == len(MACHINE)
        again = bring()
        assert again.stuck == ()
        assert {name: data for name, data in contents(home).items() if name in MACHINE} == MACHINE
        assert MINE["a.bin"] in contents(home).values()
        shutil.rmtree(base)
    assert number > 20  # so many calls there were to fail


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO])
def test_what_is_in_the_bucket_stays_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int) -> None:
    view: Any = SimpleNamespace(run_id="abcdefghijkl", spec=spec(bucket="s3://b/p"))
    objects = {
        f"{view.run_id}/{LOGS}": _archive({"stdout.log": b"1\n", "status.json": json.dumps({}).encode()}),
        f"{view.run_id}/{OUTPUTS}": _archive(MACHINE),
    }
    bucket: Any = SimpleNamespace(
        exists=objects.__contains__, download=lambda name, path: path.write_bytes(objects[name])
    )
    number, complete = 0, False
    while not complete:
        number += 1
        folder = tmp_path / str(number)
        failing = Failing(folder, number, code, once=True)
        with contextlib.suppress(CostGpuError, OSError), failing.active(monkeypatch):
            BucketOutputs(ManualClock(), lambda _: bucket).rescue(view, folder)
        complete = failing.calls < number
        found = BucketOutputs(ManualClock(), lambda _: bucket).rescue(view, folder)
        assert found is not None
        assert {one.path for one in found[1]} == set(MACHINE)
        assert contents(folder / "rescued") == MACHINE
    assert number > 5


def _archive(files: dict[str, bytes]) -> bytes:
    target = io.BytesIO()
    with tarfile.open(fileobj=target, mode="w:gz") as tar:
        for name, data in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    return target.getvalue()
