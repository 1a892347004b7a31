"""A framework is known in its own file and in the registry: who else needs to know of it asks its entry."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import costgpu
from costgpu.measure.probe.frameworks.registry import FRAMEWORKS

PACKAGE = Path(costgpu.__file__).parent
ROOM = "measure/probe/frameworks/"
NAMES = re.compile("|".join(one.name for one in FRAMEWORKS if one.name not in ("torch", "tqdm")), re.IGNORECASE)
ELSEWHERE = {
    "names of launchers": """
        estimator/advice/fitting.py job/agent/launchers.py job/agent/supervisor.py measure/failures.py
        measure/launcher.py measure/probe/entry.py measure/probe/record.py models/job.py
        workflows/estimate/estimate.py workflows/estimate/measure.py
    """,
    "files and variables of theirs": "measure/footprint/paths.py measure/isolation/folder_copy.py workflows/runs/inputs.py",
    "the agent imports nothing of the probe": "job/agent/meeting.py job/agent/out_of_memory.py",
    "for which hosts there are builds": "estimator/feasibility.py",
    "objects of theirs among a script's variables, and what its source calls": """
        measure/probe/loops/iterators.py measure/probe/loops/later_fits.py measure/probe/loops/partitions.py
        measure/probe/loops/prospects.py measure/probe/loops/safe_eval.py measure/probe/loops/script_frames.py
        measure/probe/loops/script_loops.py measure/probe/loops/splitters.py measure/probe/loops/time_budgets.py
        measure/probe/loops/trainings.py
    """,
    "a note on a count of theirs": "measure/profile/progress_series.py",
}  # why other files name one -> the files


def words_of(tree: ast.AST) -> set[str]:
    """Names and texts of a module, but for its docstrings."""
    docs = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    texts = {
        str(node.value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, (str, bytes)) and id(node) not in docs
    }
    names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    attributes = {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    defined = {node.name for node in ast.walk(tree) if isinstance(node, (ast.FunctionDef, ast.ClassDef))}
    return texts | names | attributes | defined


def names_in(source: bytes) -> set[str]:
    """Frameworks that a module names."""
    return {word.lower() for text in words_of(ast.parse(source)) for word in NAMES.findall(text)}


def test_frameworks_are_named_in_their_own_files() -> None:
    sources = {path.relative_to(PACKAGE).as_posix(): path.read_bytes() for path in PACKAGE.rglob("*.py")}
    found = {name for name, source in sources.items() if names_in(source)}
    allowed = {name for names in ELSEWHERE.values() for name in names.split()}
    assert {name for name in found if not name.startswith(ROOM)} - allowed == set(), "ask the registry instead"
    assert allowed & sources.keys() <= found, "it names none any more: take it off the list"


def test_a_framework_that_is_named_elsewhere_is_found() -> None:
    assert names_in(b"if source == 'catboost':\n    pass\n") == {"catboost"}
    assert names_in(b"class KerasLength:\n    pass\n") == {"keras"}
    assert names_in(b'"""As keras does it."""\n# and jax\n') == set()
