"""The copy-on-write world from inside: as a real run, but for what becomes of its changes."""

import json
import os
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import psutil
import pytest
import pytest_socket

from costgpu import errors
from costgpu.measure.failures import explain
from costgpu.measure.isolation import namespace, start
from costgpu.measure.isolation.levels import Isolation
from costgpu.measure.log.command import measure_command
from costgpu.measure.scratch import Scratch
from tests.measure.harness import HERE, request, run, running
from tests.until import until

pytestmark = pytest.mark.usefixtures("copy_on_write")
SOMEBODY = 4321  # not 65534: what is not mapped looks like that


@pytest.fixture
def work(tmp_path: Path) -> Path:
    folder = tmp_path / "work"
    folder.mkdir()
    return folder


def started(source: str, work: Path, scratch: Scratch) -> subprocess.Popen[bytes]:
    """A Python program in the copy-on-write world."""
    with scratch.log.open("wb") as output:
        command = start.IsolatedCommand([sys.executable, "-c", source], work, os.environ, output.fileno(), scratch)
        return start.start_isolated(command, Isolation.COPY_ON_WRITE).process


def said(source: str, work: Path) -> dict[str, object]:
    """What a Python program prints as JSON in the copy-on-write world."""
    scratch = Scratch.make(work.parent / "cache", "test")
    code = started(source, work, scratch).wait()
    text = scratch.log.read_text()
    assert code == 0, text
    found = json.loads(text)
    assert isinstance(found, dict)
    return found


def test_it_sees_what_it_has_done_and_nobody_else_does(work: Path) -> None:
    (work / "old").write_text("old")
    (work / "folder").mkdir()
    source = """
import glob, json, os, shutil
open("new", "w").write("x" * 100); os.remove("old"); os.mkdir("more"); os.rmdir("folder"); os.chmod("new", 0o600)
print(json.dumps({"listed": sorted(os.listdir(".")), "globbed": glob.glob("*ew"), "size": os.path.getsize("new"),
                  "ids": [os.getuid(), os.getgid()], "folder": os.getcwd(), "pid": os.getpid()}))
"""
    found = said(source, work)
    assert found["listed"] == ["more", "new"]
    assert (found["globbed"], found["size"]) == (["new"], 100)
    assert found["ids"] == [os.getuid(), os.getgid()]
    assert found["folder"] == str(work.resolve())
    assert sorted(path.name for path in work.iterdir()) == ["folder", "old"]


@pytest.fixture
def listener(work: Path) -> Iterator[Path]:
    """A socket at which somebody outside answers."""
    path = work / "socket"
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))
        server.listen()

        def answer() -> None:
            with suppress(OSError):  # It is shut down when the test ends.
                while True:
                    peer, _ = server.accept()
                    with peer:
                        peer.sendall(b"hello")

        answering = threading.Thread(target=answer)
        answering.start()
        try:
            yield path
        finally:
            server.shutdown(socket.SHUT_RDWR)
            answering.join()


def test_sockets_networks_and_shared_memory_work(work: Path, listener: Path) -> None:
    pytest_socket.enable_socket()
    server = socket.create_server(("127.0.0.1", 0))
    source = f"""
import json, socket
from multiprocessing import shared_memory
peer = socket.socket(socket.AF_UNIX); peer.connect("socket")
socket.create_connection(("127.0.0.1", {server.getsockname()[1]})).close()
block = shared_memory.SharedMemory(create=True, size=1 << 20, name="costgpu_test_block")
block.close(); block.unlink()
print(json.dumps({{"heard": peer.recv(5).decode(), "null": open("/dev/null", "w").write("x")}}))
"""
    with server:
        assert said(source, work) == {"heard": "hello", "null": 1}


def test_processes_of_others_and_controls_of_the_kernel_are_out_of_reach(work: Path) -> None:
    source = f"""
import json, os
def refused(action):
    try:
        action()
    except OSError as error:
        return type(error).__name__
    return "done"
print(json.dumps({{
    "kill": refused(lambda: os.kill({os.getpid()}, 0)),
    "proc": os.path.exists("/proc/{os.getpid()}/root"),
    "sysctl": refused(lambda: open("/proc/sys/kernel/hostname", "r+")),
    "sys": refused(lambda: open("/sys/kernel/mm/transparent_hugepage/enabled", "r+")),
    "disks": [name for name in os.listdir("/dev") if name[:2] in ("sd", "vd", "sg") or name[:4] in ("nvme", "loop")],
    "self": os.path.basename(os.readlink("/proc/self")) == str(os.getpid()),
}}))
"""
    found = said(source, work)
    assert found["kill"] == "ProcessLookupError"
    assert found["sysctl"] != "done"
    assert found["sys"] != "done"
    assert (found["proc"], found["disks"], found["self"]) == (False, [], True)


@pytest.mark.parametrize("own_processes", [True, False])
def test_the_launcher_shows_no_way_to_the_real_files(
    own_processes: bool, work: Path, listener: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither its program nor its folder, and nothing of a socket but what is said there."""
    (work / "old").write_text("old")
    mode, launch = listener.stat().st_mode, start._launch

    def forbidding(
        launcher: str, command: start.IsolatedCommand, **spec: object
    ) -> tuple[subprocess.Popen[bytes], str]:
        return launch(launcher, command, **{**spec, "own_processes": own_processes})

    monkeypatch.setattr(start, "_launch", forbidding)
    source = """
import json, os, stat
seen = []
for number in filter(str.isdigit, os.listdir("/proc")):
    try:
        ours = os.path.samefile(f"/proc/{number}/ns/mnt", "/proc/self/ns/mnt") and int(number) != os.getpid()
        program = f"/proc/{number}/exe"
        os.chmod(program, stat.S_IMODE(os.stat(program).st_mode)) if ours else None
        open(f"/proc/{number}/cwd/old", "w").write("gone") if ours else None
        seen += [number] if ours else []
    except OSError:
        pass
try:
    os.chmod("socket", 0)
    seen.append("socket")
except OSError:
    pass
print(json.dumps({"seen": seen}))
"""
    assert said(source, work) == {"seen": []}
    assert ((work / "old").read_text(), listener.stat().st_mode) == ("old", mode)


def test_nothing_is_left_mounted_and_nothing_runs_when_its_launcher_is_killed(work: Path) -> None:
    mounts = Path("/proc/self/mounts").read_text()
    scratch = Scratch.make(work.parent / "cache", "test")
    source = f"import os, time; os.fork() or os.setsid(); print('up', flush=True); time.sleep(300)  # {work}"
    launcher = started(source, work, scratch)
    until(lambda: scratch.log.read_text().count("up") == 2, 30)
    assert len(running(f"# {work}")) >= 3  # the launcher has the command in its own line
    launcher.kill()
    launcher.wait()
    until(lambda: not running(f"# {work}"), 30)
    assert Path("/proc/self/mounts").read_text() == mounts


def test_a_folder_that_was_there_can_be_renamed(work: Path, tmp_path: Path) -> None:
    (work / "runs" / "one").mkdir(parents=True)
    (work / "runs" / "one" / "log").write_text("log")
    script = """
import os, pathlib
os.rename("runs", "runs.old")
pathlib.Path("runs.old/one").rename("one")
print(sorted(os.listdir(".")), pathlib.Path("one/log").read_text())
"""
    asked = replace(request(script, workdir=work), isolation=Isolation.COPY_ON_WRITE)
    outcome = run(asked, tmp_path / "cache")
    assert "['one', 'runs.old', 'train.py'] log" in outcome.log.read_text()
    assert (work / "runs" / "one" / "log").read_text() == "log"


@pytest.mark.parametrize("write", ["open('big%d' % number, 'w').write(block)", "print(block, flush=True)"])
def test_what_fills_the_disk_is_ended_and_told(
    write: str, work: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With files, or with what it prints."""
    monkeypatch.setattr("costgpu.measure.isolation.layers.MAX_BYTES", 1 << 20)
    script = f"""
import time
block = 'x' * (1 << 20)
for number in range(10**6):
    {write}
    time.sleep(0.01)
"""
    asked = replace(request(script, workdir=work), isolation=Isolation.COPY_ON_WRITE)
    outcome = run(asked, tmp_path / "cache")
    error = explain(outcome, asked, HERE)
    assert isinstance(error, errors.WouldHarmFiles)
    assert "train.py wrote more than 1.0 MB" in error.message
    assert list(work.iterdir()) == [work / "train.py"]


def test_a_level_that_is_not_given_is_told_and_the_next_is_taken(
    work: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def forbidden(command: object) -> start.IsolatedProcess:
        raise start.NotGivenError("namespaces: unshare: Operation not permitted")

    monkeypatch.setattr(start, "_refused", {})
    monkeypatch.setitem(start._START, Isolation.COPY_ON_WRITE, forbidden)
    level, refused = start.examine_isolation(tmp_path)
    assert level is not Isolation.COPY_ON_WRITE
    assert "unshare" in refused[Isolation.COPY_ON_WRITE]
    with pytest.raises(errors.ConfigError, match="not permitted") as caught:
        measure_command(
            ["true"], work, tmp_path / "cache", lambda seconds, stepping: None, isolation=Isolation.COPY_ON_WRITE
        )
    assert "doctor" in caught.value.hint


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount")
@pytest.mark.parametrize("beside", [0, namespace.MAX_PARTS])
def test_a_crowded_folder_with_a_mount_in_it_is_whole_and_can_be_written(work: Path, beside: int) -> None:
    """Its entries are put together one by one, and what does not fit into memory is shown all the same.

    One that is too crowded for that is read-only, but for what leads to the working folder.
    """
    for number in range(beside):
        (work.parent / f"beside{number}").touch()
    mounted, crowd = work / "mounted", namespace.SKELETON_BYTES // namespace.MAX_COPIED + 300
    mounted.mkdir()
    for number in range(crowd):
        with (work / f"f{number:03}").open("wb") as file:
            file.truncate(namespace.MAX_COPIED)
    (work / "data").mkdir()
    source = """
import json, os
open("new", "wb").write(bytes(16 << 20)); open("data/new", "w").write("new"); open("mounted/new", "w").write("new")
print(json.dumps({"files": {os.path.getsize(n) for n in os.listdir(".") if n[0] == "f"}.pop(), "of": len(os.listdir("."))}))
"""
    script = f"""
import sys
from pathlib import Path
from costgpu.measure.isolation import namespace
from tests.measure.test_copy_on_write import said
namespace.mount("small", {str(mounted)!r}, "tmpfs")
print(said({source!r}, Path({str(work)!r})), sorted(path.name for path in Path({str(mounted)!r}).iterdir()))
"""
    answer = subprocess.run(
        ["unshare", "--mount", sys.executable, "-c", script], capture_output=True, text=True, check=False
    )
    assert answer.stdout == f"{{'files': {namespace.MAX_COPIED}, 'of': {crowd + 3}}} []\n", answer.stderr
    assert len(list(work.iterdir())) == crowd + 2


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that others may enter; those of pytest are closed again whenever another pytest starts."""
    with tempfile.TemporaryDirectory(prefix="costgpu-test-", dir="/tmp") as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be somebody else")
def test_a_user_without_privileges_gets_the_same(open_folder: Path) -> None:
    """In a folder of theirs below one that is root's."""
    launcher, home = open_folder / "namespace.py", open_folder / "home"
    launcher.write_bytes(Path(namespace.__file__).read_bytes())
    home.mkdir()
    os.chown(home, SOMEBODY, SOMEBODY)
    script = f"""
import json, os, subprocess, sys
os.chdir({str(home)!r}); os.makedirs("layers"); os.makedirs("open"); open("old", "w").write("old")
hear, tell = os.pipe()
json.dump({{"layers": os.path.abspath("layers"), "open": [os.path.abspath("open")], "needed": [os.getcwd(), "/tmp"],
            "wanted": [], "own_processes": True, "report": tell, "parent": os.getpid()}}, open("spec.json", "w"))
command = "rm old; echo new > new; echo t > /tmp/costgpu-written-$$; id -u; ls; touch /etc/costgpu-test || echo refused"
start = ["/usr/bin/python3", "-I", "-S", {str(launcher)!r}, os.path.abspath("spec.json")]
child = subprocess.Popen([*start, "/bin/sh", "-c", command], pass_fds=[tell], stdout=subprocess.PIPE, text=True)
os.close(tell)
print(os.read(hear, 1000).decode(), child.communicate()[0].split(), sorted(os.listdir(".")))
"""
    done = subprocess.run(
        ["/usr/bin/python3", "-c", script],
        user=SOMEBODY,
        group=SOMEBODY,
        extra_groups=[],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout.splitlines()[-1:] == [
        "ready ['4321', 'layers', 'new', 'open', 'spec.json', 'refused'] ['layers', 'old', 'open', 'spec.json']"
    ], done.stdout + done.stderr
    assert not [path for path in Path("/tmp").glob("costgpu-written-*") if path.stat().st_uid == SOMEBODY]


def test_no_process_of_ours_is_left(work: Path) -> None:
    before = {child.pid for child in psutil.Process().children(recursive=True)}
    assert said("print('{}')", work) == {}
    assert {child.pid for child in psutil.Process().children(recursive=True)} <= before
