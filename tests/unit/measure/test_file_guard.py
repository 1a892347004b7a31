"""What Python code of a script does to files: it sees what it would see, and none of it happens.

In each Python that binds functions of the system in its own way.
"""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from costgpu.measure.session import PROBE
from tests.properties import examples

OPERATIONS = Path(__file__).resolve().parents[2] / "scripts/file_operations.py"
PYENV = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"), "versions")
VERSIONS = ["this", "3.8", "3.9", "3.10", "3.12", "3.13"]
SEEDS = examples(800).max_examples
GUARDED = """
import os, sys
sys.path.insert(0, sys.argv[1])
from sandbox.file_guard import FileGuard
os.mkdir("scratch")
guard = FileGuard("scratch")
guard.install()
"""
PATHLIB = """
import pathlib
mine = pathlib.Path("mine")
mine.chmod(0o600)
mine.touch()
mine.write_text("changed")
assert mine.read_text() == "changed"
os.utime(mine, (1, 1))
new = pathlib.Path("new")
new.write_text("made")
new.chmod(0o600)
link = getattr(pathlib.Path("linked"), "hardlink_to", None)
link(new) if link else new.link_to("linked")
assert pathlib.Path("linked").read_text() == "made"
assert new.stat().st_mode & 0o777 == 0o600
mine.rename("moved")
pathlib.Path("gone").unlink()
assert sorted(str(path) for path in pathlib.Path().iterdir()) == ["linked", "moved", "new", "scratch"]
"""
NATIVE = """
import importlib, sqlite3, subprocess
connection = sqlite3.connect("data.db")
connection.execute("insert into t values (2)")
connection.commit()
connection.close()
assert [row[0] for row in sqlite3.connect("data.db").execute("select x from t")] == [1, 2]
os.makedirs("package/inner")
with open("package/inner/made.py", "w") as stream:
    stream.write("value = 5")
sys.path.insert(0, "package")
importlib.invalidate_caches()
from inner.made import value
assert value == 5
told = subprocess.run(["cat", "made.py"], cwd="package/inner", stdout=subprocess.PIPE, check=True)
assert told.stdout == b"value = 5"
told = subprocess.run(["cat", "package/inner/made.py"], stdout=subprocess.PIPE, check=True)
assert told.stdout == b"value = 5"
for refused in ("/dev/null/x", "data.db/x", "nowhere/x"):
    try:
        open(refused, "w")
    except OSError as error:
        assert error.filename == refused, error
os.fchmod(os.open("mine", os.O_RDONLY), 0o600)
os.chown("mine", os.getuid(), os.getgid())
with open("/dev/null", "w") as stream:
    stream.write("x")
"""


def python(version: str) -> str:
    """A Python of that version, of pyenv or on the search path."""
    if version == "this":
        return sys.executable
    made = sorted(PYENV.glob(f"{version}.*/bin/python"))
    found = str(made[-1]) if made else shutil.which(f"python{version}")
    return found or pytest.skip(f"no Python {version} is installed")


def ran(program: list[str], folder: Path) -> str:
    done = subprocess.run(program, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def state(folder: Path) -> dict[str, tuple[object, ...]]:
    """Everything below a folder, but for the scratch."""
    found: dict[str, tuple[object, ...]] = {}
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        if not name.startswith("scratch"):
            there = path.lstat()
            content = path.readlink() if path.is_symlink() else path.read_bytes() if path.is_file() else ""
            found[name] = (content, there.st_mode, there.st_mtime_ns, there.st_uid)
    return found


@pytest.mark.parametrize("script", [PATHLIB, NATIVE], ids=["pathlib", "native"])
@pytest.mark.parametrize("version", VERSIONS)
def test_the_users_files_stay(version: str, script: str, tmp_path: Path) -> None:
    import sqlite3

    for name in ("mine", "gone") if script == PATHLIB else ("mine",):
        (tmp_path / name).write_text("before")
    if script == NATIVE:
        connection = sqlite3.connect(tmp_path / "data.db")
        connection.execute("create table t as select 1 as x")
        connection.commit()
        connection.close()
    before = state(tmp_path)
    ran([python(version), "-I", "-c", GUARDED + script, str(PROBE)], tmp_path)
    assert state(tmp_path) == before


@pytest.mark.parametrize("version", ["this", "3.8", "3.13"])
def test_a_script_sees_what_it_would_see(version: str, tmp_path: Path) -> None:
    """Random operations give the same results, and the same errors, as really done."""
    program = python(version)
    told = {}
    for how in ("real", "guarded", "fresh"):
        (tmp_path / how).mkdir()
        command = [program, "-I", str(OPERATIONS), str(PROBE), how, "0", str(SEEDS)]
        told[how] = ran(command, tmp_path / how).splitlines()
    for real, guarded in zip(told["real"], told["guarded"], strict=True):
        seed, expected = json.loads(real)
        for step, (one, other) in enumerate(zip(expected, json.loads(guarded)[1], strict=True)):
            assert one == other, f"seed {seed}, after {expected[:step]}"
    for seed in range(SEEDS):
        before, after = (state(tmp_path / how / str(seed)) for how in ("fresh", "guarded"))
        assert {name: found[:2] for name, found in after.items()} == {name: found[:2] for name, found in before.items()}


def test_python_processes_of_the_script_share_the_view(tmp_path: Path) -> None:
    (tmp_path / "gone").write_text("before")
    script = GUARDED + (
        "import subprocess\n"
        "open('made', 'w').write('by the first')\nos.remove('gone')\n"
        "code = 'import sys; sys.path.insert(0, sys.argv[1])\\nfrom sandbox.file_guard import FileGuard\\n'\n"
        'code += \'FileGuard("scratch").install()\\nimport os\\nprint(sorted(os.listdir()), open("made").read())\\n\'\n'
        "code += 'os.remove(\"made\")'\n"
        "subprocess.run([sys.executable, '-I', '-c', code, sys.argv[1]], check=True)\n"
        "print(os.listdir())\n"
    )
    told = ran([sys.executable, "-I", "-c", script, str(PROBE)], tmp_path)
    assert told.splitlines() == ["['made', 'scratch'] by the first", "['scratch']"]
    assert (tmp_path / "gone").read_text() == "before"


def test_a_file_that_is_too_large_to_copy_is_refused(tmp_path: Path) -> None:
    with (tmp_path / "large").open("wb") as stream:
        stream.truncate((2 << 30) + 1)
    script = (
        GUARDED
        + "try:\n    open('large', 'r+')\nexcept PermissionError as error:\n    print(type(error).__name__, error)"
    )
    told = ran([sys.executable, "-I", "-c", script, str(PROBE)], tmp_path)
    assert told.startswith("HarmError costgpu: the script changes ")
