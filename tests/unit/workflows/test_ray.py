"""What a run on a Ray cluster is asked to be, and what its machines are told to install."""

import sys
from importlib import metadata
from pathlib import Path

import pytest

from costgpu.errors import MissingImport
from costgpu.models.job import Launcher
from costgpu.workflows.runs import setup_ray
from costgpu.workflows.runs.packages import find_packages
from costgpu.workflows.runs.setup_ray import check_installed
from tests.unit.workflows.jobs import asked, job_of


@pytest.mark.parametrize("nodes", [None, 1, 4])
def test_the_script_runs_once_whatever_the_number_of_machines(tmp_path: Path, nodes: int | None) -> None:
    (tmp_path / "train.py").touch()
    job = job_of(*asked(str(tmp_path / "train.py"), "--lr", "1", launcher="ray", nodes=nodes))
    assert (job.launcher, job.nodes, job.processes) == (Launcher.RAY, nodes or 1, 0)
    assert job.argv == ("train.py", "--lr", "1")


def version(number: str | None) -> object:
    def found(name: str) -> str:
        if number is None:
            raise metadata.PackageNotFoundError(name)
        return number

    return found


@pytest.mark.parametrize(
    ("requirements", "here", "expected"),
    [
        (None, "2.60.0", "pip install 'ray[default,data,train,tune]==2.60.0'"),
        (None, None, "pip install 'ray[default,data,train,tune]>=2.52'"),
        ("torch\n", "2.60.0", "SETUP && pip install 'ray[default,data,train,tune]==2.60.0'"),
        ("raytracer\nray-lightning\n# ray\n", None, "SETUP && pip install 'ray[default,data,train,tune]>=2.52'"),
        ("torch\nray\n", "2.60.0", "SETUP"),
        ("ray[train]==2.55  # pinned\n", "2.60.0", "SETUP"),
        ("Ray >= 2.55\n", "2.60.0", "SETUP"),
        ("ray @ https://example.org/ray.whl\n", None, "SETUP"),
    ],
)
def test_ray_is_installed_unless_the_requirements_name_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, requirements: str | None, here: str | None, expected: str
) -> None:
    if requirements is not None:
        (tmp_path / "requirements.txt").write_text(requirements)
    monkeypatch.setattr(metadata, "version", version(here))
    packages = find_packages(tmp_path, None)
    found = setup_ray.with_ray(packages)
    assert found.setup == expected.replace("SETUP", packages.setup)
    assert found.label == (
        "requirements.txt" if expected == "SETUP" else "requirements.txt + Ray" if requirements else "Ray"
    )


def test_an_interpreter_without_ray_is_named(tmp_path: Path) -> None:
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nexec {sys.executable} -S -I "$@"\n')
    python.chmod(0o755)
    with pytest.raises(MissingImport) as caught:
        check_installed(str(python))
    assert str(python) in caught.value.message
    assert "pip install 'costgpu[ray]'" in caught.value.hint


def test_one_with_ray_will_do(tmp_path: Path) -> None:
    python = tmp_path / "python"
    python.write_text(
        f'#!/bin/sh\nPYTHONPATH={Path(__file__).parents[2]}/scripts/fake_ray exec {sys.executable} -S "$@"\n'
    )
    python.chmod(0o755)
    check_installed(str(python))
