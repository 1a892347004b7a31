"""A model of a hub instead of a script: the fine-tune that is measured for it."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from pathlib import Path

from costgpu.errors import UsageError
from costgpu.measure import like_model
from costgpu.models.workload import WorkloadProfile
from costgpu.units import parse_count
from costgpu.workflows.estimate.request import EstimateRequest

METHODS = {"lora": "LoRA", "qlora": "QLoRA", "full": "all weights"}


@dataclass(frozen=True, slots=True)
class ModelFinetune:
    """The fine-tune of a model, as it is asked for."""

    name: str
    method: str
    arguments: tuple[str, ...]

    @property
    def words(self) -> str:
        """Return what it is, for people: it stands for the script's name."""
        return f"{self.name.rpartition('/')[2]} ({METHODS[self.method]})"

    def request(self, request: EstimateRequest) -> EstimateRequest:
        """Return the request for its script, which is measured without weights."""
        script = str(Path(like_model.__file__).with_name("finetune.py"))
        return replace(
            request,
            like_model=None,
            method=None,
            tokens=None,
            command=(script, *self.arguments),
            workdir=request.workdir or os.curdir,
            weights="none",
        )

    def named(self, profile: WorkloadProfile) -> WorkloadProfile:
        """Return its profile under its own name."""
        return replace(profile, script=self.words)


def finetune_of(request: EstimateRequest) -> ModelFinetune:
    """Return the fine-tune that is asked for.

    Raises:
        UsageError: It has no such method, or no tokens.
    """
    method = request.method or "lora"
    if method not in METHODS:
        raise UsageError(f"There is no --method {method}.", hint=f"Choose {', '.join(METHODS)}.")
    if request.tokens is None:
        raise UsageError(
            "How many tokens is the model trained on?", hint=f"--like-model {request.like_model} --tokens 10M"
        )
    tokens = parse_count(request.tokens, what="--tokens")
    arguments = [str(request.like_model), "--method", method, "--tokens", f"{tokens:.0f}"]
    arguments += ["--sequence", str(request.sequence), "--batch", str(request.batch)]
    trust = ["--trust"] if request.trust else []
    return ModelFinetune(str(request.like_model), method, (*arguments, *trust))
