"""The way of a marked test into the testbed and of its reports back, and that nothing of a testbed stays behind."""

import contextlib
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.emulators.emulator_client import ROOT
from tests.emulators.guests import packages, rootfs

OBSTACLE = packages.obstacle()
needs_testbed = pytest.mark.skipif(bool(OBSTACLE), reason=f"emulator: {OBSTACLE}")
CACHE = {"TESTBED_CACHE": str(rootfs.CACHE)}
CONFTEST = """
from tests.emulators.guests import relay

def pytest_configure(config):
    config.addinivalue_line("markers", "emulator: in a testbed")
    plugin = relay.plugin()
    if plugin is not None:
        config.pluginmanager.register(plugin, "testbed")
"""


def inner_run(folder: Path, source: str, *options: str, **environment: str) -> subprocess.CompletedProcess[str]:
    (folder / "conftest.py").write_text(CONFTEST)
    (folder / "pytest.ini").write_text("[pytest]\n")
    (folder / "test_some.py").write_text(f"import os, pytest\nfrom tests.emulators.guests import namespace\n{source}")
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-rA", "--tb=short", *options],
        cwd=folder,
        env={**os.environ, **CACHE, "PYTHONPATH": str(ROOT), **environment},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


@needs_testbed
def test_reports_are_those_of_the_inner_session_and_when_it_dies_the_rest_fails(tmp_path: Path) -> None:
    source = """
@pytest.mark.emulator
@pytest.mark.parametrize("word", ["a b", "c::d"])
def test_inside(word):
    assert namespace.inside()

def test_outside():
    assert not namespace.inside()

@pytest.mark.emulator
def test_failing():
    print("said inside")
    assert 1 + 1 == 3

@pytest.mark.emulator
def test_skipping():
    pytest.skip("not today")

@pytest.fixture
def broken():
    raise OSError("broken fixture")

@pytest.mark.emulator
def test_error(broken):
    pass

@pytest.mark.emulator
def test_dies():
    os.write(2, b"last words")
    os._exit(7)

@pytest.mark.emulator
def test_after():
    pass
"""
    done = inner_run(tmp_path, source)
    assert "3 failed, 3 passed, 1 skipped, 1 error" in done.stdout, done.stdout
    shown = (
        "assert (1 + 1) == 3",
        "said inside",
        "not today",
        "broken fixture",
        "PASSED test_some.py::test_inside[c::d]",
    )
    for words in (*shown, "the pytest in the testbed ended with 7"):
        assert words in done.stdout, done.stdout
    assert done.returncode == 1


@needs_testbed
def test_an_obstacle_is_a_skip_with_its_reason_or_a_failure_where_it_must_not_be(tmp_path: Path) -> None:
    source = "@pytest.mark.emulator\ndef test_inside():\n    pass\n"
    nowhere = {"PATH": "/nonexistent"}
    (tmp_path / "sitecustomize.py").write_text("import shutil\nshutil.which = lambda *_, **__: None\n")
    paths = {**nowhere, "PYTHONPATH": f"{tmp_path}:{ROOT}"}
    skipped = inner_run(tmp_path, source, **paths, TESTBED_REQUIRED="")
    assert "1 skipped" in skipped.stdout
    assert "emulator: missing: systemd-nspawn" in skipped.stdout
    failed = inner_run(tmp_path, source, **paths, TESTBED_REQUIRED="1")
    assert "1 failed" in failed.stdout
    assert "apt-get install" in failed.stdout


@needs_testbed
def test_a_testbed_ends_with_the_process_that_has_started_it(tmp_path: Path) -> None:
    """Even if that is killed: its guests, and everything that it had mounted, are gone."""
    script = f"""
import time
from tests.emulators.guests.nspawn import NspawnMachines
from tests.emulators.guests.login import boot, spec, wait_for_banner
wait_for_banner(boot(NspawnMachines(), spec(1)))
open("{tmp_path}/ready", "w").close()
time.sleep(600)
"""
    starter = f"""
import subprocess, sys
from tests.emulators.guests import namespace
subprocess.run(namespace.command_line([sys.executable, "-c", {script!r}]))
"""
    process = subprocess.Popen([sys.executable, "-c", starter], cwd=ROOT, env={**os.environ, **CACHE})
    try:
        while not (tmp_path / "ready").exists():
            assert process.poll() is None
            time.sleep(0.05)
        inside = _descendants(process.pid)
        assert any("systemd-nspawn" in command for command in inside.values())
    finally:
        process.kill()
        process.wait()
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and any(Path(f"/proc/{pid}").exists() for pid in inside):
        time.sleep(0.05)
    assert {pid: command for pid, command in inside.items() if Path(f"/proc/{pid}").exists()} == {}
    assert "testbed" not in Path("/proc/mounts").read_text()


def _descendants(pid: int) -> dict[int, str]:
    found = {}
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        with contextlib.suppress(OSError):  # it has ended meanwhile
            for child in task.read_text().split():
                command = Path(f"/proc/{child}/cmdline").read_bytes().replace(b"\0", b" ").decode()
                found[int(child)] = command
                found.update(_descendants(int(child)))
    return found
