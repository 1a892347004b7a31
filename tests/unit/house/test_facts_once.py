"""A fact stands in one place: whoever needs it imports it."""

from __future__ import annotations

import ast
import math
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

import costgpu
from costgpu.estimator import interval
from costgpu.job.machine import boot_script
from costgpu.measure.probe.ranks import world
from costgpu.models import defaults, provider_costs
from costgpu.models.job import EndReason

PACKAGE = Path(costgpu.__file__).parent
TREES = {
    path.relative_to(PACKAGE).as_posix(): ast.parse(path.read_bytes())
    for room in (PACKAGE, PACKAGE / "providers", PACKAGE / "pricing")
    for path in room.rglob("*.py")
}


def nodes(*kinds: type[ast.AST]) -> Iterator[tuple[str, ast.AST]]:
    for path, tree in TREES.items():
        yield from ((path, node) for node in ast.walk(tree) if isinstance(node, kinds))


def modules_with(*values: object) -> set[str]:
    """Modules in which one of these values is written down."""
    kinds = {type(value) for value in values}
    found = nodes(ast.Constant)
    return {path for path, node in found if type(node.value) in kinds and node.value in values}  # type: ignore[attr-defined]


def assigned(name: str) -> list[str]:
    return [
        path
        for path, node in nodes(ast.Name)
        if isinstance(node.ctx, ast.Store) and node.id == name  # type: ignore[attr-defined]
    ]


def test_sshd_listens_where_the_client_connects(monkeypatch: pytest.MonkeyPatch) -> None:
    assert assigned("SSH_PORT") == ["models/defaults.py"]
    monkeypatch.setattr(boot_script, "SSH_PORT", 2222)
    script = boot_script.boot_script(
        deadline=datetime(2027, 1, 1, tzinfo=UTC),
        lifetime_seconds=60,
        user_public_key="",
        host_private_key="",
        host_public_key="",
    )
    assert "\nssh_port=2222\n" in script
    assert '"Port $ssh_port\n' in script


def test_where_machines_meet() -> None:
    port = defaults.MEETING_PORT
    assert port == world.MEETING_PORT, "the probe travels without the rest of costgpu, and has its own copy"
    assert modules_with(port, str(port)) == {"models/defaults.py", "measure/probe/ranks/world.py"}


def test_hours_of_a_month() -> None:
    hours = provider_costs.HOURS_PER_MONTH
    assert modules_with(hours, float(hours)) == {"models/provider_costs.py", "units.py"}, "730 days are two years there"


def test_how_wide_an_interval_is() -> None:
    assert modules_with(interval.Z80) == {"estimator/interval.py"}
    assert math.erf(interval.Z80 / math.sqrt(2)) == pytest.approx(0.80, abs=1e-4)


def test_what_was_measured() -> None:
    lists = [path for path, node in nodes(ast.Tuple) if {"Pascal", "Volta", "Turing"} <= {*strings(node)}]
    assert lists == ["estimator/gpu_interval.py"]


def strings(node: ast.AST) -> list[object]:
    return [one.value for one in ast.walk(node) if isinstance(one, ast.Constant)]


def test_what_a_machine_costs_an_hour() -> None:
    """Price, disk and address are added up for offers of runs, and for candidates of predictions."""
    sums = {
        path
        for path, node in nodes(ast.BinOp)
        if isinstance(node.op, ast.Add)  # type: ignore[attr-defined]
        and "price_usd_per_hour" in (text := ast.unparse(node))
        and "extras_usd_per_hour" in text
    }
    assert sums == {"models/run.py", "estimator/cost.py"}


def test_what_an_end_means() -> None:
    """Its cost, its words and its limit belong to the reason: no table elsewhere has a row for most of them."""
    for path, node in nodes(ast.Dict, ast.Set, ast.Tuple):
        named = {
            one.attr
            for one in ast.iter_child_nodes(node)
            if isinstance(one, ast.Attribute) and ast.unparse(one.value) == "EndReason"
        }
        keys = node.keys if isinstance(node, ast.Dict) else []
        named |= {key.value for key in keys if isinstance(key, ast.Constant) and key.value in set(EndReason)}
        assert len(named) <= 5, f"{path} has a table of {', '.join(sorted(named))}"
    assert {reason.value for reason in EndReason if reason.limit} == {
        "max_duration",
        "deadline",
        "idle",
        "lease_expired",
    }
    assert not any(
        reason.outcome.wasted for reason in (EndReason.SUCCEEDED, EndReason.CANCELLED, EndReason.MAX_DURATION)
    )


def test_a_class_name_has_one_meaning() -> None:
    """Adapters of two clouds may name alike what each has; a notebook's verdict is one, with its page."""
    homes: dict[str, list[str]] = {}
    for path, node in nodes(ast.ClassDef):
        homes.setdefault(node.name, []).append(path)  # type: ignore[attr-defined]
    twice = {name: paths for name, paths in homes.items() if len(paths) > 1 and name != "Verdict"}
    clouds = {name for name, (one, *more) in twice.items() if len(more) == 1 and "providers/" in one and one != more[0]}
    assert not {name: paths for name, paths in twice.items() if name not in clouds}
    assert len(clouds) <= 7, "give one of them the cloud's own word"
