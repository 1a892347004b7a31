"""Counts the files of a folder where a loop runs over them: reading a folder again changes nothing."""

from __future__ import annotations

import ast
import glob
import os
import pathlib

READERS = ("listdir", "scandir", "glob", "iglob", "rglob", "iterdir")
MOST_FILES = 10**6  # counting more would take seconds


def count_files(node, name, evaluator):
    """Return how many entries the call gives; None if it is not one of a folder that can be told."""
    owner, _, method = name.rpartition(".")
    options = {k.arg: evaluator.value(k.value) for k in node.keywords if k.arg}
    if owner == "os" and method in ("listdir", "scandir"):
        return limited(os.scandir(evaluator.value(node.args[0]) if node.args else "."))
    if method in ("glob", "iglob") and owner in ("", "glob"):
        known = {k: v for k, v in options.items() if k in ("recursive", "root_dir")}
        return limited(glob.iglob(text(node.args[0], evaluator), **known))
    if method in ("glob", "rglob", "iterdir") and isinstance(node.func, ast.Attribute):
        folder = path(node.func.value, evaluator)
        if folder is None:
            return None
        return limited(
            folder.iterdir() if method == "iterdir" else getattr(folder, method)(text(node.args[0], evaluator))
        )
    return None


def path(node, evaluator):
    """Return the `Path` of an expression: a variable, `Path(...)`, or one of these with `/ "name"`."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div):
        base = path(node.left, evaluator)
        return base / text(node.right, evaluator) if base is not None else None
    if isinstance(node, ast.Call):
        named = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        return pathlib.Path(*[text(one, evaluator) for one in node.args]) if named == "Path" else None
    if isinstance(node, ast.Attribute) and node.attr == "parent":
        inner = path(node.value, evaluator)
        return inner.parent if inner is not None else None
    value = evaluator.value(node)
    return value if isinstance(value, pathlib.Path) else None


def text(node, evaluator):
    """Return a string of the source: a literal, an f-string of plain parts, `os.path.join`, or a variable."""
    if isinstance(node, ast.JoinedStr):
        return "".join(
            text(part.value if isinstance(part, ast.FormattedValue) else part, evaluator) for part in node.values
        )
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return text(node.left, evaluator) + text(node.right, evaluator)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "join":
        return os.path.join(*[text(one, evaluator) for one in node.args])
    return os.fspath(evaluator.value(node))


def limited(entries):
    number = 0
    for _ in entries:
        number += 1
        if number >= MOST_FILES:
            break
    return number
