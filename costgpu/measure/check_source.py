"""Whether a file is Python at all, before anything is measured or rented for it."""

from __future__ import annotations

import subprocess
from pathlib import Path

from costgpu.errors import NotPython, ScriptNotFound
from costgpu.files import FileKind, read_bytes

SOURCE = FileKind(most_bytes=2**24, error=NotPython)
COMPILE_SECONDS = 60.0
_REFUSED, _DOES_NOTHING = 22, 23
_DATA = frozenset([".txt", ".csv", ".tsv", ".md", ".json", ".yaml", ".yml", ".log", ".toml", ".ini"])
_COMPILE = f"""
import ast, sys, warnings
warnings.simplefilter("ignore")
source = sys.stdin.buffer.read()
acts = (ast.Pass, ast.Call, ast.Import, ast.ImportFrom, ast.For, ast.While, ast.With, ast.Raise, ast.Assert)
try:
    compile(source, sys.argv[1], "exec", dont_inherit=True)
    if not any(isinstance(node, acts) for node in ast.walk(ast.parse(source))):
        sys.exit({_DOES_NOTHING})
except (SyntaxError, ValueError) as error:
    text = "%d.%d.%d\\n%s" % (*sys.version_info[:3], error)
    sys.stdout.buffer.write(text.encode("utf-8", "replace"))
    sys.exit({_REFUSED})
"""
_IS_NAMESPACE = f"""
import importlib.util, sys
found = importlib.util.find_spec(sys.argv[1])
sys.exit({_REFUSED} if found is not None and found.origin is None else 0)
"""


def check_source(source: Path, python: str) -> None:
    """Refuse a file that `python` cannot compile, or that is data which happens to be Python, as a table of numbers is.

    A `python` that does not answer in time refuses nothing.

    Raises:
        NotPython: With what the compiler says.
    """
    text = read_bytes(source, SOURCE) or b""
    code, said = _ask([python, "-I", "-S", "-c", _COMPILE, source.name], text)
    if code == _REFUSED:
        version, _, message = said.partition("\n")
        raise not_python(source.name, f"{python} ({version})", message)
    if code == _DOES_NOTHING or (source.suffix.lower() in _DATA and not text.startswith(b"#!")):
        raise NotPython(
            f"{source.name} is empty or data, and no Python script.",
            hint="Is it the right file? A program that reads it is run with: costgpu run PROGRAM ARGUMENTS",
        )


def not_python(name: str, python: str, message: str) -> NotPython:
    """Return the error for a file that an interpreter cannot compile."""
    return NotPython(
        f"{name} is not Python that {python} can compile: {message}",
        hint="Is it the right file, and the right --python?",
    )


def module_file(module: str, folder: Path, python: str) -> Path | None:
    """Return the file that ``python -m`` runs, if it is one of the folder's own; None for an installed module.

    Raises:
        ScriptNotFound: The package is in the folder, and has no such module.
    """
    parts = module.split(".")
    top, path = folder / parts[0], folder.joinpath(*parts)
    own = (top / "__init__.py").is_file() or top.with_suffix(".py").is_file()
    if not own and not (top.is_dir() and _ask([python, "-c", _IS_NAMESPACE, parts[0]], b"", folder)[0] == _REFUSED):
        return None
    if path.is_dir():
        if not any(path.glob("__main__.*")):
            raise ScriptNotFound(
                f"{module} is a package and cannot be run as it is.",
                hint="A package needs a __main__.py to be run with -m.",
            )
        path /= "__main__"
    elif not any(path.parent.glob(path.name + ".*")):
        raise ScriptNotFound(
            f"There is no module {module!r} to run with -m.",
            hint="Run it from the folder that holds the package, or name that folder with --workdir.",
        )
    source = path.parent / (path.name + ".py")
    return source if source.is_file() else None


def _ask(command: list[str], data: bytes, folder: Path | None = None) -> tuple[int | None, str]:
    """Return the exit code and the output of a command; no code if it does not answer."""
    try:
        answer = subprocess.run(
            command, input=data, capture_output=True, timeout=COMPILE_SECONDS, check=False, cwd=folder
        )
    except (OSError, subprocess.TimeoutExpired):
        return None, ""
    return answer.returncode, answer.stdout.decode("utf-8", "replace")
