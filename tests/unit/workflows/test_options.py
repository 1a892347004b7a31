"""Options of requests: what may be given, what is kept, and that the commands and the Python interface have no others."""

import dataclasses
import inspect
from pathlib import Path
from typing import Any

import pytest

import costgpu
from costgpu.cli.estimate import estimate
from costgpu.cli.run import run
from costgpu.cli.sweep import sweep
from costgpu.errors import UsageError
from costgpu.workflows.estimate.request import EstimateRequest
from costgpu.workflows.options import options_of
from costgpu.workflows.runs.request import RunRequest
from costgpu.workflows.sweep.request import OF_ONE_JOB, SweepRequest

OF_A_TERMINAL = {"currency", "rate", "exchange_rate", "json", "output", "detach", "yes", "dry_run"}


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ({"infra": "aws"}, ("aws",)),
        ({"infra": ["aws", "gcp"]}, ("aws", "gcp")),
        ({"env": {"A": "1"}}, ("A=1",)),
        ({"gpus": ["T4", "L4:2"]}, "T4,L4:2"),
        ({"max_cost": 5}, "5"),
        ({"workdir": Path("/x")}, "/x"),
        ({"lease": None}, None),
        ({"grace": None}, "30s"),
        ({"setup": ""}, ""),
        ({"nodes": 2}, 2),
    ],
)
def test_what_is_given_is_kept_in_one_form(given: dict[str, Any], kept: object) -> None:
    (name,) = given
    request = RunRequest(**given)
    assert getattr(request, name) == kept
    assert getattr(dataclasses.replace(request, queue=True), name) == kept


def test_an_empty_value_limits_nothing_and_is_refused() -> None:
    with pytest.raises(UsageError, match="--max-cost is empty"):
        RunRequest(max_cost="")


def test_a_request_cannot_be_changed() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        RunRequest().queue = True  # type: ignore[misc, unused-ignore]


@pytest.mark.parametrize(
    ("function", "kind", "without", "others"),
    [
        (estimate, EstimateRequest, (), OF_A_TERMINAL | {"report", "force", "explain"}),
        (run, RunRequest, ("isolation", "start_limit"), OF_A_TERMINAL),
        (sweep, SweepRequest, OF_ONE_JOB, OF_A_TERMINAL),
        (costgpu.estimate, EstimateRequest, (), {"script", "args"}),
        (costgpu.run, RunRequest, (), {"script", "args", "wait", "task_env"}),
    ],
)
def test_commands_and_functions_have_the_options_of_their_request(
    function: Any, kind: Any, without: tuple[str, ...], others: set[str]
) -> None:
    names = {option.name for option in options_of(kind)} - set(without)
    found = set(inspect.signature(function).parameters)
    assert names <= found
    assert found - names <= others
