"""What is installed from the wheel: the two symlinked folders as real packages, data and typing marker included."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

pytestmark = pytest.mark.packaging


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A wheel built from this tree, without the network."""
    root = Path(__file__).resolve().parent.parent.parent
    out = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(out), str(root)]
    subprocess.run(command, check=True, capture_output=True, text=True)
    return next(out.glob("*.whl"))


def test_the_wheel_holds_each_module_once(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    assert len(names) == len(set(names))
    for wanted in (
        "costgpu/py.typed",
        "costgpu/pricing/catalog.py",
        "costgpu/providers/__init__.py",
        "costgpu/measure/probe/entry.py",
        "costgpu/pricing/data/manifest.json",
        "costgpu/providers/aws/policy.json",
        "costgpu/providers/gcp/role.yaml",
    ):
        assert wanted in names
    assert not [n for n in names if n.startswith(("pricing/", "providers/", "tests/", "benchmarks/", "examples/"))]
    assert any(n.startswith("costgpu/pricing/data/offers-") for n in names)
    assert any("CC-BY-SA" in n for n in names)


def test_the_installed_wheel_works_from_anywhere(wheel: Path, tmp_path: Path) -> None:
    target = tmp_path / "site"
    subprocess.run(
        [
            sys.executable,
            "-m",
            "pip",
            "install",
            "--quiet",
            "--no-deps",
            "--no-index",
            "--target",
            str(target),
            str(wheel),
        ],
        check=True,
        capture_output=True,
    )
    environment = {**os.environ, "PYTHONPATH": str(target)}
    code = "import costgpu.pricing, costgpu.providers; print(costgpu.pricing.__file__)"
    where = subprocess.run(
        [sys.executable, "-c", code], env=environment, cwd=tmp_path, check=True, capture_output=True, text=True
    ).stdout
    assert where.startswith(str(target))
    command = [sys.executable, "-m", "costgpu", "offers", "--gpus", "L4:1", "--json", "--top", "1"]
    out = subprocess.run(command, env=environment, cwd=tmp_path, check=True, capture_output=True, text=True).stdout
    assert json.loads(out)["offers"]
    root = Path(__file__).resolve().parent.parent.parent
    for cloud, file in (("aws", "policy.json"), ("gcp", "role.yaml")):
        command = [sys.executable, "-m", "costgpu", "doctor", "--policy", cloud]
        out = subprocess.run(command, env=environment, cwd=tmp_path, check=True, capture_output=True, text=True).stdout
        assert out == (root / "providers" / cloud / file).read_text()


@pytest.mark.torch
def test_the_installed_probe_measures(wheel: Path, tmp_path: Path) -> None:
    target = tmp_path / "site"
    subprocess.run(
        [
            sys.executable,
            "-m",
            "pip",
            "install",
            "--quiet",
            "--no-deps",
            "--no-index",
            "--target",
            str(target),
            str(wheel),
        ],
        check=True,
        capture_output=True,
    )
    script = Path(__file__).resolve().parent.parent / "scripts" / "loader.py"
    command = [sys.executable, "-m", "costgpu", "estimate", "--json", "--measure-for", "1s", "--python", sys.executable]
    result = subprocess.run(
        [*command, str(script)],
        env={**os.environ, "PYTHONPATH": str(target)},
        cwd=tmp_path,
        check=False,
        capture_output=True,
        text=True,
    )
    assert result.returncode == 0, result.stderr
    assert json.loads(result.stdout)["workload"]["phases"][0]["total"]["steps"] == 10000
