"""What a program cannot do that may write in one folder only, as root and as nobody; in real processes."""

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from costgpu.errors import WouldHarmFiles
from costgpu.measure.failures import explain
from costgpu.measure.isolation import landlock
from costgpu.measure.isolation.levels import Isolation
from tests.measure.harness import HERE, request, run
from tests.shared_memory import shared_memory
from tests.until import until

pytestmark = pytest.mark.skipif(not landlock.supported(), reason="no Landlock in this kernel")

NOBODY = 65534
PYTHON = shutil.which("python3", path="/usr/bin:/usr/local/bin:/bin") or sys.executable
LIBC = "import ctypes, os; libc = ctypes.CDLL(None, use_errno=True)\n"
# A program for each right and each system call that is refused (`destructive` has hundreds more), in a folder that holds
# `file`, `folder/inner` and `link` to the file; a shell's, or Python's that begin with #py.
HARM = {
    "overwrite": "echo harm > file",
    "cut short": "truncate -s 0 file",
    "cut short by path": f"#py\n{LIBC}raise SystemExit(libc.truncate(b'file', 0))",
    "cut short while read": "#py\nimport os; os.open('file', os.O_RDONLY | os.O_TRUNC)",
    "remove": "rm -f file",
    "remove a folder": "rm -rf folder",
    "rename": "mv file other",
    "rename over": "mv folder/inner file",
    "rename from outside": "echo x > $FREE/new && mv -f $FREE/new file",
    "rename to outside": "mv file $FREE/taken",
    "hard link out, then write": "ln file $FREE/linked && echo harm > $FREE/linked",
    "link into, then write": "ln -s $PWD/file $FREE/linked && echo harm > $FREE/linked",
    "new file": ": > new",
    "new folder": "mkdir new",
    "new pipe": "mkfifo new",
    "new socket": "#py\nimport socket; socket.socket(socket.AF_UNIX).bind('new')",
    "device of the disk": "mknod $FREE/disk b 1 0",
    "mode": "chmod 600 file; test $(stat -c %a file) = 600",
    "mode through a descriptor": (
        "#py\nimport os; os.fchmod(os.open('file', 0), 0o600); raise SystemExit(os.stat('file').st_mode & 0o777 != 0o600)"
    ),
    "owner": "chown 1:1 file; test $(stat -c %u file) = 1",
    "time": "touch -d 2001-01-01 file; test $(stat -c %Y file) -lt 1000000000",
    "attribute": "#py\nimport os; os.setxattr('file', 'user.harm', b'x')",
    "flags": "chattr +i file",
    "shared memory map": "#py\nimport mmap; mmap.mmap(open('file', 'r+').fileno(), 0)[:1] = b'h'",
    "through /proc": "exec 3< file; echo harm > /proc/self/fd/3",
    "by a child of a child": "sh -c 'sh -c \"echo harm > file\"'",
    "by a daemon": "setsid sh -c 'echo harm > file' & wait $!",
    "in new namespaces": "unshare -Ur rm file",
    "in a mount": "mount -t tmpfs none folder || unshare -Urm mount -t tmpfs none folder",
    "by handle": f"#py\n{LIBC}raise SystemExit(libc.open_by_handle_at(-100, ctypes.create_string_buffer(200), 2))",
    "by io_uring": f"#py\n{LIBC}raise SystemExit(libc.syscall(425, 8, ctypes.create_string_buffer(200)))",
    "into another process": "echo x > /proc/$PARENT/comm",
    "killing what measures": "kill -9 $PARENT",
    "killing all": "kill -9 -1; false",
}
USES = {  # what must work all the same
    "write": "echo x > $FREE/new && test $(cat $FREE/new) = x",
    "rename between folders": "mkdir -p $FREE/a $FREE/b && echo x > $FREE/a/x && mv $FREE/a/x $FREE/b/ && cat $FREE/b/x",
    "remove": "mkdir $FREE/c && touch $FREE/c/x && rm -r $FREE/c && test ! -e $FREE/c",
    "copy with mode and times": "cp -a file $FREE/copy && cmp file $FREE/copy",
    "devices": "echo x > /dev/null && head -c 3 /dev/zero > /dev/null",
    "signals to its own": "sleep 60 & kill $! && ! wait $!",
    "semaphores and shared memory": (
        "#py\nimport multiprocessing, multiprocessing.shared_memory as shared\nmultiprocessing.Lock()\n"
        "block = shared.SharedMemory(create=True, size=9); block.buf[0] = 1; block.close(); block.unlink()"
    ),
    "sockets": "#py\nimport os, socket; socket.socket(socket.AF_UNIX).bind(os.environ['FREE'] + '/s')",
    "a pseudo-terminal": "#py\nimport os; a, b = os.openpty(); os.write(a, b'x')",
}


@dataclass(frozen=True)
class World:
    """A user's folder, and one that is free."""

    mine: Path
    free: Path
    user: int

    def run(self, script: str, *, writable: list[Path] | None = None) -> subprocess.CompletedProcess[str]:
        command = [PYTHON, "-c", script] if script.startswith("#py") else ["sh", "-c", script]
        reader, writer = os.pipe()
        spec = {**landlock.specification(writable or [self.free]), "report": writer}
        (self.mine.parent / "spec.json").write_text(json.dumps(spec))
        child = subprocess.Popen(
            [PYTHON, "-I", "-S", str(self.mine.parent / "landlock.py"), str(self.mine.parent / "spec.json"), *command],
            cwd=self.mine,
            env={"PATH": os.environ["PATH"], "FREE": str(self.free), "PARENT": str(os.getpid())},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            pass_fds=(writer,),
            user=self.user,
            group=self.user,
            extra_groups=[] if os.getuid() == 0 else None,
        )
        os.close(writer)
        output, _ = child.communicate()
        with os.fdopen(reader) as report:
            assert report.read() == "ready", output
        return subprocess.CompletedProcess(command, child.returncode, output)

    def state(self) -> dict[str, tuple[object, ...]]:
        found: dict[str, tuple[object, ...]] = {}
        for path in [self.mine, *sorted(self.mine.rglob("*"))]:
            there = path.lstat()
            content = path.read_bytes() if path.is_file() else ""
            times = (there.st_mtime_ns, there.st_ctime_ns)
            found[str(path)] = (content, there.st_mode, there.st_uid, times, there.st_nlink, os.listxattr(path))
        return found


@pytest.fixture(params=["self", "nobody"])
def world(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    if request.param == "nobody" and os.getuid() != 0:
        pytest.skip("only root can be nobody")
    base = Path("/tmp") / f"costgpu-test-{os.getpid()}-{time.monotonic_ns()}"  # a folder that nobody may enter, too
    base.mkdir(mode=0o755)
    made = World(base / "mine", base / "free", NOBODY if request.param == "nobody" else os.getuid())
    (made.mine / "folder").mkdir(parents=True)
    made.free.mkdir()
    (made.mine / "file").write_text("before\n")
    (made.mine / "folder/inner").write_text("before\n")
    (made.mine / "link").symlink_to("file")
    shutil.copy(landlock.__file__, base / "landlock.py")
    for path in [base, *base.rglob("*")]:
        os.chown(path, made.user, made.user, follow_symlinks=False)
    yield made
    shutil.rmtree(base)


@pytest.mark.parametrize("harm", HARM)
def test_the_file_stays(harm: str, world: World) -> None:
    before = world.state()
    done = world.run(HARM[harm])
    assert world.state() == before
    assert done.returncode != 0, done.stdout


@pytest.mark.parametrize("use", USES)
def test_what_must_work_works(use: str, world: World) -> None:
    with shared_memory(alone=True):
        if "shared memory" in use and not landlock.shared_memory_is_free():
            pytest.skip("somebody keeps data in the folder of shared memory")
        done = world.run(USES[use])
    assert done.returncode == 0, done.stdout


def test_modes_and_times_seem_to_be_set(world: World) -> None:
    """What sets them fails for good where it may not; what looks afterwards is rare."""
    before = world.state()
    script = "chmod 600 file && touch -d 2001-01-01 file && chown $(id -u) file && cp -p file $FREE/copy"
    assert world.run(script).returncode == 0
    assert world.state() == before


def test_what_others_keep_in_shared_memory_stays(world: World) -> None:
    data = Path(f"/dev/shm/costgpu-test-{os.getpid()}-{world.user}")
    with shared_memory(alone=True):
        data.write_text("before")
        os.chown(data, world.user, world.user)
        try:
            assert world.run(f"rm {data}").returncode != 0
            assert world.run(f"echo harm > {data}").returncode != 0
            assert data.read_text() == "before"
        finally:
            data.unlink()


def test_it_ends_with_what_started_it(world: World) -> None:
    """Also if that is gone before."""
    reader, writer = os.pipe()
    spec = {**landlock.specification([world.free]), "parent": 1, "report": writer}
    (world.free / "spec.json").write_text(json.dumps(spec))
    done = subprocess.run(
        [PYTHON, "-I", "-S", landlock.__file__, str(world.free / "spec.json"), "true"], pass_fds=(writer,), check=False
    )
    os.close(writer)
    with os.fdopen(reader) as report:
        assert "is gone" in report.read()
    assert done.returncode == landlock.UNSUPPORTED
    middle = (
        "import json, os, subprocess, sys, time\nfrom pathlib import Path\n"
        "from costgpu.measure.isolation import landlock\n"
        f"free = Path({str(world.free)!r})\n"
        "spec = {**landlock.specification([free]), 'report': 1}\n"
        "(free / 'spec.json').write_text(json.dumps(spec))\n"
        "command = [sys.executable, '-I', '-S', landlock.__file__, str(free / 'spec.json'), 'sleep', '600']\n"
        "child = subprocess.Popen(command)\nprint(child.pid, flush=True)\ntime.sleep(600)\n"
    )
    parent = subprocess.Popen([sys.executable, "-c", middle], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    pid = parent.stdout.readline().strip()
    pid = pid.removeprefix("ready") or parent.stdout.readline().strip().removeprefix("ready")
    parent.kill()
    parent.wait()
    parent.stdout.close()
    until(lambda: not _runs(int(pid)), 20)


def _runs(pid: int) -> bool:
    try:
        return "State:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False


SCRIPT = """
import os, pathlib, subprocess, sys
with open("kept", "a") as stream:
    stream.write(" and after")
with open("new", "w") as stream:
    stream.write("made")
os.remove("gone")
print(sorted(os.listdir()), open("kept").read(), subprocess.run(["cat", "new"], capture_output=True, text=True).stdout)
print(open("../beside/file").read(), open("large").read(), os.path.islink("large"), sys.argv[1] == os.path.abspath("kept"))
with open("/dev/stdout", "a") as stream:
    stream.write("to a name\\n")
subprocess.run("echo of a shell >> /dev/stderr", shell=True, check=True)
subprocess.run(["rm", "-r", "folder"], check=True)
pathlib.Path.home().joinpath(".cache/tool").mkdir(parents=True)
pathlib.Path.home().joinpath(".cache/tool/file").write_text("x")
"""


@pytest.mark.parametrize("level", [Isolation.WRITE_PROTECTED, Isolation.COPY])
def test_a_script_changes_a_copy_of_its_folder(
    level: Isolation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("costgpu.measure.isolation.folder_copy.MAX_FILE_BYTES", 1000)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    work = tmp_path / "home/work"
    (work / "folder").mkdir(parents=True)
    (tmp_path / "home/.cache").mkdir()
    (tmp_path / "home/beside").mkdir()
    for name in ("kept", "gone", "folder/inner", "../beside/file"):
        (work / name).write_text("before")
    (work / "large").write_text("large" * 300)
    asked = replace(request(SCRIPT, str(work / "kept"), workdir=work), isolation=level)
    outcome = run(asked, tmp_path / "cache")
    first, second, *others = outcome.log.read_text().splitlines()
    assert first == "['folder', 'kept', 'large', 'new', 'train.py'] before and after made"
    assert second == f"before {'large' * 300} True True"
    assert others == ["to a name", "of a shell"]
    assert sorted(path.name for path in work.rglob("*")) == ["folder", "gone", "inner", "kept", "large", "train.py"]
    assert {(work / name).read_text() for name in ("kept", "gone", "folder/inner")} == {"before"}
    assert list((tmp_path / "home/.cache").iterdir()) == []
    assert outcome.changes.changed == [str(work / "kept")]
    assert outcome.changes.created == [f"{tmp_path}/home/.cache/tool/file", str(work / "new")]
    assert outcome.changes.removed == [str(work / "folder/inner"), str(work / "gone")]
    assert {use.path for use in outcome.footprint.read} >= {"kept", "large"}
    assert [path for path in (tmp_path / "cache/measurements").iterdir() if path != outcome.scratch] == []
    left = {
        path.relative_to(outcome.scratch / "copy") for path in (outcome.scratch / "copy").rglob("*") if path.is_file()
    }
    assert {f"/{path}" for path in left} == {*outcome.changes.changed, *outcome.changes.created}


def test_a_script_that_a_refused_write_ends_is_told_which(tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    (tmp_path / "beside").write_text("before")
    script = f"open({str(tmp_path / 'beside')!r}, 'w')\n"
    asked = replace(request(script, workdir=tmp_path / "work"), isolation=Isolation.WRITE_PROTECTED)
    error = explain(run(asked, tmp_path / "cache"), asked, HERE)
    assert isinstance(error, WouldHarmFiles)
    assert error.message.endswith(str(tmp_path / "beside"))
    assert (tmp_path / "beside").read_text() == "before"


LIBRARIES = """
import h5py, os, torch
from safetensors.torch import load_file, save_file
for mode in ("w", "a", "r+"):
    with h5py.File("old.h5", mode) as file:
        file.attrs[mode] = 1
        print(sorted(file.attrs))
try:
    h5py.File("old.h5", "x")
except FileExistsError:
    print("there")
with h5py.File("new.h5", "x") as file:
    file.attrs["new"] = 1
with h5py.File("new.h5") as file:
    print(sorted(file.attrs))
save_file({"a": torch.zeros(2)}, "model.safetensors")
torch.jit.script(torch.nn.Linear(1, 1)).save("scripted.pt")
torch.save([1], "model.pt")
print(list(load_file("model.safetensors")), torch.jit.load("scripted.pt").original_name, torch.load("model.pt"))
"""


@pytest.mark.torch
@pytest.mark.frameworks
def test_libraries_read_what_they_wrote(tmp_path: Path) -> None:
    h5py = pytest.importorskip("h5py")
    pytest.importorskip("safetensors")
    work = tmp_path / "work"
    work.mkdir()
    with h5py.File(work / "old.h5", "w") as file:
        file.attrs["before"] = 1
    before = (work / "old.h5").read_bytes()
    outcome = run(replace(request(LIBRARIES, workdir=work), isolation=Isolation.WRITE_PROTECTED), tmp_path / "cache")
    assert outcome.log.read_text().splitlines() == [
        *("['w']", "['a', 'w']", "['a', 'r+', 'w']", "there", "['new']"),
        "['a'] Linear [1]",
    ]
    assert sorted(path.name for path in work.iterdir()) == ["old.h5", "train.py"]
    assert (work / "old.h5").read_bytes() == before
