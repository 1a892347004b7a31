"""What is installed from the wheel: the two symlinked folders as real packages, data and typing marker included."""

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
    root = Path(__file__).resolve().parents[2]
    out = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(out), str(root)]
    subprocess.run(command, check=True, capture_output=True, text=True)
    return next(out.glob("*.whl"))


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with what the wheel installs."""
    target = tmp_path_factory.mktemp("site")
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", "--target", str(target)]
    subprocess.run([*pip, str(wheel)], check=True, capture_output=True)
    return target


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


def test_the_installed_wheel_works_from_anywhere(installed: Path, root: Path, tmp_path: Path) -> None:
    def run(*words: str) -> str:
        return subprocess.run(
            [sys.executable, *words],
            env={**os.environ, "PYTHONPATH": str(installed)},
            cwd=tmp_path,
            check=True,
            capture_output=True,
            text=True,
        ).stdout

    code = "import costgpu.pricing, costgpu.providers; print(costgpu.pricing.__file__)"
    assert run("-c", code).startswith(str(installed))
    assert json.loads(run("-m", "costgpu", "offers", "--gpus", "L4:1", "--json", "--top", "1"))["offers"]
    for cloud, file in (("aws", "policy.json"), ("gcp", "role.yaml")):
        text = (root / "providers" / cloud / file).read_text()
        assert run("-m", "costgpu", "doctor", "--policy", cloud) == text


@pytest.mark.torch
def test_the_installed_probe_measures(installed: Path, root: Path, tmp_path: Path) -> None:
    script = root / "tests" / "scripts" / "loader.py"
    command = [sys.executable, "-m", "costgpu", "estimate", "--json", "--measure-for", "1s", "--python", sys.executable]
    result = subprocess.run(
        [*command, str(script)],
        env={**os.environ, "PYTHONPATH": str(installed)},
        cwd=tmp_path,
        check=False,
        capture_output=True,
        text=True,
    )
    assert result.returncode == 0, result.stderr
    assert json.loads(result.stdout)["workload"]["phases"][0]["total"]["steps"] == 10000
