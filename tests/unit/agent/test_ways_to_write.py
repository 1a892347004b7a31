"""Forty ways to write outputs, on a rented machine in a temporary folder: all of them come home, and nothing else does.

One file of more than 400 lines: most of it is one table.
"""

import errno
import io
import json
import mmap
import os
import shutil
import tarfile
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from costgpu.job.agent import main
from costgpu.job.agent.outputs import find_outputs, kept_away, outside
from costgpu.job.agent.state_files import Home
from costgpu.job.drive.collect import bring_home, staying_error
from costgpu.job.files import agent_report
from costgpu.job.files.download import fetch_verified
from costgpu.job.files.place_outputs import PlacedOutputs, fetch_and_place
from costgpu.job.machine.transport.local import LocalTransport
from costgpu.models.job import FileEntry, Outputs
from tests.unit.agent.test_workdir import _arrive, refuse

OLD = 1_600_000_000
USER = "home/ubuntu"


class Machine:
    """A rented machine whose whole file system is one folder."""

    def __init__(self, folder: Path) -> None:
        self.root = folder / "machine"
        self.agent = self.root / "opt/costgpu"
        self.user = self.root / USER
        for path in (
            self.agent / "work",
            self.user,
            *(self.root / name for name in ("tmp", "var/tmp", "dev/shm", "etc")),
        ):
            path.mkdir(parents=True)
        self.home = Home(str(self.agent))
        self.home.remote, self.home.root = True, str(self.root)
        self.work = Path(self.home.work)
        _arrive(self.home, {"sent.txt": b"1", "sent_dir/data.csv": b"2", "step-9/x": b"9"}, {"link_sent": "step-9"})

    def begin(self, seconds: float = 0.0) -> None:
        """The job begins now; by the clock that stamps files."""
        clock = self.root / "etc/clock"
        before = put(clock).stat().st_ctime_ns
        while clock.stat().st_ctime_ns == before:  # a few milliseconds: all that is there is older
            clock.touch()
        epoch = clock.stat().st_ctime + kept_away._CLOCK_SECONDS
        began = {"job_started_epoch": epoch, "started_epoch": epoch, "phase": "running"}
        self.home.write("progress.json", began)
        if seconds:
            self.home.write("exit.json", {"exit_code": 0, "finished_epoch": epoch + seconds})

    def outputs(self) -> Outputs:
        """As the agent tells them, and as they arrive."""
        return agent_report.outputs(json.loads(json.dumps(main._call(self.home, {"method": "outputs"}))))

    def fetch(self, entries: Sequence[FileEntry], folder: Path) -> None:
        """As `AgentHost.fetch`."""
        fetch_verified(LocalTransport(self.agent).download, self.home.work, entries, folder)

    def bring(self, outputs: Outputs, here: Path) -> PlacedOutputs:
        return fetch_and_place(self, outputs.files, workdir=here, run_id="r", folders=outputs.folders)


def put(path: Path, text: str = "x") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def link(path: Path, target: Path | str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.symlink_to(target)
    return path


def _renamed(m: Machine) -> None:
    put(m.work / "atomic/.model.pt.tmp").replace(m.work / "atomic/model.pt")


def _sparse(m: Machine) -> None:
    with (m.work / "sparse.bin").open("wb") as file:
        file.truncate(64 << 20)
        file.seek(32 << 20)
        file.write(b"x")


def _mapped(m: Machine) -> None:
    put(m.work / "mapped.bin", "0" * 4096)
    with (m.work / "mapped.bin").open("r+b") as file, mmap.mmap(file.fileno(), 4096) as memory:
        memory[:1] = b"1"


def _unpacked(m: Machine) -> None:
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w") as archive:
        member = tarfile.TarInfo("unpacked.txt")
        member.size, member.mtime = 1, OLD
        archive.addfile(member, io.BytesIO(b"x"))
    data.seek(0)
    with tarfile.open(fileobj=data) as archive:
        archive.extractall(m.root / "tmp", filter="data")


def _in_another_folder(m: Machine) -> None:
    before = Path.cwd()
    os.chdir(m.root / "var/tmp")
    try:
        Path("relative.txt").write_text("x")
    finally:
        os.chdir(before)


def _folder_renamed(m: Machine) -> None:
    put(m.work / "unfinished/shard/0").parent.parent.rename(m.work / "finished")


def _bytes_name(m: Machine) -> None:
    Path(os.fsdecode(os.fsencode(m.work) + b"/caf\xe9\n.txt")).write_text("x")


def _same_size_old_time(m: Machine) -> None:
    put(m.work / "sent.txt", "2")
    os.utime(m.work / "sent.txt", (OLD, OLD))


# How it is written -> where it comes home.
WAYS: dict[str, tuple[Callable[[Machine], object], list[str]]] = {
    "a new file": (lambda m: put(m.work / "model.pt"), ["model.pt"]),
    "deep below": (lambda m: put(m.work / "a/b/c/d.txt"), ["a/b/c/d.txt"]),
    "an empty file": (lambda m: put(m.work / "empty", ""), ["empty"]),
    "a hidden file": (lambda m: put(m.work / ".hidden/.state"), [".hidden/.state"]),
    "a file that was sent, longer": (lambda m: put(m.work / "sent_dir/data.csv", "2,3"), ["sent_dir/data.csv"]),
    "the same size, with an old time": (_same_size_old_time, ["sent.txt"]),
    "renamed into place": (_renamed, ["atomic/model.pt"]),
    "sparse": (_sparse, ["sparse.bin"]),
    "through a map of memory": (_mapped, ["mapped.bin"]),
    "in a folder that is then renamed": (_folder_renamed, ["finished/shard/0"]),
    "a name that is no text, with a new line": (_bytes_name, ["caf\udce9\n.txt"]),
    "the longest name": (lambda m: put(m.work / ("n" * 255)), ["n" * 255]),
    "read-only": (lambda m: put(m.work / "ro").chmod(0o444), ["ro"]),
    "a hard link": (lambda m: os.link(put(m.work / "hard/a"), m.work / "hard/b"), ["hard/a", "hard/b"]),
    "a folder called outside": (lambda m: put(m.work / "outside/tmp/plain.txt"), ["outside/tmp/plain.txt"]),
    "a link to a file beside it": (
        lambda m: link(m.work / "ckpt/last", put(m.work / "ckpt/epoch=3").name),
        ["ckpt/epoch=3", "ckpt/last"],
    ),
    "a link to a folder inside": (
        lambda m: link(m.work / "runs/latest", put(m.work / "runs/step-10/x").parent.name),
        ["runs/step-10/x", "runs/latest/x"],
    ),
    "a link to a file outside": (lambda m: link(m.work / "best.pt", put(m.root / "scratch/big.pt")), ["best.pt"]),
    "a link to a folder outside": (
        lambda m: link(m.work / "results", put(m.root / "scratch/r/final.pt").parent),
        ["results/final.pt"],
    ),
    "a relative link out of the folder": (
        lambda m: (put(m.agent / "beside/w.pt"), link(m.work / "rel", "../beside")),
        ["rel/w.pt"],
    ),
    "links that lead to each other": (
        lambda m: (
            link(m.work / "ring/a/to_b", "../b"),
            put(m.work / "ring/b/x"),
            link(m.work / "ring/b/to_a", "../a"),
        ),
        ["ring/b/x", "ring/a/to_b/x"],
    ),
    "a link over a link outside": (
        lambda m: (
            put(m.root / "scratch/two/y"),
            link(m.root / "scratch/hop", "two"),
            link(m.work / "h", m.root / "scratch/hop"),
        ),
        ["h/y"],
    ),
    "a link to a folder of the home": (lambda m: link(m.work / "up", put(m.user / "linked/z").parent), ["up/z"]),
    "the home": (lambda m: put(m.user / "results/model.pt"), [f"outside-2/{USER}/results/model.pt"]),
    "a file in the home": (lambda m: put(m.user / "metrics.json"), [f"outside-2/{USER}/metrics.json"]),
    "..": (lambda m: put(m.work / "../results_up/w.pt"), ["outside-2/parent/results_up/w.pt"]),
    "a file in ..": (lambda m: put(m.work / "../results.json"), ["outside-2/parent/results.json"]),
    "../checkpoints": (lambda m: put(m.agent / "checkpoints/last.pt"), ["outside-2/parent/checkpoints/last.pt"]),
    "../..": (lambda m: put(m.work / "../../up2.txt"), ["outside-2/opt/up2.txt"]),
    "/tmp": (lambda m: put(m.root / "tmp/plain.txt"), ["outside-2/tmp/plain.txt"]),
    "a folder of tempfile": (lambda m: put(m.root / "tmp/tmpab12_x9z/w.pt"), ["outside-2/tmp/tmpab12_x9z/w.pt"]),
    "/var/tmp, by a change of folder": (_in_another_folder, ["outside-2/var/tmp/relative.txt"]),
    "/dev/shm": (lambda m: put(m.root / "dev/shm/state.bin"), ["outside-2/dev/shm/state.bin"]),
    "/mnt": (lambda m: put(m.root / "mnt/disk/out/a"), ["outside-2/mnt/disk/out/a"]),
    "a folder at the top": (lambda m: put(m.root / "checkpoints/b"), ["outside-2/checkpoints/b"]),
    "another home": (lambda m: put(m.root / "root/out/c"), ["outside-2/root/out/c"]),
    "/usr/local": (lambda m: put(m.root / "usr/local/results/d"), ["outside-2/usr/local/results/d"]),
    "copied with its time": (
        lambda m: shutil.copy2(m.work / "sent.txt", m.user / "copied.txt"),
        [f"outside-2/{USER}/copied.txt"],
    ),
    "unpacked with its time": (_unpacked, ["outside-2/tmp/unpacked.txt"]),
    "moved from before the job": (
        lambda m: (m.root / "srv/before").rename(m.root / "srv/moved"),
        ["outside-2/srv/moved"],
    ),
    "a file of the image, changed": (lambda m: put(m.root / "srv/image.cfg", "2"), ["outside-2/srv/image.cfg"]),
    "/data, executable": (lambda m: put(m.root / "data/run.sh").chmod(0o755), ["outside-2/data/run.sh"]),
    "a name with a blank and a quote": (lambda m: put(m.root / "tmp/it's a/b c"), ["outside-2/tmp/it's a/b c"]),
}

# What nobody wants: not made by the job, or a cache, a secret, a place of the system, a library's leftovers.
STAYS = (
    "etc/hosts usr/lib/x.py var/log/syslog proc/1 run/lock opt/costgpu/venv/bin/python opt/costgpu/state.json"
    " tmp/ray/session_1/log opt/costgpu/agent-0123.pyz tmp/pymp-ab12cd34/x dev/shm/sem.x dev/shm/torch_1_2 tmp/.X11-unix/X0"
    f" {USER}/.cache/pip/x {USER}/.ssh/id_rsa {USER}/.env {USER}/.aws/credentials {USER}/.netrc"
    f" {USER}/hub/CACHEDIR.TAG {USER}/hub/blob {USER}/venv/pyvenv.cfg {USER}/venv/lib/x.py {USER}/src/__pycache__/a.pyc"
).split()


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def test_all_ways_to_write_come_home(machine: Machine, tmp_path: Path) -> None:
    put(machine.root / "srv/before")
    put(machine.root / "srv/image.cfg", "1")
    put(machine.root / "scratch/r/from_the_image.bin")
    os.utime(put(machine.root / "srv/untouched"), (OLD, OLD))
    machine.begin()
    for name in STAYS:
        put(machine.root / name)
    for write, _ in WAYS.values():
        write(machine)
    (machine.work / "empty_folder/in").mkdir(parents=True)
    outputs = machine.outputs()
    assert outputs.unreadable == {}
    expected = {path for _, paths in WAYS.values() for path in paths}
    assert len(WAYS) >= 40
    secrets = {f"{machine.user}/{name}" for name in (".ssh", ".env", ".aws", ".netrc")}
    assert {path for path, why in outputs.elsewhere.items() if why == kept_away.SECRET} == secrets
    assert {each.path for each in outputs.files} == expected
    placed = machine.bring(outputs, tmp_path / "here")
    assert (placed.files, placed.stuck, placed.left_out) == (len(expected), (), {})
    sources = {each.path: Path(each.source or machine.work / each.path) for each in outputs.files}
    for path, source in sources.items():
        assert (tmp_path / "here" / path).read_bytes() == source.read_bytes(), path
    assert (tmp_path / "here/empty_folder/in").is_dir()
    assert (tmp_path / "here/outside-2/.gitignore").read_text() == "*\n"
    assert (placed.outside_folder, placed.outside) == ("outside-2", sum(bool(each.source) for each in outputs.files))


def test_links_that_bring_nothing_are_named(machine: Machine) -> None:
    machine.begin()
    link(machine.work / "dangling", "nowhere")
    link(machine.work / "self", "self")
    link(machine.work / "all", machine.root)
    link(machine.work / "system", machine.root / "etc")
    link(machine.work / "loop", ".")
    link(machine.work / "keys", put(machine.user / ".ssh/id_rsa").parent)
    (machine.work / "link_sent").unlink()
    link(machine.work / "link_sent", put(machine.work / "step-10/x").parent.name)
    outputs = machine.outputs()
    assert [each.path for each in outputs.files] == ["step-10/x"]
    assert outputs.elsewhere == {
        "dangling": "a link to nowhere, where nothing is",
        "self": "a link that leads to itself",
        "all": f"a link to {machine.root}: a folder around the working folder",
        "system": f"a link to {machine.root}/etc: a place of the system",
        "loop": f"a link to {machine.work}, in which it is itself",
        "keys": f"a link to {machine.user}/.ssh: secret by its name",
        "link_sent": "a link that now leads to step-10",
    }
    said = bring_home(machine, outputs, home=machine.root / "here", run_id="r").remarks
    assert "dangling (a link to nowhere" in said[-1]


def test_on_this_computer_what_is_elsewhere_is_the_users_own_and_what_lies_beside_comes(
    machine: Machine, tmp_path: Path
) -> None:
    machine.home.remote = False
    machine.begin()
    link(machine.work / "results", put(machine.root / "scratch/r/final.pt").parent)
    put(machine.user / "results/model.pt")
    put(machine.work / "../results_up/w.pt")
    outputs = machine.outputs()
    assert [each.path for each in outputs.files] == ["outside/parent/results_up/w.pt"]
    assert outputs.elsewhere == {"results": f"a link to {machine.root}/scratch/r: outside, on this computer"}
    machine.home.write("order.json", {"outputs": ["results/", "results/*.pt", "res*", "nowhere"]})
    assert machine.outputs().missing == ("nowhere",)
    machine.home.write("order.json", {})
    machine.bring(outputs, tmp_path / "here")
    assert (tmp_path / "here/outside/parent/results_up/w.pt").read_text() == "x"


def test_named_outputs_are_all_that_comes_and_none_is_nothing(machine: Machine) -> None:
    machine.begin(seconds=7200)
    put(machine.user / "results/model.pt")
    link(machine.work / "results", put(machine.root / "scratch/r/final.pt").parent)
    for patterns, expected in (
        (["results/"], ["results/final.pt"]),
        (["results/*.pt"], ["results/final.pt"]),
        (["none"], []),
    ):
        machine.home.write("order.json", {"outputs": patterns})
        outputs = machine.outputs()
        assert ([each.path for each in outputs.files], outputs.missing, outputs.trouble) == (expected, (), "")
    machine.home.write("order.json", {"outputs": ["model.pt"]})  # which is elsewhere
    outputs = machine.outputs()
    assert (outputs.files[0].path, outputs.missing) == (
        f"outside/{USER}/results/model.pt",
        ("model.pt",),
    )


@pytest.mark.parametrize(
    ("seconds", "code", "order", "remote", "holds"),
    [
        (61.0, 0, {}, True, True),
        (59.0, 0, {}, True, False),
        (3600.0, 1, {}, True, False),  # it says itself that it has failed
        (3600.0, 0, {"outputs": ["none"]}, True, False),
        (3600.0, 0, {"keep_outputs": False}, True, False),
        (3600.0, 0, {"rendezvous": {"node": 1}}, True, False),
        (3600.0, 0, {}, False, False),
    ],
)
def test_a_job_that_has_worked_and_made_nothing_holds_a_rented_machine(
    machine: Machine, seconds: float, code: int, order: dict[str, object], remote: bool, holds: bool
) -> None:
    machine.home.remote = remote
    machine.begin(seconds)
    machine.home.write("exit.json", {**(machine.home.read("exit.json") or {}), "exit_code": code})
    machine.home.write("order.json", {"outputs": [], **order})
    (machine.work / "empty").mkdir()
    outputs = machine.outputs()
    error = staying_error(outputs, PlacedOutputs(files=0, bytes=0))
    assert (error is not None) == holds
    if error is not None:
        assert "61 s and has left no outputs" in error.message
        assert "/var/tmp" in error.message
        assert "--outputs none" in error.hint


def test_more_than_can_be_brought_holds_the_machine_and_keeps_nothing_else_there(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outside, "MOST_BYTES", 5)
    machine.begin()
    put(machine.work / "model.pt")
    put(machine.root / "data/set/part/1", "123456")
    outputs = machine.outputs()
    assert [each.path for each in outputs.files] == ["model.pt"]
    (folder,) = outputs.unreadable
    assert folder.startswith(str(machine.root)[:4])
    assert "1 files, 0.0 GiB" in outputs.unreadable[folder]


def test_what_has_no_room_here_stays_on_the_machine_and_all_else_comes(
    machine: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine.begin()
    put(machine.work / "model.pt")
    put(machine.root / "data/big.bin", "1" * 1000)
    outputs = machine.outputs()
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage._replace(free=(16 << 20) + 500))
    placed = machine.bring(outputs, tmp_path / "here")
    assert (placed.files, placed.left_out) == (1, {"outside/data/big.bin": "there is no room for it here"})
    assert staying_error(outputs, placed) is not None


def test_a_folder_of_the_users_called_outside_is_not_taken_over(machine: Machine, tmp_path: Path) -> None:
    put(tmp_path / "here/outside/tmp/plain.txt", "mine")
    machine.begin()
    put(machine.root / "tmp/plain.txt", "the job's")
    placed = machine.bring(machine.outputs(), tmp_path / "here")
    assert [each.read_text() for each in placed.replaced] == ["mine"]
    assert not (tmp_path / "here/outside/.gitignore").exists()


def test_an_unreadable_file_outside_holds_the_machine(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    machine.begin()
    put(machine.user / "locked")
    refuse(monkeypatch, find_outputs, "file_sha256", {"locked": errno.EACCES})
    assert machine.outputs().unreadable == {f"outside/{USER}/locked": "Permission denied"}


_NOT_LIBRARIES_NAMES = """
    tmp/snap.pt tmp/ssh-model.pt tmp/nccl-model.pt tmp/sem.csv tmp/torch_1_model.pt tmp/ray/results/x tmp/pip-results1/x
    tmp/torch_1_2 tmp/ccresult.c tmp/matplotlib-results1/x usr/local/cuda_results.csv usr/local/cuda-results/x
    dev/shm/torch_1_model dev/shm/nccl-model.pt tmp/snap.results/x tmp/tmux-log.txt tmp/ray.csv
"""
_NOT_OWN_NAMES = """
    agent.pt env.txt status.json.bak ray.csv limits.txt checkpoint.json5 agent-model.pyz agent-0123.pyz.csv .state.json
    progress.json.1 ray/results/x limits/x status.json.aside-1/x model.new checkpoints.new
"""


def test_names_that_only_look_like_those_of_costgpu_and_of_libraries_come(machine: Machine) -> None:
    machine.begin()
    for name in _NOT_LIBRARIES_NAMES.split():
        put(machine.root / name)
    for name in _NOT_OWN_NAMES.split():
        put(machine.agent / name)
    expected = [f"outside/{name}" for name in _NOT_LIBRARIES_NAMES.split()]
    expected += [f"outside/parent/{name}" for name in _NOT_OWN_NAMES.split()]
    assert sorted(each.path for each in machine.outputs().files) == sorted(expected)


def test_what_costgpu_and_libraries_have_made_stays(machine: Machine) -> None:
    machine.begin()
    own = "agent.log .noted.json.new status.json.12-34.new agent-0123456789abcdef.pyz.new rank-logs/0/x"
    for name in (*own.split(), "checkpoints/" + "a" * 64):
        put(machine.agent / name)
    for name in (
        "tmp/.X99-lock dev/shm/nccl-aB3dE6 dev/shm/psm_0123abcd dev/shm/sem.mp-x tmp/torchelastic_a1b2c3d4/none/0/x"
        f" tmp/torchinductor_root/x tmp/systemd-private-{'a' * 32}-x/y usr/local/cuda-12.4/x tmp/pip-req-build-a1b2c3d4/x"
    ).split():
        put(machine.root / name)
    assert machine.outputs().files == ()
    assert machine.outputs().files == ()


def test_a_link_to_a_cache_brings_what_the_job_made_there_and_names_secrets(machine: Machine) -> None:
    put(machine.user / ".cache/ck/old.pt")
    put(machine.user / ".cache/ck/old.key")
    put(machine.root / "srv/tagged/CACHEDIR.TAG")
    machine.begin()
    for name in ("model.pt", "model.key", ".config/x", ".ssh/id"):
        put(machine.user / ".cache/ck" / name)
    put(machine.root / "srv/tagged/new.pt")
    link(machine.work / "lc", machine.user / ".cache/ck")
    link(machine.work / "tagged", machine.root / "srv/tagged")
    outputs = machine.outputs()
    assert {each.path for each in outputs.files} == {"lc/model.pt", "lc/.config/x", "tagged/new.pt"}
    assert outputs.elsewhere == {"lc/model.key": kept_away.SECRET, "lc/.ssh": kept_away.SECRET}


def test_secrets_outside_are_named_if_the_job_made_them(machine: Machine) -> None:
    put(machine.user / "before.key")
    machine.begin()
    paths = [put(machine.root / "tmp/model.key"), put(machine.user / "my.env")]
    outputs = machine.outputs()
    assert outputs.files == ()
    assert outputs.elsewhere == {str(path): kept_away.SECRET for path in paths}
    said = bring_home(machine, outputs, home=machine.root / "here", run_id="r").remarks
    assert f"{paths[0]} (secret by its name)" in said[-1]
