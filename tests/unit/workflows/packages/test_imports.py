"""What the measured script imports, held against what the machine would install; and the default where nothing says it."""

import sys
from dataclasses import replace
from pathlib import Path

import pytest

from costgpu.errors import PackagesMissing
from costgpu.job.plan import LaunchPlace
from costgpu.measure import Request
from costgpu.models.footprint import Footprint, ImportedPackage
from costgpu.models.workload import Framework, WorkloadProfile
from costgpu.workflows.runs.packages import PackageSource, check_imports, find_packages, imports, with_framework
from costgpu.workflows.runs.plan import _completed
from costgpu.workflows.runs.request import RunRequest
from tests.unit.estimator.builders import offer, profile

INSTALLED: imports.Installed = {
    "torch": (["sympy", 'nvidia-cublas; platform_system == "Linux"', 'rich; extra == "pretty"'], ["torch"]),
    "sympy": ([], ["sympy"]),
    "numpy": ([], ["numpy"]),
    "rich": ([], ["rich"]),
    "opencv-python-headless": ([], ["cv2"]),
    "opencv-python": ([], ["cv2"]),
    "einops": ([], ["einops"]),
}


def footprint(*modules: str) -> Footprint:
    """Imports of the script, as ``module`` or ``module=distribution``."""
    pairs = [(module, name or module) for module, _, name in (each.partition("=") for each in modules)]
    return Footprint(imported=[ImportedPackage(module=a, distribution=b, version="1.0") for a, b in pairs])


def source(*requirements: str, **more: object) -> PackageSource:
    whole = PackageSource(
        label="requirements.txt", requirements=requirements, complete=True, files=("requirements.txt",)
    )
    return replace(whole, **more)  # type: ignore[arg-type]


@pytest.fixture(autouse=True)
def installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(imports, "_installed", lambda *_: INSTALLED)


@pytest.mark.parametrize(
    ("packages", "modules"),
    [
        (source("Torch[pretty]>=2", "einops"), ("torch", "sympy", "rich", "einops")),
        (source("opencv-python-headless"), ("cv2=opencv-python",)),
        (source("torch"), ("pkg_resources=setuptools", "pip")),
        (source("torch", complete=False), ("einops",)),
        (source('einops; python_version < "3.9"'), ("einops",)),
        (source("einops", "tqdm", locked=True), ("tqdm",)),
    ],
)
def test_what_comes_along_is_not_missing(tmp_path: Path, packages: PackageSource, modules: tuple[str, ...]) -> None:
    assert check_imports(packages, footprint(*modules), tmp_path, sys.executable, None) == ()


@pytest.mark.parametrize(
    ("packages", "modules", "message"),
    [
        (source("torch"), ("torch", "einops"), "imports einops 1.0, which requirements.txt does not install."),
        (source("torch"), ("rich",), "rich 1.0, which"),
        (source("torch", locked=True), ("sympy",), "sympy 1.0, which"),
        (source('einops; sys_platform == "darwin"', "torch"), ("einops",), "einops 1.0, which"),
        (
            source(label="", files=()),
            ("yaml=PyYAML",),
            "yaml (PyYAML 1.0), and nothing says what the machine is",
        ),
    ],
)
def test_what_is_certainly_missing_is_refused_by_name(
    tmp_path: Path, packages: PackageSource, modules: tuple[str, ...], message: str
) -> None:
    with pytest.raises(PackagesMissing) as caught:
        check_imports(packages, footprint(*modules), tmp_path, sys.executable, None)
    assert message in caught.value.message
    assert caught.value.exit_code == 68
    assert f"{modules[-1].rpartition('=')[2]}==1.0" in caught.value.hint
    assert "--setup" in caught.value.hint


def test_what_may_come_with_a_package_that_is_not_here_is_a_remark(tmp_path: Path) -> None:
    (note,) = check_imports(source("accelerate"), footprint("einops"), tmp_path, sys.executable, None)
    assert "unless it comes with accelerate, which is not installed here" in note


def test_a_project_of_ones_own_is_added_by_its_folder(tmp_path: Path) -> None:
    one = ImportedPackage(module="mine", distribution="mine", version="1", origin=str(tmp_path / "src/mine"))
    with pytest.raises(PackagesMissing) as caught:
        check_imports(source("torch"), Footprint(imported=[one]), tmp_path, sys.executable, None)
    assert "requirements.txt: -e ." in caught.value.hint


def test_the_interpreter_says_what_it_has(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    found = imports._installed(sys.executable, tmp_path, None)
    assert "iniconfig" in "".join(found["pytest"][0])
    assert "pytest" in found["pytest"][1]
    assert imports._installed(str(tmp_path / "python"), tmp_path, None) == {}


MEASURED = replace(profile(), framework=Framework(version="2.6.0+cu124", python="3.12.1"))


def test_where_nothing_says_it_the_measured_pytorch_is_installed(tmp_path: Path) -> None:
    nothing = find_packages(tmp_path, None)
    cpu, gpu = (with_framework(nothing, MEASURED, gpu=each) for each in (False, True))
    assert cpu.setup == "pip install torch==2.6.0 numpy --extra-index-url https://download.pytorch.org/whl/cpu"
    assert gpu.setup == "pip install torch==2.6.0 numpy"
    assert gpu.text == "the measured PyTorch, by pip"
    with pytest.raises(PackagesMissing):
        check_imports(gpu, footprint("torch", "einops"), tmp_path, sys.executable, None)
    other = replace(MEASURED, framework=Framework(version="4.7.0", python="3.12.1", name="lightgbm"))
    assert with_framework(nothing, other, gpu=True).setup == "", "4.7.0 is no version of PyTorch"
    seen = replace(other, footprint=footprint("torch"))
    assert with_framework(nothing, seen, gpu=True).setup == "pip install torch==1.0 numpy"


def test_where_nothing_was_measured_either_the_plan_says_so(tmp_path: Path) -> None:
    found = with_framework(find_packages(tmp_path, None), None, gpu=True)
    assert (found.setup, found.text) == ("", "")
    assert "installs none" in found.notes[-1]


def test_a_run_on_a_rented_machine_is_held_against_its_measurement(tmp_path: Path) -> None:
    (tmp_path / "requirements.txt").write_text("torch")
    request = RunRequest(command=("train.py",), python=sys.executable)
    script = Request(script=tmp_path / "train.py", module=None, arguments=[], workdir=tmp_path)
    script.script.write_text("")  # type: ignore[union-attr]
    measured = replace(MEASURED, footprint=footprint("torch", "einops"))
    place = LaunchPlace(offer=offer("1.00"))

    def completed(request: RunRequest, measured: WorkloadProfile | None) -> str:
        packages = find_packages(tmp_path, script.script, setup=request.setup)
        return _completed(packages, request, script, measured, place).text

    with pytest.raises(PackagesMissing, match="einops"):
        completed(request, measured)
    assert completed(replace(request, setup="pip install einops"), measured) == "--setup"
    for unknown in (None, MEASURED):
        assert completed(request, unknown) == "requirements.txt, by uv or pip"
    assert completed(replace(request, launcher="ray"), None) == "requirements.txt + Ray, by uv or pip"
