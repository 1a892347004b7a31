"""How long a working folder takes to travel, and what it costs to follow many machines at once.

    python -m benchmarks.sync_speed [FOLLOWED]

Needs sshd (Debian: openssh-server), which is started on a loopback port. Nothing is asserted.
"""

from __future__ import annotations

import os
import random
import shutil
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import psutil

from costgpu.job.files.download import RemoteFile
from costgpu.job.files.place_outputs import fetch_and_place
from costgpu.job.files.select import select
from costgpu.job.machine.agent_client import AgentHost
from costgpu.job.machine.install_agent import agent_file
from costgpu.job.machine.transport.ssh import SshTransport
from costgpu.models.job import FileEntry
from costgpu.units import format_binary_size
from tests.transport.sshd import Server, Wire, find_sshd, serve

RUNS = 5
FOLLOWED = 100
FOLLOW_SECONDS = 30.0
LARGE_BYTES = 300 << 20


def main(followed: int) -> None:
    if find_sshd() is None:
        sys.exit("sshd is not installed (Debian: apt-get install openssh-server)")
    random.seed(1)
    with tempfile.TemporaryDirectory() as name, serve(Path(name) / "sshd") as server:
        folder = Path(name)
        choosing(folder / "many", 10_000)
        sending(folder, server)
        fetching(folder, server)
        for what, script in {
            "silent": "sleep 600",
            "with a sign of life every 5 s": "while :; do echo; sleep 5; done",
        }.items():
            following(server, followed, what, script)


def choosing(folder: Path, count: int) -> None:
    make_files(folder, count)
    print(
        f"select: {count} files, {format_binary_size(select(folder, limit_bytes=1 << 40).total_bytes)}: {timed(folder)}"
    )
    (folder / ".gitignore").write_text("".join(f"*.ext{n}\nbuild{n}/\n" for n in range(60)) + "/data/**/tmp\n!keep\n")
    print(f"select: the same with 122 lines of .gitignore: {timed(folder)}")


def timed(folder: Path) -> str:
    return summary([seconds(lambda: select(folder, limit_bytes=1 << 40)) for _ in range(RUNS)])


def sending(folder: Path, server: Server) -> None:
    make_files(folder / "work", 1000)
    wire = Wire(server.endpoint.port)
    first, again, sent, on_wire = [], [], 0, 0
    for run in range(RUNS):
        home = folder / f"machine{run}"
        store_agent(home)
        host = AgentHost(SshTransport(replace(server.endpoint, port=wire.port), server.keys, home=str(home)))
        before = wire.bytes
        first.append(seconds(lambda host=host: host.send(select(folder / "work", limit_bytes=1 << 40))))  # type: ignore[misc]
        on_wire = wire.bytes - before
        before = wire.bytes
        again.append(seconds(lambda host=host: host.send(select(folder / "work", limit_bytes=1 << 40))))  # type: ignore[misc]
        sent = wire.bytes - before
        host.close()
    wire.close()
    total = format_binary_size(select(folder / "work", limit_bytes=1 << 40).total_bytes)
    print(
        f"sync: 1000 files of {total} over SSH, chosen, sent, verified: {summary(first)}, "
        f"{format_binary_size(on_wire)} on the wire"
    )
    print(f"sync: the same once more, nothing changed: {summary(again)}, {format_binary_size(sent)} on the wire")


def fetching(folder: Path, server: Server) -> None:
    (folder / "large").write_bytes(os.urandom(LARGE_BYTES))
    transport = SshTransport(server.endpoint, server.keys)
    transport.open()
    took = seconds(lambda: transport.download([RemoteFile(str(folder / "large"), folder / "copy", LARGE_BYTES)]))
    print(
        f"download: one file of {format_binary_size(LARGE_BYTES)}: {took:.2f} s, {LARGE_BYTES / took / 2**20:.0f} MiB/s"
    )
    small = select(folder / "work", limit_bytes=1 << 40)
    there, here = folder / "work", folder / "here"
    here.mkdir()
    took = seconds(
        lambda: transport.download(
            [RemoteFile(str(there / e.path), here / str(n), e.size) for n, e in enumerate(small.files)]
        )
    )
    print(f"download: {len(small.files)} files: {took:.2f} s")
    transport.close()

    class Here:
        def fetch(self, entries: list[FileEntry], target: Path) -> None:
            for entry in entries:
                (target / entry.path).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(there / entry.path, target / entry.path)

    took = seconds(
        lambda: fetch_and_place(Here(), small.files, workdir=folder / "home", run_id="benchmark")  # type: ignore[arg-type]
    )
    print(f"fetch_and_place: {len(small.files)} files, made safe on disk: {took:.2f} s")


def following(server: Server, count: int, what: str, script: str) -> None:
    transports = [SshTransport(server.endpoint, server.keys, connect_timeout_seconds=60) for _ in range(count)]
    started, stop = threading.Semaphore(0), threading.Event()

    def follow(transport: SshTransport) -> None:
        try:
            with transport.stream(["/bin/sh", "-c", f"echo; {script}"]) as pieces:
                next(pieces)
                started.release()
                while not stop.is_set():
                    next(pieces)
        except Exception:  # noqa: BLE001 - closed below
            started.release()

    threads = [threading.Thread(target=follow, args=(transport,), daemon=True) for transport in transports]
    before = time.perf_counter(), time.process_time()
    for thread in threads:
        thread.start()
    for _ in threads:
        started.acquire()
    setup = time.perf_counter() - before[0], time.process_time() - before[1]
    before = time.perf_counter(), time.process_time()
    time.sleep(FOLLOW_SECONDS)
    wall, cpu = time.perf_counter() - before[0], time.process_time() - before[1]
    memory = psutil.Process().memory_info().rss / 2**20
    print(
        f"follow: {count} streams, {what}: {100 * cpu / wall:.2f} % of one core, {memory:.0f} MiB in all "
        f"(connecting took {setup[0]:.1f} s, {setup[1]:.1f} s of CPU here)"
    )
    stop.set()
    for transport in transports:
        transport.close()
    for thread in threads:
        thread.join(10)


def make_files(folder: Path, count: int) -> None:
    """Like source code: 100 in a folder, 200 bytes to 20 KB of text each."""
    for number in range(count):
        path = folder / f"package{number // 1000}" / f"part{number // 100 % 10}" / f"module_{number}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"# {random.random()}\n" * random.randint(10, 900))


def store_agent(home: Path) -> None:
    """The agent's file, not started: sending needs no more, and this machine is not to be guarded."""
    home.mkdir()
    (home / "agent.pyz").write_bytes(agent_file())
    (home / "agent").write_text(f'#!/bin/sh\nexec {sys.executable} -I -S {home}/agent.pyz "$@"\n')


def seconds(work: Callable[[], object]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def summary(times: list[float]) -> str:
    return f"median {statistics.median(times):.2f} s of {len(times)} ({min(times):.2f} to {max(times):.2f})"


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else FOLLOWED)
