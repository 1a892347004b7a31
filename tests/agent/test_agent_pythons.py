"""The interpreter of the agent and of the job."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from costgpu.job.machine.agent_client import AgentHost
from costgpu.models.job import EndReason
from costgpu.portable.bundle import bundle
from costgpu.workflows.runs.packages.conda import conda_source
from costgpu.workflows.runs.packages.requirements import Listing
from tests.agent.harness import Machine

pytestmark = pytest.mark.slow


def _usable(name: str) -> str | None:
    found = shutil.which(name)
    if found is None or subprocess.run([found, "-c", ""], capture_output=True, check=False).returncode:
        return None
    return found


OTHERS = [name for name in (f"python3.{minor}" for minor in range(8, 16)) if _usable(name)]


@pytest.mark.parametrize("name", OTHERS)
def test_the_agent_runs_on_every_python_from_3_8_on(machine: Machine, tmp_path: Path, name: str) -> None:
    machine.host = AgentHost(machine.transport, python=name)
    machine.run(
        "import time\nopen('o', 'w').write('1')\nprint('hello')\ntime.sleep(0.3)", setup="true", idle_seconds=60.0
    )
    status = machine.follow()
    assert (status.reason, status.exit_code) == (EndReason.SUCCEEDED, 0)
    assert machine.stdout == b"hello\n"
    machine.host.fetch(machine.host.outputs().files, tmp_path / "out")
    assert (tmp_path / "out/o").read_text() == "1"
    assert (machine.home / "agent.log").read_text() == ""


@pytest.mark.parametrize("name", OTHERS)
def test_all_that_travels_can_be_imported(tmp_path: Path, name: str) -> None:
    """The room without weights is only imported once the script has imported torch, for which a mock stands here."""
    script = """import importlib, sys, zipfile
from unittest.mock import MagicMock
for name in ("torch", *("torch.utils" + one for one in ("", "._python_dispatch", "._pytree", ".checkpoint"))):
    sys.modules[name] = MagicMock()
sys.modules["torch"].Tensor = type("Tensor", (), {"__torch_dispatch__": None})
sys.path[:0] = sys.argv[1:]
for name in zipfile.ZipFile(sys.argv[1]).namelist()[:-1]:
    importlib.import_module(name[:-3].replace("/", "."))
"""
    for package, main in (("measure.probe", "entry"), ("job.agent", "main"), ("sweep.tuner", "main")):
        (tmp_path / package).write_bytes(bundle(package, main))
        subprocess.run([name, "-I", "-c", script, tmp_path / package], check=True)


def test_a_rented_machine_gets_an_environment_of_its_own_for_the_setup(machine: Machine) -> None:
    if subprocess.run(["python3", "-c", "import ensurepip"], capture_output=True, check=False).returncode:
        pytest.skip("this machine's python3 cannot make environments")
    setup = (
        "command -v pip >pip.txt; python -c 'import sys; print(sys.prefix)' >prefix.txt; echo $VIRTUAL_ENV >venv.txt"
    )
    machine.run("import sys; print(sys.prefix)", setup=setup, python="")
    status = machine.follow()
    assert status.exit_code == 0, machine.stderr
    venv = str(machine.home / "venv")
    assert machine.stdout.decode().strip() == venv
    work = machine.home / "work"
    assert (work / "pip.txt").read_text().strip() == venv + "/bin/pip"
    assert (work / "prefix.txt").read_text().strip() == venv
    assert (work / "venv.txt").read_text().strip() == venv
    assert "include-system-site-packages = true" in (machine.home / "venv/pyvenv.cfg").read_text()
    assert {entry.path for entry in machine.host.outputs().files} == {"pip.txt", "prefix.txt", "venv.txt"}


def test_an_environment_that_the_setup_makes_runs_the_job(machine: Machine) -> None:
    """As the set-up for an environment.yml does, with a micromamba that stands in for the real one."""
    machine.put_on_path(
        "/usr/bin:/bin",
        micromamba=f"""p=; while [ $# -gt 0 ]; do [ "$1" = -p ] && p=$2; shift; done; mkdir -p "$p/bin" "$p/conda-meta"
printf '#!/bin/sh\\nexec {sys.executable} "$@"\\n' >"$p/bin/python3"; chmod +x "$p/bin/python3" """,
    )
    work = Listing(machine.home)
    (machine.home / "environment.yml").write_text("dependencies: [python]")
    setup = conda_source(machine.home / "environment.yml", work).setup
    machine.run(
        "import os\nprint(os.environ['CONDA_PREFIX'])\nprint(os.environ['PATH'])",
        setup=setup,
        python=sys.executable,
    )
    status = machine.follow()
    assert status.exit_code == 0, machine.stderr
    prefix, path = machine.stdout.decode().splitlines()
    assert prefix == str(machine.home / "env")
    assert path.startswith(f"{prefix}/bin:")


BASE = f'exec "{sys.base_prefix}/bin/python3" "$@"'


def test_a_machine_that_cannot_make_environments_still_runs_the_job(machine: Machine) -> None:
    machine.put_on_path(python3=f'[ "$2" = venv ] && {{ echo "No module named venv" >&2; exit 1; }}\n{BASE}')
    machine.run("print('ran')", setup="echo break=$PIP_BREAK_SYSTEM_PACKAGES", python="")
    status = machine.follow()
    assert status.exit_code == 0, machine.stderr
    assert b"No module named venv" in machine.stderr
    assert b"break=1" in machine.stderr
    assert machine.stdout == b"ran\n"


def test_the_python_that_has_torch_is_preferred(machine: Machine) -> None:
    with_torch = f'case "$2" in *torch*) exit 0;; esac\nexport WITH_TORCH=1\n{BASE}'
    machine.put_on_path(**{"python3": f'case "$2" in *torch*) exit 1;; esac\n{BASE}', "python3.12": with_torch})
    machine.run("import os; print(os.environ.get('WITH_TORCH'))", python="")
    assert machine.follow().exit_code == 0
    assert machine.stdout == b"1\n"
