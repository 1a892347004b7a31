"""Which paths are told, how many become few, which package a module is from, and how a profile keeps it all."""

import contextlib
import json
import mmap
import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from costgpu.measure.footprint.gather import gather, read_journal
from costgpu.measure.footprint.packages import imported_packages
from costgpu.measure.footprint.paths import KnownFolders, fold, source_of
from costgpu.measure.footprint.watch import FileWatch, _held
from costgpu.measure.isolation.layers import Changes
from costgpu.measure.isolation.levels import Isolation
from costgpu.measure.probe.sandbox.reads import Reads
from costgpu.measure.profile_file import load_profile, save_profile
from costgpu.measure.scratch import Scratch
from costgpu.models.footprint import FileUse, Footprint
from tests.unit.measure.records import build, phase, result

WORK = "/home/ada/work"
PLACES = KnownFolders(
    workdir=WORK, home="/home/ada", own=("/home/ada/.cache/costgpu",), prefixes=("/opt/conda", f"{WORK}/.venv", "/usr")
)


@pytest.mark.parametrize(
    "path",
    [
        *("data/set.pt", ".env.json", "lib/util.py", "bin/tool", "etc/x"),
        *("../lib/util.py", "/data/images/1.jpg", "/opt/models/bert.bin", "/usr/src/app/x.py", "/mnt/etc/passwd"),
        *("../.cache/huggingface/hub/model.safetensors", "../.cache/torch/hub/checkpoints/r18.pth", "../.kaggle/key"),
        *("/tmp/x.pt", "/tmp/tmp_results/x", "/var/tmp/y"),
    ],
)
def test_what_the_user_put_there_is_told(path: str) -> None:
    assert PLACES.is_told(os.path.normpath(f"{WORK}/{path}") if path[0] != "/" else path)


@pytest.mark.parametrize(
    "path",
    [
        *(".venv/lib/python3.12/site-packages/torch/a.so", ".venv/bin/python", "pkg/__pycache__/a.bin", ".git/HEAD"),
        *("/opt/conda/lib/libstdc++.so", "/usr/lib/x.so", "/etc/hosts", "/proc/cpuinfo", "/dev/null", "/sys/x"),
        *("/srv/env/lib/python3.9/site-packages/numpy/x.py", "../.cache/costgpu/m/x", "../.config/matplotlib/rc"),
        *("../.netrc", "../.keras/keras.json", "/tmp/tmpab12cd34/x", "/tmp/pymp-1/listener", "/tmp/torch_ab/x"),
        *("/opt/rocm-6.1/lib/libamdhip64.so.6", "/var/lib/x", "/usr/share/zoneinfo/UTC", "../.fonts/a.ttf"),
    ],
)
def test_what_every_machine_has_is_not_told(path: str) -> None:
    assert not PLACES.is_told(os.path.normpath(f"{WORK}/{path}") if path[0] != "/" else path)


def test_a_working_folder_below_the_systems_own_is_the_users() -> None:
    places = KnownFolders(workdir="/usr/local/app/train", home="/root", prefixes=["/usr/local"])
    assert places.is_told("/usr/local/app/train/lib/x.py")
    assert not places.is_told("/usr/lib/x.so")
    assert not places.is_told("/usr/local/lib/python3.12/os.py")


def test_what_libraries_keep_for_themselves_is_not_written_by_the_script() -> None:
    for path in (".cache/huggingface/x", ".keras/m.h5"):
        assert PLACES.is_told(f"/home/ada/{path}", written=False)
        assert not PLACES.is_told(f"/home/ada/{path}", written=True)
    for path in ("/home/ada/results/f.pt", "/home/ada/out.pt", "/tmp/x.pt"):
        assert PLACES.is_told(path, written=True)


def test_few_files_are_told_one_by_one_and_the_largest_first() -> None:
    assert fold({"a": 1, "b/c": 3}) == [FileUse(path="b/c", size=3), FileUse(path="a", size=1)]


def test_many_files_become_their_folders() -> None:
    files = {f"data/{kind}/{number}.jpg": 2 for kind in ("cats", "dogs") for number in range(300)}
    assert fold({**files, "train.py": 7}) == [
        FileUse(path="data/cats", size=600, files=300),
        FileUse(path="data/dogs", size=600, files=300),
        FileUse(path="train.py", size=7),
    ]


@pytest.mark.parametrize("name", ["{}/x", "d/{}/e/x", "{}", "/data/{}/x", "/data/a/{}", "/{}"])
def test_nothing_is_left_out_however_it_is_spread(name: str) -> None:
    files = {name.format(number): 1 for number in range(1000)}
    folded = fold(files, 50)
    assert len(folded) <= 50
    assert sum(use.files for use in folded) == sum(use.size for use in folded) == 1000
    for path in files:  # each is there, or a folder around it
        assert any(use.path in (path, ".") or path.startswith(use.path.rstrip("/") + "/") for use in folded)


def test_a_compiled_file_stands_for_its_source() -> None:
    assert source_of("/w/lib/__pycache__/a.b.cpython-312.opt-1.pyc") == "/w/lib/a.b.py"
    assert source_of("/w/data.pyc") == "/w/data.pyc"


def test_a_journal_that_was_written_over_is_read_as_far_as_it_is_one() -> None:
    lines = ['{"opened": ["/a", 1, null]}', "nonsense", '["x"]', '{"opened": 7}', '{"opened": ["/b"]}', "[" * 100_000]
    assert read_journal("\n".join(lines))["opened"] == {"/a", "/b"}


@pytest.fixture
def scratch(tmp_path: Path) -> Scratch:
    return Scratch.make(tmp_path / "cache", "test")


def _gathered(scratch: Scratch, work: Path, level: Isolation, journal: object, notified: set[str]) -> Footprint:
    watch = FileWatch(work, scratch.folder / "watches.json")
    watch.notified, watch.complete = notified, True
    (scratch.open / "opened.jsonl").write_text(json.dumps(journal))
    return gather(watch, scratch, Changes(), level)


def test_what_somebody_else_may_have_read_counts_in_a_world_of_its_own_only(tmp_path: Path, scratch: Scratch) -> None:
    for name in ("ours", "theirs"):
        (tmp_path / name).write_text("x")
        os.utime(tmp_path / name, (1, 1))
    journal, notified = {"opened": [f"{tmp_path}/ours"]}, {f"{tmp_path}/ours", f"{tmp_path}/theirs"}
    alone = _gathered(scratch, tmp_path, Isolation.COPY_ON_WRITE, journal, notified)
    assert {use.path for use in alone.read} == {"ours", "theirs"}
    assert alone.complete
    among = _gathered(scratch, tmp_path, Isolation.COPY, journal, notified)
    assert {use.path for use in among.read} == {"ours"}
    assert not among.complete


def test_what_was_overwritten_before_it_was_read_is_not_read(tmp_path: Path, scratch: Scratch) -> None:
    (tmp_path / "out").write_text("x")
    journal = {"cut": [f"{tmp_path}/out"]}
    found = _gathered(scratch, tmp_path, Isolation.COPY_ON_WRITE, journal, {f"{tmp_path}/out"})
    assert found.read == []
    assert found.complete


def test_links_in_a_circle_and_paths_that_are_none_are_no_files(tmp_path: Path, scratch: Scratch) -> None:
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    journal = {"opened": [f"{tmp_path}/a", f"{tmp_path}/a/c", "/x\0y", "", str(tmp_path), f"{tmp_path}/gone"]}
    assert _gathered(scratch, tmp_path, Isolation.COPY_ON_WRITE, journal, set()).read == []


def test_every_link_on_the_way_is_told(tmp_path: Path, scratch: Scratch) -> None:
    work = tmp_path / "work"
    (work / "store" / "deep").mkdir(parents=True)
    (work / "store" / "deep" / "x").write_text("12")
    (work / "data").symlink_to("store")
    (work / "inner").symlink_to(work / "data" / "deep")
    journal = {"opened": [f"{work}/inner/../deep/x"]}
    found = _gathered(scratch, work, Isolation.COPY_ON_WRITE, journal, set())
    assert {use.path: use.size for use in found.read} == {"inner": 0, "data": 0, "store/deep/x": 2}


def test_a_package_is_named_as_it_is_installed(tmp_path: Path) -> None:
    site = tmp_path / "lib" / "site-packages"
    for name, version, record in (("opencv-python", "4.9", "cv2/__init__.py,,\n"), ("alone", "1", "single.py,,\n")):
        info = site / f"{name.replace('-', '_')}-{version}.dist-info"
        info.mkdir(parents=True)
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
        (info / "RECORD").write_text(record)
    egg = site / "old-3.egg-info"
    egg.mkdir()
    (egg / "PKG-INFO").write_text("Metadata-Version: 2.1\nName: old\nVersion: 3\n")
    (egg / "top_level.txt").write_text("older\n")
    script = tmp_path / "train.py"
    script.write_text(
        "import cv2.data as c\ndef f():\n    from single import x\n    from . import older\n    import_module('stray.x')\n"
    )
    modules = {"cv2": "cv2/__init__.py", "single": "single.py", "older": "older/__init__.py", "stray": "stray.py"}
    found = imported_packages(
        {**{name: f"{site}/{file}" for name, file in modules.items()}, "lib": f"{tmp_path}/lib.py"}, [str(script)]
    )
    assert [(one.module, one.distribution, one.version, one.by_script) for one in found] == [
        ("cv2", "opencv-python", "4.9", True),
        ("lib", "", "", False),
        ("older", "old", "3", False),
        ("single", "alone", "1", True),
        ("stray", "", "", True),
    ]
    assert found[0].origin == f"{site}/cv2"


@pytest.mark.parametrize(
    ("text", "asked"),
    [
        ("try:\n    import wandb\nexcept ImportError:\n    wandb = None\n", False),
        ("try:\n    import wandb\nexcept (OSError, ModuleNotFoundError):\n    pass\n", False),
        ("try:\n    from wandb import x\nexcept Exception:\n    pass\n", False),
        ("try:\n    import wandb\nexcept:\n    pass\n", False),
        ("with contextlib.suppress(ImportError):\n    import wandb\n", False),
        ("if importlib.util.find_spec('wandb'):\n    import wandb\n", False),
        ("if not importlib.util.find_spec('other'):\n    import wandb\n", True),
        ("if importlib.util.find_spec('other') is None:\n    import wandb\n", True),
        ("try:\n    import wandb\nexcept OSError:\n    pass\n", True),
        ("try:\n    import other\nexcept ImportError:\n    import wandb\n", True),
        ("try:\n    import wandb\nexcept ImportError:\n    sys.exit('pip install wandb')\n", True),
        ("try:\n    import wandb\nexcept ImportError:\n    pass\nimport wandb\n", True),
    ],
)
def test_a_script_that_provides_for_a_missing_package_does_not_need_it(tmp_path: Path, text: str, asked: bool) -> None:
    (tmp_path / "train.py").write_text(text)
    found = imported_packages({"wandb": "wandb.py"}, [str(tmp_path / "train.py")])
    assert [each.by_script for each in found] == [asked]


def test_a_profile_keeps_every_name_that_a_file_can_have(tmp_path: Path) -> None:
    used = Footprint(read=[FileUse(path="data/odd\udcff\n", size=3)], complete=False)
    save_profile(replace(build(result(phase())), footprint=used), tmp_path / "profile.json")
    assert load_profile(tmp_path / "profile.json").footprint == used


def test_the_hook_never_raises_and_survives_what_a_script_does_to_its_descriptor(tmp_path: Path) -> None:
    reads: Any = Reads(tmp_path)  # type: ignore[no-untyped-call]
    for arguments in (
        (),
        (None, None, None),
        (b"/x\xff", "rb", 0),
        (3, "r", 0),
        ("/y", None, None),
        (object(), "r", 0),
    ):
        reads.audit("open", arguments)
    assert reads.file is not None
    os.close(reads.file[0])
    with (tmp_path / "mine").open("w") as mine:
        assert mine.fileno() == reads.file[0]
        reads.audit("open", ("/z", "r", 0))
    os.close(reads.file[0])
    assert (tmp_path / "mine").read_text() == ""
    assert read_journal((tmp_path / "opened.jsonl").read_text())["opened"] == {"/x\udcff", "/z"}


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="/proc is Linux's")
def test_what_a_process_holds_for_reading_is_seen_from_outside(tmp_path: Path) -> None:
    for name in ("read", "written", "mapped", "gone", "both"):
        (tmp_path / name).write_text("x")
    with (
        (tmp_path / "read").open(),
        (tmp_path / "written").open("a"),
        (tmp_path / "gone").open(),
        (tmp_path / "both").open("r+") as both,
        (tmp_path / "mapped").open() as mapped,
        mmap.mmap(mapped.fileno(), 0, prot=mmap.PROT_READ),
        mmap.mmap(both.fileno(), 0),
    ):
        (tmp_path / "gone").unlink()
        mapped.close()
        assert {path for path in _held(os.getpid()) if path.startswith(str(tmp_path))} == {
            f"{tmp_path}/read",
            f"{tmp_path}/mapped",
        }
    assert list(_held(999999999)) == []  # it has ended


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="inotify is Linux's")
def test_many_folders_are_not_all_watched_and_that_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(5):
        (tmp_path / "data" / str(number)).mkdir(parents=True)
    monkeypatch.setattr("costgpu.measure.footprint.watch.MOST_FOLDERS", 3)
    with contextlib.closing(FileWatch(tmp_path, tmp_path / "told")) as watch:
        watch.begin_copy("")
        (tmp_path / "data" / "file").write_text("x")
        (tmp_path / "data" / "file").read_text()
        watch.drain()
    assert watch.notified == {f"{tmp_path}/data/file"}
    assert not watch.complete
