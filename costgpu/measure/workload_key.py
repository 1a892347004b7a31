"""The key of a workload: equal for two runs that do the same work. Standard library only; runs nothing.

What counts: the script's bytes (or the module's name and bytes), its arguments, the processes that it is started with,
the names of the variables that it is given (but not of credentials), every Python file of the user's that it imports,
every file that its arguments name, and every program or configuration that its own text names. Any change of these is
another key, so that a changed script never inherits another's speed.

What does not count: where the folder is, the interpreter and the framework's version, files that nothing names (data,
what earlier runs have left), values of variables (they may be secrets). The number of steps is held against each
measured run besides: data that have grown change it.
"""

from __future__ import annotations

import ast
import hashlib
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

SCHEME = "1"  # another one makes all earlier keys unknown
WHOLE_BYTES = 1 << 20  # files that are larger count by their size: they are data
MOST_FILES = 2000
NAMED = {".yaml", ".yml", ".toml", ".ini", ".cfg", ".conf", ".gin", ".json", ".py", ".sh"}
_CREDENTIAL = re.compile("KEY|TOKEN|SECRET|PASSWORD|CREDENTIAL", re.IGNORECASE)  # changes who asks, not what is done
_DYNAMIC = {"importlib", "runpy", "pkgutil"}


def workload_key(
    *,
    script: Path | None,
    module: str | None,
    arguments: Sequence[str],
    workdir: Path,
    processes: int = 0,
    variables: Iterable[str] = (),
) -> str:
    """Return the key, as 32 hexadecimal digits; empty if there is nothing to read.

    Args:
        script: None with `module`.
        module: For ``python -m``.
        arguments: Of the script.
        workdir: Where it runs; local imports are looked for here and beside the script.
        processes: As in `JobSpec`.
        variables: Names of environment variables that it is given.
    """
    roots = [workdir] if script is None else [script.parent, workdir]
    first = script if script is not None else next(_module_files(str(module), roots), None)
    if first is None and module is None:
        return ""
    digest = hashlib.sha256()
    names = sorted(name for name in variables if not _CREDENTIAL.search(name))
    counted = [str(len(arguments)), *arguments, str(len(names)), *names]
    for part in (SCHEME, module or "", str(processes), *counted):
        _add(digest, _bytes(part))
    try:
        if first is not None:
            _add(digest, first.read_bytes())
            found = _reachable(first, roots)
        else:
            found = {}  # a module that is installed: its name has to do
        found.update(_named(arguments, workdir))
        for path, name in sorted(found.items(), key=lambda item: (item[1], item[0])):
            _add(digest, _bytes(name))
            _add(digest, _content(path))
    except OSError:
        return ""
    return digest.hexdigest()[:32]


def _add(digest: hashlib._Hash, part: bytes) -> None:
    digest.update(len(part).to_bytes(8, "big") + part)


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def _content(path: Path) -> bytes:
    size = path.stat().st_size
    return path.read_bytes() if size <= WHOLE_BYTES else str(size).encode()


def _reachable(first: Path, roots: Sequence[Path]) -> dict[Path, str]:
    """File -> name below its root, of everything of the user's that the first file imports or names."""
    found: dict[Path, str] = {}
    waiting, seen = [first.resolve()], {first.resolve()}
    everything = False
    while waiting:
        path = waiting.pop()
        try:
            tree = ast.parse(path.read_bytes())
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            continue
        files = [*_imports(tree, path, roots), *_mentioned(tree, [path.parent, *roots])]
        if not everything and _is_dynamic(tree):
            everything = True  # any of the folder's modules may be meant
            files += [(file, roots[0]) for file in _python_files(roots[0])]
        for file, root in files:
            file = file.resolve()
            if file in seen or len(seen) > MOST_FILES:
                continue
            seen.add(file)
            found[file] = _name_below(root, file)
            if file.suffix == ".py":
                waiting.append(file)
    return found


def _name_below(root: Path, file: Path) -> str:
    try:
        return file.relative_to(root.resolve()).as_posix()
    except ValueError:
        return file.name


def _imports(tree: ast.AST, path: Path, roots: Sequence[Path]) -> Iterator[tuple[Path, Path]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for name in node.names:
                yield from _files(name.name, roots)
        elif isinstance(node, ast.ImportFrom):
            folders = list(path.parents)
            places = [folders[min(node.level, len(folders)) - 1]] if node.level else roots
            base = [node.module] if node.module else []
            for dotted in (base, *([*base, name.name] for name in node.names)):
                yield from _files(".".join(dotted), places)


def _files(dotted: str, roots: Sequence[Path]) -> Iterator[tuple[Path, Path]]:
    """Yield the files that importing a name reads: packages on the way, and the module."""
    parts = dotted.split(".") if dotted else []
    for root in roots:
        here = root
        hit = False
        for part in parts:
            here = here / part
            for file in (here / "__init__.py", here.with_name(f"{here.name}.py")):
                if file.is_file():
                    hit = True
                    yield file, root
        if hit:
            return


def _module_files(dotted: str, roots: Sequence[Path]) -> Iterator[Path]:
    """Yield the file that ``python -m`` runs."""
    for root in roots:
        base = root.joinpath(*dotted.split("."))
        for file in (base / "__main__.py", base.with_name(f"{base.name}.py")):
            if file.is_file():
                yield file


def _mentioned(tree: ast.AST, roots: Sequence[Path]) -> Iterator[tuple[Path, Path]]:
    """Yield the files that the source names, but for those that it opens to write, and those in its ``config_path``."""
    written: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and len(node.args) > 1 and isinstance(node.args[1], ast.Constant):
            mode = node.args[1].value
            if isinstance(mode, str) and set(mode) <= set("wax+bt") and set(mode) & set("wax"):
                written.add(id(node.args[0]))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            if id(node) not in written:
                yield from _existing(node.value, roots, NAMED)
        elif isinstance(node, ast.keyword) and node.arg == "config_path" and isinstance(node.value, ast.Constant):
            for root in roots:
                folder = root / str(node.value.value)
                if folder.is_dir():
                    yield from ((file, root) for file in sorted(folder.rglob("*.y*ml"))[:MOST_FILES])


def _existing(text: str, roots: Sequence[Path], suffixes: set[str] | None) -> Iterator[tuple[Path, Path]]:
    if not 0 < len(text) < 500 or "\0" in text or "\n" in text:
        return
    for root in roots:
        try:
            file = root / text
            if (suffixes is None or file.suffix in suffixes) and file.is_file():
                yield file, root
                return
        except (OSError, ValueError):
            return


def _named(arguments: Sequence[str], workdir: Path) -> dict[Path, str]:
    """Return the files that arguments name, as ``file`` or ``--option=file`` or ``@file``."""
    found = {}
    for word in arguments:
        for text in (word, word.split("=", 1)[-1], word.removeprefix("@")):
            for file, _ in _existing(text, [workdir], None):
                found[file] = f"argument {text}"
    return found


def _is_dynamic(tree: ast.AST) -> bool:
    """Return whether it imports by names that are made at run time."""
    for node in ast.walk(tree):
        names = [name.name for name in node.names] if isinstance(node, ast.Import) else []
        if isinstance(node, ast.ImportFrom):
            names = [node.module or ""]
        if _DYNAMIC & {name.partition(".")[0] for name in names}:
            return True
        if isinstance(node, ast.Name) and node.id == "__import__":
            return True
    return False


def _python_files(root: Path) -> list[Path]:
    """List the folder's Python files, without virtual environments and hidden folders."""
    found: list[Path] = []
    waiting = [root]
    while waiting and len(found) < MOST_FILES:
        folder = waiting.pop()
        try:
            entries = sorted(folder.iterdir())
        except OSError:
            continue
        if folder != root and ((folder / "pyvenv.cfg").exists() or folder.name in {"site-packages", "node_modules"}):
            continue
        for entry in entries:
            if entry.is_symlink() or entry.name.startswith((".", "__pycache__")):
                continue
            if entry.is_dir():
                waiting.append(entry)
            elif entry.suffix == ".py":
                found.append(entry)
    return found[:MOST_FILES]
