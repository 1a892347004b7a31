"""What a measured script read, wrote elsewhere and imported, by each way and at each level of isolation."""

import sys
from dataclasses import replace
from pathlib import Path

import pytest

from costgpu.measure.isolation import landlock
from costgpu.measure.isolation.levels import Isolation
from costgpu.measure.log.process_monitor import ProcessMonitor
from costgpu.measure.scratch import Scratch
from costgpu.models.footprint import FileUse
from tests.measure.conftest import best_isolation
from tests.measure.harness import request, run

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="inotify and /proc are Linux's")

SCRIPT = """
import ctypes, mmap, os, subprocess, sys
sys.path.insert(0, "../lib")
import beside, numpy

open("data/plain").read()
os.chdir("data")
open("after_chdir").read()
os.chdir("..")
open("link").read()
open("away/far").read()
open("data/appended", "a").write("more")
numpy.load("data/array.npy")
with open("data/mapped") as file:
    kept = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
libc = ctypes.CDLL(None)
descriptor = libc.open(b"data/native", os.O_RDONLY)
assert libc.read(descriptor, ctypes.create_string_buffer(4), 4) == 4
libc.close(descriptor)
subprocess.run(["cat", "data/by_program"], check=True)
subprocess.run([sys.executable, "-c", "open('data/by_child').read(); open('../lib/settings').read()"], check=True)
if os.fork() == 0:
    open("data/by_worker").read()
    os._exit(0)
os.wait()
open("replaced", "w").write("new")
open("replaced").read()
open("made", "w").write("new")
open("made").read()
open(os.fsencode("data/") + b"odd\\xff").read()
open("/etc/hostname").close() if os.path.exists("/etc/hostname") else None
os.path.exists("unread"), os.listdir("."), open(os.devnull).read()
open("../weights", "w").write("12345")
"""
BY_PYTHON = ["plain", "after_chdir", "array.npy", "mapped", "by_child", "by_worker", "odd\udcff"]
BY_OTHERS = ["native", "by_program"]


@pytest.mark.parametrize("level", list(Isolation))
def test_each_way_of_reading_is_seen(tmp_path: Path, level: Isolation) -> None:
    if level is Isolation.COPY_ON_WRITE and best_isolation()[0] is not level:
        pytest.skip(f"this machine gives no copy-on-write world: {best_isolation()[1]}")
    if level is Isolation.WRITE_PROTECTED and not landlock.supported():
        pytest.skip("no Landlock in this kernel")
    work = tmp_path / "work"
    for folder in (work / "data", tmp_path / "lib", tmp_path / "big"):
        folder.mkdir(parents=True)
    for name in (*BY_PYTHON, *BY_OTHERS, "appended", "target"):
        (work / "data" / name).write_text("here before\n")
    (work / "data" / "array.npy").write_bytes(_array())
    for path in (work / "replaced", work / "unread", tmp_path / "lib" / "settings", tmp_path / "big" / "far"):
        path.write_text("here before\n")
    (tmp_path / "lib" / "beside.py").write_text("VALUE = 1\n")
    (work / "link").symlink_to("data/target")
    (work / "away").symlink_to(tmp_path / "big")

    outcome = run(replace(request(SCRIPT, workdir=work, steps=None), isolation=level), tmp_path / "cache")

    assert outcome.record is not None, outcome.log.read_text()
    assert outcome.record["status"] == "ended", outcome.log.read_text()
    assert outcome.isolation is level
    found = outcome.footprint
    names = {"train.py", "link", "away", *(f"data/{name}" for name in [*BY_PYTHON, *BY_OTHERS, "target"])}
    assert {use.path for use in found.read} == names  # what goes on with a file looks at nothing in it
    assert found.complete
    outside = {f"{tmp_path}/lib/beside.py", f"{tmp_path}/lib/settings", f"{tmp_path}/big/far"}
    assert {use.path for use in found.read_outside} == outside
    assert found.written_outside == [FileUse(path=f"{tmp_path}/weights", size=5)]
    imported = {package.module: package for package in found.imported}
    assert imported["numpy"].distribution == "numpy"
    assert imported["numpy"].version
    assert imported["numpy"].by_script
    assert imported["beside"].distribution == ""
    assert imported["beside"].origin == f"{tmp_path}/lib/beside.py"
    assert "json" not in imported
    assert not any(str(path.readlink()) == "anon_inode:inotify" for path in _descriptors())


def _descriptors() -> list[Path]:
    return [path for path in Path("/proc/self/fd").iterdir() if path.is_symlink()]


def _array() -> bytes:
    header = b"{'descr': '|u1', 'fortran_order': False, 'shape': (1,), }".ljust(117) + b"\n"
    return b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header + b"\x01"


@pytest.mark.usefixtures("copy_on_write")
def test_what_any_program_reads_is_seen(tmp_path: Path) -> None:
    work = tmp_path / "work"
    work.mkdir()
    (work / "corpus.txt").write_text("words\n")
    (work / "other.txt").write_text("words\n")
    command = ["/bin/sh", "-c", "cat corpus.txt > copy.txt; cat copy.txt; echo x > ../model.bin"]
    scratch = Scratch.make(tmp_path / "cache", "program")
    footprint = ProcessMonitor((), 1.0, 60.0).run(command, work, scratch, lambda seconds, stepping: None).footprint
    assert [use.path for use in footprint.read] == ["corpus.txt"]
    assert [use.path for use in footprint.written_outside] == [f"{tmp_path}/model.bin"]
    assert footprint.complete


OVERWRITES = """
import torch
torch.save({"weight": torch.ones(3)}, "best.pt")
torch.load("best.pt")
open("last.pt", "rb").read()
torch.save({}, "last.pt")
"""


@pytest.mark.usefixtures("copy_on_write")
def test_a_checkpoint_of_its_own_that_it_loads_again_is_not_read(tmp_path: Path) -> None:
    """It was there before, and PyTorch overwrites it in native code."""
    for name in ("best.pt", "last.pt"):
        (tmp_path / name).write_bytes(b"")
    outcome = run(request(OVERWRITES, workdir=tmp_path, steps=None), tmp_path / "cache")
    assert {use.path for use in outcome.footprint.read} == {"train.py", "last.pt"}
