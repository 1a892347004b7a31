"""What a script reads against what travels: named, decided, and never left behind in silence."""

import shlex
from dataclasses import replace
from pathlib import Path

import pytest

from costgpu.errors import SyncRefused, UsageError
from costgpu.job.files.select import select_for
from costgpu.models.footprint import FileUse, Footprint
from costgpu.models.inputs import Inputs
from costgpu.models.job import JobSpec
from costgpu.models.run import Plan
from costgpu.workflows.runs.inputs import (
    check_inputs,
    compare,
    largest_left_out,
    outside_notes,
    refusal,
    send_too,
    without,
)
from costgpu.workflows.runs.patterns import rule_pattern
from tests.unit.render.runs import plan
from tests.unit.workflows.jobs import sending

MANY = 20_000


def write(folder: Path, **files: str) -> None:
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The report's: data and checkpoint are ignored."""
    work = tmp_path / "work"
    names = {".gitignore": "*.pt\ndata/\n", "train.py": "", "last.pt": "x" * 300, "data/set.pt": "x" * 5000}
    write(work, **names, **{"data/other.bin": "x"})
    return work


def use(folder: Path, path: str, files: int = 1) -> FileUse:
    return FileUse(path=path, size=(folder / path).stat().st_size, files=files)


def compared(folder: Path, *read: str, spec: JobSpec | None = None) -> tuple[Inputs, list[str]]:
    spec = spec or sending(folder)
    seen = Footprint(read=[use(folder, path) for path in read])
    return compare(spec, select_for(spec, 100), folder / "train.py", seen)


def staying(folder: Path, *read: str, spec: JobSpec | None = None) -> list[tuple[str, str, bool]]:
    return [(one.path, one.why, one.sendable) for one in compared(folder, *read, spec=spec)[0].staying]


def refused(inputs: Inputs) -> SyncRefused:
    with pytest.raises(SyncRefused) as error:
        check_inputs(plan(inputs=inputs))
    return error.value


def test_what_is_read_and_ignored_is_named_the_largest_first(folder: Path) -> None:
    inputs, notes = compared(folder, "last.pt", "train.py", "data/set.pt")
    assert [(one.path, one.size, one.why) for one in inputs.staying] == [
        ("data/set.pt", 5000, ".gitignore"),
        ("last.pt", 300, ".gitignore"),
    ]
    assert notes == []
    error = refused(inputs)
    assert error.exit_code == 56
    assert error.message == (
        "The script reads what would not travel: data/set.pt 5.0 kB (.gitignore), last.pt 300 bytes (.gitignore)."
    )
    assert (
        "Send it too: --include data/set.pt --include last.pt; or go on without it: --exclude data/set.pt" in error.hint
    )


def test_many_files_are_named_by_their_folder_if_nothing_of_it_travels(folder: Path) -> None:
    read = [f"many/{n % 2}/{n}.pt" for n in range(16)]
    write(folder, **dict.fromkeys(read, "x"))
    assert staying(folder, *read) == [("many/0", ".gitignore", True), ("many/1", ".gitignore", True)]
    write(folder, **{"many/1/readme": "it travels"})
    assert [path for path, _, _ in staying(folder, *read)] == ["many/0", *sorted(read[1::2])]


@pytest.mark.parametrize("more", [(), [f"{n % 3}[a]/{n}.pt" for n in range(60)], [f"d{n}/{n}.pt" for n in range(60)]])
def test_the_options_of_the_hint_decide(folder: Path, more: list[str]) -> None:
    write(folder, **dict.fromkeys(more, "x"))
    for name in ("a b.pt", "run[1].pt", "umläut.pt", "-x.pt", "#1.pt", "!x.pt", "end .pt", "x.pt" if more else "*.pt"):
        (folder / name).write_text("x")
    read = [str(one.relative_to(folder)) for one in folder.rglob("*.pt")]
    words = shlex.split(refusal(compared(folder, *read)[0]).hint.removeprefix("Send it too: ").partition("; or")[0])
    patterns = tuple(rule_pattern("--include", each, folder) for each in words[1::2])
    assert staying(folder, *read, spec=sending(folder, include=patterns)) == []
    left, notes = compared(folder, *read, spec=sending(folder, exclude=patterns))
    assert (left.staying, len(notes)) == ((), 1)
    assert "Left out by name, though the script reads it: " in notes[0]


def test_sent_too_is_exactly_what_was_read(folder: Path) -> None:
    (folder / "run[1].pt").write_text("x")
    (folder / "run1.pt").write_text("x")
    inputs, _ = compared(folder, "data/set.pt", "run[1].pt")
    sent = send_too(plan(spec=sending(folder), inputs=inputs), 100)
    travelling = {entry.path for entry in select_for(sent.spec, 100).files}
    assert travelling == {".gitignore", "train.py", "data/set.pt", "run[1].pt"}
    assert (sent.files, sent.bytes, sent.inputs.staying) == (
        4,
        sum((folder / one).stat().st_size for one in travelling),
        (),
    )
    check_inputs(sent)
    with pytest.raises(SyncRefused, match=r"The largest: data/ 4\.9 KiB") as error:
        send_too(plan(spec=sending(folder), inputs=inputs), 0.001)
    assert "--sync-limit" in error.value.hint


def test_going_on_without_is_a_decision(folder: Path) -> None:
    check_inputs(without(plan(inputs=compared(folder, "last.pt")[0])))


@pytest.mark.parametrize(
    ("path", "why", "sendable"),
    [
        (".env", "secrets: .env*", False),
        ("key.pem", "secrets: *.pem", False),
        ("notes.txt", "secrets: a private key inside", False),
        ("own.csv", ".costgpuignore", True),
        ("wandb/run-1/model.bin", "caches", True),
        ("costgpu-runs/x/best.bin", "costgpu's own files", False),
    ],
)
def test_why_it_stays(folder: Path, path: str, why: str, sendable: bool) -> None:
    key = "-----BEGIN PRIVATE KEY-----\nx\n" if path == "notes.txt" else "x"
    write(folder, **{path: key, ".costgpuignore": "*.csv\n"})
    assert staying(folder, path) == [(path, why, sendable)]
    assert staying(folder, path, spec=sending(folder, exclude=(f"/{path}",))) == []
    error = refusal(compared(folder, path)[0])
    assert ("--include" in error.hint) is sendable
    assert ("--env-file" in error.hint) is why.startswith("secrets")


def test_the_file_of_variables_reaches_the_job_by_its_option(folder: Path) -> None:
    write(folder, **{".env": "A=1"})
    assert staying(folder, ".env", spec=sending(folder, env_file=str(folder / ".env"))) == []


@pytest.mark.parametrize("path", ["__pycache__/a.pyc", ".git/HEAD", ".venv/pyvenv.cfg", "x.egg-info/PKG-INFO"])
def test_nobody_misses_what_is_made_again(folder: Path, path: str) -> None:
    write(folder, **{path: "x"})
    assert staying(folder, path) == []


@pytest.mark.parametrize(
    "path", ["x.egg-info/entry_points.txt", "pkg/__pycache__/a.pyc", ".ipynb_checkpoints/a.py", "mlruns/0/meta.yaml"]
)
def test_nobody_misses_it_where_ignore_rules_name_it_too(folder: Path, path: str) -> None:
    write(folder, **{path: "x", ".gitignore": "*.egg-info/\n__pycache__/\n.ipynb_checkpoints\nwandb/\nmlruns/\n"})
    assert staying(folder, path) == []
    write(folder, **{"wandb/run-1/model.bin": "x"})
    assert staying(folder, "wandb/run-1/model.bin") == [("wandb/run-1/model.bin", ".gitignore", True)]


def test_of_a_data_set_that_is_read_in_part_all_is_sent(folder: Path) -> None:
    names = [f"data/{part}/{number}.npy" for part in ("train", "test") for number in range(4)]
    write(folder, **dict.fromkeys([*names, "src/net.py", "src/a.pt", "src/b.pt", "src/c.pt"], "x"))
    read = ["data/train/0.npy", "data/train/1.npy"]
    assert staying(folder, *read) == [("data/train", ".gitignore", True)]
    inputs, _ = compared(folder, *read, "data/test/3.npy", "src/a.pt", "src/b.pt")
    assert [(one.path, one.size, one.files) for one in inputs.staying] == [
        ("data", 3, 3),
        ("src/a.pt", 1, 1),  # of its folder something travels, which --exclude would keep here
        ("src/b.pt", 1, 1),
    ]
    sent = send_too(plan(spec=sending(folder), inputs=inputs), 100)
    travelling = {entry.path for entry in select_for(sent.spec, 100).files}
    assert travelling == {".gitignore", "train.py", "src/net.py", "src/a.pt", "src/b.pt", *names} | {
        "data/set.pt",
        "data/other.bin",
    }
    assert staying(folder, *read, spec=sending(folder, exclude=("/data",))) == []
    write(folder, **{".gitignore": "*.npy\n"})
    assert staying(folder, *read) == [("data/train", ".gitignore", True)]
    assert [path for path, _, _ in staying(folder, *names)] == sorted(names)  # all but what travels is named


def test_contents_of_an_annex_are_missed(folder: Path) -> None:
    write(folder, **{".git/annex/objects/a": "x"})
    (folder / "scan.nii").symlink_to(".git/annex/objects/a")
    assert staying(folder, "scan.nii") == [(".git/annex/objects/a", "repositories", False)]
    assert staying(folder, "scan.nii", spec=sending(folder, exclude=("scan.nii",))) == []


def test_links(folder: Path, tmp_path: Path) -> None:
    write(tmp_path, **{"disk/x.bin": "x"})
    (folder / "latest.bin").symlink_to("data/set.pt")
    (folder / "store").symlink_to("data")
    seen = Footprint(read=[FileUse(path="latest.bin", size=0)])
    assert [one.size for one in compare(sending(folder), select_for(sending(folder), 1), None, seen)[0].staying] == [
        5000
    ]
    write(folder, **{".gitignore": "data/\ndisk\n"})
    assert staying(folder, "latest.bin", "store/other.bin") == [
        ("data/set.pt", ".gitignore", True),
        ("data/other.bin", ".gitignore", True),
    ]
    (folder / "disk").symlink_to(tmp_path / "disk")
    assert staying(folder, "disk/x.bin") == [("disk/x.bin", "a link that leads out of the folder", False)]


def test_a_folder_with_many_files_that_were_read(folder: Path) -> None:
    write(
        folder,
        **{"img/1.png": "x", "img/2.png": "x", "part/a.csv": "x", "part/b.tmp": "x", "part/__pycache__/c.pyc": "x"},
    )
    spec = sending(folder)

    def found(path: str) -> list[str]:
        seen = Footprint(read=[FileUse(path=path, size=9, files=60)])
        return [one.why for one in compare(spec, select_for(spec, 100), None, seen)[0].staying]

    assert (found("data"), found("img"), found("part"), found(".")) == ([".gitignore"], [], [], [".gitignore"])
    assert staying(folder, "last.pt", spec=sending(folder, exclude=(".*",))) == [("last.pt", ".gitignore", True)]
    write(folder, **{".gitignore": "*.tmp\nimg/*\n"})
    assert (found("img"), found("part")) == ([".gitignore"], [".gitignore"])


def test_the_script_itself(folder: Path) -> None:
    write(folder, **{".gitignore": "train.py\n"})
    spec = sending(folder)
    inputs, _ = compare(spec, select_for(spec, 100), folder / "train.py", None)
    assert [one.path for one in inputs.staying] == ["train.py"]
    assert not inputs.known, "of an old profile nothing is known"
    for pattern in ("train.py", "*"):
        with pytest.raises(UsageError, match=r"--exclude leaves out the script itself, train\.py"):
            compared(folder, spec=sending(folder, exclude=(pattern,)))


def test_a_file_that_is_gone_is_not_missed(folder: Path) -> None:
    seen = Footprint(read=[FileUse(path="gone.pt", size=1)])
    assert compare(sending(folder), select_for(sending(folder), 1), None, seen)[0].staying == ()


def outside(folder: Path, *paths: str, here: bool = False, wrote: tuple[str, ...] = ()) -> list[str]:
    footprint = Footprint(
        read_outside=[FileUse(path=path, size=10**index) for index, path in enumerate(paths, 3)],
        written_outside=[FileUse(path=path, size=1) for path in wrote],
    )
    return list(outside_notes(footprint, str(folder), here=here))


def test_reads_from_outside_are_named(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/ada")
    monkeypatch.setenv("HF_HOME", "/big/hf")
    lib, hub = f"{tmp_path}/lib/net.py", "/home/ada/.cache/torch/hub/a"
    reads, caches = outside(folder, lib, "/data/set.bin", hub, "/big/hf/hub/m")
    assert reads == (
        f"The script reads outside of the folder what does not travel: /data/set.bin 10.0 kB, ../lib/net.py 1.0 kB."
        f" --workdir {tmp_path} sends the folder around it, and runs the script there; or let --setup or the script"
        f" fetch it there."
    )
    assert caches == (
        "The script reads caches that do not travel, and that its libraries fill again there: /big/hf 1.0 MB,"
        " ~/.cache/torch 100.0 kB."
    )
    (reads,) = outside(folder, lib, "/data/set.bin", hub, here=True)
    assert reads == (
        f"The job runs in a copy of the folder, beside which it does not find ../lib/net.py 1.0 kB."
        f" --workdir {tmp_path} sends the folder around it, and runs the script there."
    )
    (many,) = outside(folder, *(f"/data/{number}" for number in range(8)))
    assert "/data/7 10.0 GB, /data/6 1.0 GB, " in many
    assert ", and 3 more. Let --setup or the script fetch it there." in many
    assert outside(folder, here=True) == outside(folder) == list(outside_notes(None, "/w", here=False)) == []


def test_writes_outside_are_named(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/ada")
    wrote = ("/home/ada/results/a.pt", f"{tmp_path}/up.pt", "/tmp-x/b.pt")
    (note,) = outside(folder, wrote=wrote)
    assert note.startswith(
        "The script writes outside of the folder: ~/results/a.pt 1 byte, ../up.pt 1 byte, /tmp-x/b.pt"
    )
    assert note.endswith("comes home under outside/.")
    (note,) = outside(folder, wrote=wrote, here=True)
    assert note.startswith("The script writes outside of the folder: ../up.pt 1 byte. ")


def test_the_largest_of_what_is_left_out(folder: Path) -> None:
    write(
        folder,
        **{".venv/pyvenv.cfg": "x" * 9000, ".env": "x" * 9000, "sub/z.pt": "x" * 20, "c.pt": "x", "empty.pt": ""},
    )
    selection = select_for(sending(folder), 100)
    assert [(one.path, one.size, one.files) for one in largest_left_out(selection)] == [
        ("data/", 5001, 2),
        ("last.pt", 300, 1),
        ("sub/z.pt", 20, 1),
    ]


def test_many_files_are_compared_quickly(folder: Path) -> None:
    """One look-up for each file that was read: with the fallback of a search in each, this would take minutes."""
    spec = sending(folder)
    selection = select_for(spec, 100)
    entry = selection.files[0]
    large = replace(selection, files=tuple(replace(entry, path=f"set/{number}") for number in range(MANY)))
    seen = Footprint(read=[FileUse(path=f"set/{number}", size=1) for number in range(200)])
    assert compare(spec, large, None, seen)[0].staying == ()


def test_a_plan_names_what_stays(folder: Path) -> None:
    from costgpu.render.text.run import plan_text
    from tests.unit.render.runs import NOW

    inputs, _ = compared(folder, "last.pt")
    largest = largest_left_out(select_for(sending(folder), 100))
    text = " ".join(plan_text(plan(inputs=inputs, largest=largest), NOW).split())
    assert "repositories (1); the largest of these: data/ 2 files, 5.0 kB, last.pt 300 bytes" in text
    assert "stays here though the script reads it: last.pt 300 bytes (.gitignore)" in text
    in_part: Plan = plan(
        inputs=compare(sending(folder), select_for(sending(folder), 1), None, Footprint(complete=False))[0]
    )
    assert "; what the script reads was seen in part" in " ".join(plan_text(in_part, NOW).split())
    unknown: Plan = plan(inputs=Inputs(known=False))
    assert "; what the script reads was not measured" in " ".join(plan_text(unknown, NOW).split())
