"""Which file says what a rented machine installs, and the command that installs it."""

import os
from pathlib import Path

import pytest

from costgpu.errors import UsageError
from costgpu.measure.prefixes import split_prefixes
from costgpu.workflows.runs.packages import PackageSource, find_packages
from costgpu.workflows.runs.packages.source import normal, parse

UV_ONLY = "{ command -v uv >/dev/null || pip install uv; } && uv pip install --python python3 --break-system-packages "
TOOLS = "[tool.ruff]\nline-length = 100\n[build-system]\nrequires = []\n"
BUILD = '[build-system]\nrequires = ["setuptools"]\n'
PLAIN = '[project]\nname = "mine"\nversion = "1"\ndependencies = ["numpy>=1.26", "torch"]\n'
SCRIPT = '# /// script\n# dependencies = ["einops", "torch>=2"]\n# requires-python = ">=3.10"\n# ///\nimport torch\n'
SOURCED = '# /// script\n# dependencies = ["einops"]\n# [tool.uv.sources]\n# einops = { path = "libs/einops" }\n# ///\n'
INDEX = '[[tool.uv.index]]\nname = "mine"\nurl = "https://example.org/simple"\n'
LOCK = """
version = 1
[[package]]
name = "mine"
source = { editable = "." }
dependencies = [{ name = "torch" }, { name = "kept", extra = ["more"] }]
[package.optional-dependencies]
plots = [{ name = "matplotlib" }]
[package.dev-dependencies]
dev = [{ name = "rich" }]
[[package]]
name = "torch"
source = { registry = "https://pypi.org/simple" }
dependencies = [{ name = "sympy" }]
[[package]]
name = "kept"
source = { directory = "libs/kept" }
[package.optional-dependencies]
more = [{ name = "mine" }, { name = "tqdm" }]
less = [{ name = "pandas" }]
[[package]]
name = "matplotlib"
source = { registry = "https://pypi.org/simple" }
"""


def found(folder: Path, command: str = "", files: dict[str, str] | None = None, **more: object) -> PackageSource:
    for name, text in {"train.py": "", **(files or {})}.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    prefixes, _ = split_prefixes([*command.split(), "train.py"])
    return find_packages(folder, folder / "train.py", prefixes=prefixes, **more)  # type: ignore[arg-type]


def names(source: PackageSource) -> set[str]:
    return {normal(need.name) for need in map(parse, source.requirements) if need is not None}


@pytest.mark.parametrize(
    ("files", "label", "installs"),
    [
        ({}, "", set()),
        ({"train.py": SCRIPT, "requirements.txt": "numpy"}, "train.py (PEP 723)", {"einops", "torch"}),
        ({"train.py": SCRIPT.replace("\n", "\r\n"), "uv.lock": ""}, "train.py (PEP 723)", {"einops", "torch"}),
        ({"train.py": "# /// script\n# requires-python = '>=3.11'\n# ///\n"}, "", set()),
        ({"train.py": '"""# /// script"""\n'}, "", set()),
        ({"requirements.txt": "numpy", "pyproject.toml": PLAIN}, "requirements.txt", {"numpy"}),
        ({"requirements-app.txt": "flask", "requirements-train.txt": "tqdm"}, "requirements-train.txt", {"tqdm"}),
        ({"requirements-dev.txt": "pytest", "requirements/test.txt": "tox"}, "", set()),
        ({"requirements_gpu.txt": "torch"}, "requirements_gpu.txt", {"torch"}),
        ({"requirements.txt": "numpy", "environment.yml": "x"}, "requirements.txt", {"numpy"}),
        ({"pyproject.toml": PLAIN, "environment.yml": "x"}, "pyproject.toml", {"numpy", "torch"}),
        ({"pyproject.toml": TOOLS}, "", set()),
        ({"pyproject.toml": TOOLS, "setup.cfg": "[flake8]\nmax-line-length = 100\n"}, "", set()),
        ({"pyproject.toml": TOOLS, "setup.py": "", "setup.cfg": "[flake8]\n"}, "pyproject.toml", set()),
        ({"setup.cfg": "[metadata]\nname = x\n"}, "setup.cfg", set()),
        ({"pyproject.toml": "[tool.poetry]\nname='x'\n" + BUILD}, "pyproject.toml", set()),
        ({"poetry.lock": "", "Pipfile": ""}, "", set()),
    ],
)  # fmt: skip
def test_the_most_specific_file_says_what_is_installed(
    tmp_path: Path, files: dict[str, str], label: str, installs: set[str]
) -> None:
    source = found(tmp_path, files=files)
    assert (source.label, names(source)) == (label, installs)
    assert bool(source.setup) == bool(label)


def test_a_project_without_a_build_gives_its_packages_only(tmp_path: Path) -> None:
    source = found(tmp_path, files={"pyproject.toml": PLAIN + 'requires-python = ">=3.11"\n'})
    assert source.setup.endswith("; $by 'numpy>=1.26' torch; }")
    assert "sys.version_info < (3, 11)" in source.setup
    assert source.text == "pyproject.toml, by uv or pip"
    assert source.complete


def test_a_project_with_a_build_or_a_src_folder_is_installed_itself(tmp_path: Path) -> None:
    more = PLAIN + '[project.optional-dependencies]\nplots = ["matplotlib"]\n'
    source = found(tmp_path, files={"pyproject.toml": more + BUILD}, extras=["plots"])
    assert source.setup.endswith("; $by -e '.[plots]'; }")
    assert names(source) == {"mine", "numpy", "torch", "matplotlib"}
    source = found(tmp_path, files={"pyproject.toml": PLAIN, "src/mine/__init__.py": ""})
    assert source.setup.endswith("; $by -e .; }")
    source = found(tmp_path, files={"requirements.txt": "torch"})
    assert source.setup.endswith("; $by -r requirements.txt; } && pip install --no-deps -e .")
    assert names(source) == {"mine", "torch"}
    source = found(tmp_path, files={"requirements.txt": "torch\n-e .\n"})
    assert source.setup.endswith("; $by -r requirements.txt; }")
    assert names(source) == {"mine", "torch", "numpy"}


def test_a_version_from_git_is_not_asked_for_where_there_is_no_history(tmp_path: Path) -> None:
    project = PLAIN.replace('version = "1"', 'dynamic = ["version"]') + BUILD
    source = found(tmp_path, files={"pyproject.toml": project})
    assert source.setup.startswith("export SETUPTOOLS_SCM_PRETEND_VERSION_FOR_MINE=0 ")
    assert source.complete, "its packages are all named"


def test_a_lock_is_obeyed_by_uv_and_names_all_that_it_reaches(tmp_path: Path) -> None:
    files = {"pyproject.toml": PLAIN + '[project.optional-dependencies]\nplots = ["matplotlib"]\n', "uv.lock": LOCK}
    (tmp_path / "libs/kept").mkdir(parents=True)
    source = found(tmp_path, files=files)
    assert source.text == "pyproject.toml + uv.lock, by uv"
    assert source.setup.endswith(" uv sync --frozen --inexact --no-python-downloads --python python3")
    assert names(source) == {"mine", "torch", "sympy", "kept", "tqdm", "rich"}
    assert {"libs/kept", "uv.lock", "pyproject.toml"} <= set(source.files)
    source = found(tmp_path, "uv run --extra plots --group=dev --index https://example.org/simple")
    assert source.setup.endswith("--python python3 --extra plots --group dev --index https://example.org/simple")
    assert "matplotlib" in names(source)


@pytest.mark.parametrize(
    ("files", "setup"),
    [
        ({"train.py": SOURCED}, "uv sync --active --inexact --no-python-downloads --python python3 --script train.py"),
        ({"pyproject.toml": PLAIN + '[tool.uv.sources]\ntorch = { index = "cpu" }\n'}, UV_ONLY + "-r pyproject.toml"),
        ({"pyproject.toml": PLAIN + BUILD + INDEX}, UV_ONLY + "-e ."),
        ({"pyproject.toml": INDEX, "requirements.txt": "mine"}, UV_ONLY + "-r requirements.txt"),
        ({"uv.toml": "", "requirements.txt": "mine"}, UV_ONLY + "-r requirements.txt"),
        ({"libs/x/pyproject.toml": PLAIN + INDEX, "requirements.txt": "-e libs/x"}, UV_ONLY + "-r requirements.txt"),
        ({"pyproject.toml": PLAIN + '[tool.uv]\nfind-links = ["wheels"]\n'}, UV_ONLY + "-r pyproject.toml"),
        ({"pyproject.toml": PLAIN + "[tool.uv]\nno-index = true\n"}, UV_ONLY + "-r pyproject.toml"),
        ({"pyproject.toml": PLAIN + '[tool.uv.pip]\nindex-url = "https://h/s"\n'}, UV_ONLY + "-r pyproject.toml"),
        ({"train.py": SCRIPT, "uv.toml": 'index-url = "https://h/s"\n'}, UV_ONLY + "einops 'torch>=2'"),
    ],
)  # fmt: skip
def test_where_uv_is_told_where_packages_are_no_other_program_installs_them(
    tmp_path: Path, files: dict[str, str], setup: str
) -> None:
    (tmp_path / "libs/einops").mkdir(parents=True)
    source = found(tmp_path, files=files)
    assert source.setup.endswith(setup)
    assert source.installer == "uv"
    assert "pip install einops" not in source.setup


def test_what_uv_run_adds_is_installed_too(tmp_path: Path) -> None:
    files = {"more.txt": "tqdm", "requirements.txt": "torch"}
    source = found(tmp_path, "uv run --with rich,einops -w polars --with-requirements more.txt", files)
    assert source.setup.endswith(f"-r requirements.txt; }} && {UV_ONLY}rich einops polars -r more.txt")
    assert names(source) == {"torch", "rich", "einops", "polars", "tqdm"}
    assert source.label == "requirements.txt + uv run --with"
    assert any("not uv run" in note for note in source.notes)
    source = found(tmp_path, "env -i A=1 /opt/uv run --with torch>=2,<3,einops[a,b] -q")
    assert source.setup.endswith(f"{UV_ONLY}'torch>=2,<3' 'einops[a,b]'")
    (tmp_path / "requirements.txt").unlink()
    source = found(tmp_path, "uv run --with tqdm", {"environment.yml": CONDA})
    assert not source.complete


@pytest.mark.parametrize("command", ["uv run", "poetry run", "pdm run", "conda run -n E"])
def test_a_program_that_gives_the_script_its_packages_here_needs_a_file_that_says_them(
    tmp_path: Path, command: str
) -> None:
    with pytest.raises(UsageError, match=r"gives the script its packages here") as caught:
        found(tmp_path, command)
    assert "requirements.txt" in caught.value.hint


PLACES = [
    ({"requirements.txt": "../wheels/x-1-py3-none-any.whl"}, "not in the folder that is sent"),
    ({"requirements.txt": "x @ file:///home/conda/x"}, "not in the folder that is sent"),
    ({"requirements.txt": "torch\n-r ../base.txt"}, "line 2 names ../base.txt, which is not in the folder"),
    ({"requirements.txt": "-c missing.txt"}, "which is not there"),
    ({"requirements.txt": "-e ../lib"}, "not in the folder that is sent"),
    ({"requirements.txt": "--editable=../lib"}, "not in the folder that is sent"),
    ({"requirements.txt": "--find-links ../wheels"}, "not in the folder that is sent"),
    ({"requirements.txt": "-f/srv/wheels"}, "not in the folder that is sent"),
    ({"requirements.txt": "--extra-index-url file:///srv/simple"}, "not in the folder that is sent"),
    ({"requirements.txt": "numpy=1.26=py311h_0"}, "belongs into an environment.yml"),
    ({"pyproject.toml": PLAIN + '[tool.uv.sources]\ntorch = { path = "../torch" }\n'}, "not in the folder that is sent"),
    ({"pyproject.toml": PLAIN + "[tool.uv.sources]\ntorch = { workspace = true }\n"}, "--workdir"),
    ({"pyproject.toml": PLAIN, "uv.lock": LOCK.replace("libs/kept", "../kept")}, "not in the folder that is sent"),
    ({"pyproject.toml": "[project\n"}, "pyproject.toml: Expected"),
    ({"pyproject.toml": "[tool.poetry]\npackage-mode = false\n"}, "poetry export"),
    ({"pyproject.toml": PLAIN + "[[tool.poetry.source]]\nname = 'own'\nurl = 'https://example.org'"}, "poetry export"),
    ({"train.py": '# /// script\n# dependencies = ["x"]\nimport x\n'}, "no line '# ///' ends"),
    ({"train.py": "# /// script\n# dependencies = [\n# ///\n"}, "train.py: "),
    ({"train.py": '# /// script\n# dependencies = ["x @ file:///x"]\n# ///\n'}, "not in the folder that is sent"),
]  # fmt: skip


@pytest.mark.parametrize(("files", "message"), PLACES)
def test_what_does_not_travel_or_is_broken_is_told_before_anything_is_rented(
    tmp_path: Path, files: dict[str, str], message: str
) -> None:
    with pytest.raises(UsageError) as caught:
        found(tmp_path, files=files)
    assert message in f"{caught.value.message} {caught.value.hint}"


SECRET = "hunter2hunter2"
SECRETS = [
    {"requirements.txt": f"--index-url https://ada:{SECRET}@example.org/simple\nx"},
    {"requirements.txt": f"x @ git+https://{SECRET}@github.com/ada/x"},
    {"requirements.txt": f"-e git+https://ada:{SECRET}@github.com/ada/x#egg=x"},
    {"requirements.txt": f"--find-links https://example.org/x?private_token={SECRET}"},
    {"requirements.txt": "-r more.txt", "more.txt": f"--extra-index-url=https://:{SECRET}@example.org/simple"},
    {"pyproject.toml": PLAIN.replace("torch", f"x @ https://__token__:{SECRET}@example.org/x-1.zip")},
    {"pyproject.toml": f"{PLAIN}[[tool.uv.index]]\nurl = 'https://ada:{SECRET}@example.org/simple'\n"},
    {"train.py": f'# /// script\n# dependencies = ["x @ git+https://{SECRET}@github.com/ada/x"]\n# ///\n'},
    {"environment.yml": f"dependencies: [python, pip, pip: ['--index-url https://ada:{SECRET}@example.org', x]]"},
]


@pytest.mark.parametrize(
    ("command", "files"),
    [
        *(("", files) for files in SECRETS),
        (f"uv run --with git+https://{SECRET}@x.org/x#egg=x", {}),
        (f"uv run --index https://a:{SECRET}@x.org --with x", {}),
    ],
)
def test_a_password_in_a_url_is_refused_and_not_repeated(tmp_path: Path, command: str, files: dict[str, str]) -> None:
    with pytest.raises(UsageError, match="password or a token") as caught:
        found(tmp_path, command, files)
    assert SECRET not in f"{caught.value.message} {caught.value.hint}"


def test_variables_take_the_place_of_passwords_if_the_job_gets_them(tmp_path: Path) -> None:
    files = {"requirements.txt": "--extra-index-url https://ada:${TOKEN}@example.org/simple\nx"}
    with pytest.raises(UsageError, match=r"needs TOKEN") as caught:
        found(tmp_path, files=files)
    assert caught.value.hint == "Add -e TOKEN."
    source = found(tmp_path, variables={"TOKEN": SECRET})
    assert source.setup == "pip install -r requirements.txt", (
        "uv takes the first index that has a package, pip the best"
    )
    project = PLAIN.replace('"torch"', '"x @ git+https://${TOKEN}@github.com/ada/x"')
    (tmp_path / "requirements.txt").unlink()
    source = found(tmp_path, files={"pyproject.toml": project}, variables={"TOKEN": SECRET})
    assert "'x @ git+https://'\"${TOKEN}\"@github.com/ada/x" in source.setup
    assert SECRET not in repr(source)


def test_lines_are_read_as_pip_reads_them(tmp_path: Path) -> None:
    text = (
        "\ufeff# packages\r\nnumpy==2.1 \\\r\n    --hash=sha256:aa \\\r\n    --hash=sha256:bb\r\n"
        'torch>=2 ; sys_platform == "linux"  # comment\r\n./wheels/own-1.0-py3-none-any.whl\r\n'
        "--pre\r\n-r requirements/base.txt\r\n-cbounds.txt\r\ngit+ssh://git@github.com/ada/x.git#egg=x\r\n"
    )
    files = {
        "requirements.txt": text,
        "requirements/base.txt": "-r ../requirements.txt\ntqdm",
        "bounds.txt": "scipy<2",
        "wheels/own-1.0-py3-none-any.whl": "",
    }
    source = found(tmp_path, files=files)
    assert names(source) == {"numpy", "torch", "own", "tqdm", "x"}
    assert {"wheels/own-1.0-py3-none-any.whl", "requirements/base.txt", "bounds.txt"} <= set(source.files)
    assert any("SSH" in note for note in source.notes)
    (tmp_path / "requirements.txt").write_text("numpy\nhttps://example.org/archive/main.zip\n", encoding="utf-16")
    source = found(tmp_path)
    assert (names(source), source.complete) == ({"numpy"}, False)


CONDA = """
name: train
channels: [conda-forge]
dependencies:
  - python=3.11.7=hab00c5b_0_cpython
  - numpy=1.26=py311h_0
  - conda-forge::pytorch >=2
  - pip
  - pip:
    - tqdm==4.66
    - --extra-index-url https://download.pytorch.org/whl/cpu
variables:
  LR: "0.1"
prefix: /home/ada/miniconda3/envs/train
"""


def test_an_exported_environment_of_conda_is_made_by_micromamba(tmp_path: Path) -> None:
    source = found(tmp_path, "conda run -n train", {"environment.yml": CONDA})
    assert names(source) == {"python", "numpy", "pytorch", "pip", "tqdm"}
    assert source.text == "environment.yml, by micromamba"
    assert '"$m" create -y -r "$COSTGPU_HOME/conda" -p "$COSTGPU_HOME/env" -f environment.yml' in source.setup
    assert not source.complete
    assert len([note for note in source.notes if "exact builds" in note or "variables" in note]) == 2


@pytest.mark.parametrize(
    "text",
    [
        "dependencies: [",
        "- python",
        "dependencies:\n- python\n- 3",
        "dependencies: [numpy]",
        "dependencies: " + "[" * 3000 + "]" * 3000,
        "name: &a x\nprefix: *a\ndependencies: [python]",
        "name: 2026-99-99\ndependencies: [python]",
    ],
)
def test_a_broken_environment_of_conda_is_told(tmp_path: Path, text: str) -> None:
    with pytest.raises(UsageError, match=r"environment\.yml"):
        found(tmp_path, files={"environment.yml": text})


def test_what_lies_above_or_is_not_read_is_said(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / "requirements.txt").write_text("torch")
    folder = tmp_path / "src"
    source = found(folder, files={"poetry.lock": ""})
    assert source.label == ""
    assert any("poetry export" in note for note in source.notes)
    assert any(f"--workdir {tmp_path}" in note for note in source.notes)


def test_an_extra_is_one_of_the_project(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no extra plots"):
        found(tmp_path, files={"pyproject.toml": PLAIN}, extras=["plots"])
    with pytest.raises(UsageError, match=r"--extra plots is for a pyproject\.toml"):
        found(tmp_path, files={"requirements.txt": ""}, extras=["plots"])


def test_an_index_of_this_computer_alone_is_said_without_its_password(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in os.environ if name.startswith(("PIP_", "UV_"))]:
        monkeypatch.delenv(name)
    (tmp_path / "requirements.txt").write_text("numpy\n")
    assert find_packages(tmp_path, None).notes == ()
    monkeypatch.setenv("PIP_EXTRA_INDEX_URL", "https://me:secret@index.example/simple")
    settings = Path.home() / ".config/pip/pip.conf"
    settings.parent.mkdir(parents=True)
    settings.write_text("[global]\ntimeout = 60\nindex-url = https://me:secret@index.example/simple\n")
    (note,) = find_packages(tmp_path, None).notes
    assert "PIP_EXTRA_INDEX_URL and " in note
    assert "pip.conf is not known to the machine" in note
    assert "secret" not in note
    source = find_packages(tmp_path, None, setup="make it")
    assert (source.setup, source.complete, source.text, source.notes) == ("make it", False, "--setup", ())
