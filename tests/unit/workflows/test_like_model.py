"""A model of a hub instead of a script: what is asked for, and what is run for it."""

from dataclasses import replace
from pathlib import Path

import pytest

from costgpu.errors import UsageError
from costgpu.workflows.estimate.like_model import finetune_of
from costgpu.workflows.estimate.request import EstimateRequest, check
from tests.unit.estimator.builders import profile

ASKED = EstimateRequest(like_model="meta-llama/Llama-3.1-8B", tokens="10M")


def test_its_script_is_run_without_weights_and_told_by_the_name_of_the_model() -> None:
    check(ASKED)
    finetune = finetune_of(replace(ASKED, method="qlora", batch=2))
    request = finetune.request(replace(ASKED, gpus="L4"))
    check(request)
    script, *arguments = request.command
    assert Path(script).is_file()
    assert arguments == [
        *("meta-llama/Llama-3.1-8B", "--method", "qlora"),
        *("--tokens", "10000000", "--sequence", "2048", "--batch", "2"),
    ]
    assert (request.weights_policy, request.gpus, request.is_measured) == ("none", "L4", True)
    assert finetune.named(profile()).script == "Llama-3.1-8B (QLoRA)"


def test_code_of_a_hub_is_only_run_if_it_is_trusted() -> None:
    assert "--trust" not in finetune_of(ASKED).arguments
    assert finetune_of(replace(ASKED, trust=True)).arguments[-1] == "--trust"


@pytest.mark.parametrize(
    ("request_", "words"),
    [
        (replace(ASKED, tokens=None), "How many tokens"),
        (replace(ASKED, method="dora"), "no --method dora"),
        (replace(ASKED, command=("train.py",)), "--like-model and a script exclude"),
        (replace(ASKED, params="7B"), "--like-model and --params exclude"),
        (replace(ASKED, weights="real"), "without weights"),
        (EstimateRequest(command=("train.py",), method="lora"), "--method is for --like-model"),
        (EstimateRequest(command=("train.py",), trust=True), "--trust is for --like-model"),
        (EstimateRequest(command=("train.py",), tokens="1B"), "--params and --tokens go together"),
    ],
)
def test_what_does_not_go_together_is_refused(request_: EstimateRequest, words: str) -> None:
    def ask() -> None:
        check(request_)
        finetune_of(request_)

    with pytest.raises(UsageError, match=words):
        ask()


def test_a_policy_of_weights_that_there_is_not() -> None:
    with pytest.raises(UsageError, match="no --weights maybe"):
        _ = EstimateRequest(command=("train.py",), weights="maybe").weights_policy
