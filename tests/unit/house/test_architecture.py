"""The house: who may import whom, what the probe may use, and that a breach is seen."""

import ast
import io
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from costgpu.portable.bundle import PACKAGE, bundle

BREACHES = [
    ("costgpu/estimator/cost.py", "from costgpu.pricing import catalog", "siblings never import each other"),
    ("costgpu/units.py", "import costgpu.models", "import downwards only"),
    ("costgpu/estimator/cost.py", "import rich", "typer and rich stay"),
    ("costgpu/estimator/cost.py", "import subprocess", "estimate is pure"),
    ("costgpu/measure/probe/sandbox/files.py", "import costgpu.units", "travel alone"),
    ("pricing/catalog.py", "import boto3", "Cloud SDKs stay"),
    ("costgpu/job/files/tar.py", "import costgpu.job.machine.host", "Arrows under job/ go one way"),
]


def lint(folder: Path) -> subprocess.CompletedProcess[str]:
    """import-linter over a copy of the house."""
    lines = [
        "from importlinter.cli import lint_imports",
        "import sys",
        f"sys.path.insert(0, {str(folder)!r})",
        "sys.exit(lint_imports(no_cache=True))",
    ]
    return subprocess.run(
        [sys.executable, "-c", "\n".join(lines)], cwd=folder, capture_output=True, text=True, check=False
    )


@pytest.fixture
def house(root: Path, tmp_path: Path) -> Path:
    """A copy of the source tree that a test may break."""
    for name in ("costgpu", "pricing", "providers"):
        shutil.copytree(root / name, tmp_path / name, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(root / "pyproject.toml", tmp_path)
    return tmp_path


def test_the_contracts_hold(house: Path) -> None:
    result = lint(house)
    assert result.returncode == 0, result.stdout + result.stderr


def test_planted_breaches_are_seen(house: Path) -> None:
    for place, line, _ in BREACHES:
        target = house / place
        target.write_text(target.read_text() + f"\n{line}\n")
    result = lint(house)
    assert result.returncode != 0
    broken = [row for row in result.stdout.splitlines() if " BROKEN" in row]
    for _, _, contract in BREACHES:
        assert any(contract in row for row in broken), contract


@pytest.mark.parametrize(
    ("package", "main", "theirs"),
    [
        ("measure.probe", "entry", {"torch", "numpy", "schedstat"}),
        ("job.agent", "main", set()),
        ("sweep.tuner", "main", {"ray"}),
    ],
)
def test_what_travels_is_python_3_8_and_brings_all_that_it_imports(package: str, main: str, theirs: set[str]) -> None:
    packed = bundle.__wrapped__(package, main)
    assert packed == bundle(package, main), "the same bytes every time"
    with zipfile.ZipFile(io.BytesIO(packed)) as archive:
        sources = {name: archive.read(name).decode() for name in archive.namelist()}
    assert len(sources) > 5
    for name, source in sources.items():
        for node in ast.walk(ast.parse(source, feature_version=(3, 8))):
            if isinstance(node, ast.ImportFrom) and (node.level or str(node.module).startswith(PACKAGE)):
                folder = name.split("/")[: -node.level] if node.level else []
                path = "/".join([*folder, *(node.module or "").split(".")]).rstrip("/")
                assert {f"{path}.py", f"{path}/__init__.py"} & set(sources), (name, path)
            elif isinstance(node, ast.Import | ast.ImportFrom):
                names = [str(node.module)] if isinstance(node, ast.ImportFrom) else [alias.name for alias in node.names]
                outside = {each.partition(".")[0] for each in names} - set(sys.stdlib_module_names)
                assert outside <= (set() if "/portable/" in name else theirs), (name, outside)


def test_the_bare_names_of_the_top_folders_cannot_be_imported(root: Path) -> None:
    for name in ("providers", "pricing"):
        result = subprocess.run(
            [sys.executable, "-c", f"import {name}"], cwd=root, capture_output=True, text=True, check=False
        )
        assert f"import costgpu.{name}" in result.stderr


def test_unit_tests_cannot_open_a_socket() -> None:
    import socket

    from pytest_socket import SocketBlockedError

    with pytest.raises((SocketBlockedError, UserWarning)):
        socket.socket(socket.AF_INET, socket.SOCK_STREAM)


def test_unit_tests_see_no_credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    import os

    assert not [name for name in os.environ if name.startswith(("AWS_", "GOOGLE_", "COSTGPU_"))]
    assert "pytest" in os.environ["HOME"]
