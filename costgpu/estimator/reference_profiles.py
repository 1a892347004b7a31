"""A profile of what cannot be measured: a reference workload, or a language model of so many parameters. Pure.

It is the prior, and says so: no step of it was timed (`StepTimes.count` is 0), so every interval is wide.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from costgpu.errors import UsageError
from costgpu.estimator.cpu import SIGMA_LARGE, rates_here, speedup_of
from costgpu.estimator.work import LARGE_BYTES
from costgpu.models.offer import Reference
from costgpu.models.parallelism import BatchScaling, Parallelism, Scheme
from costgpu.models.workload import (
    Autocast,
    DataLoading,
    Framework,
    GpuPath,
    Machine,
    OptimizerFacts,
    Phase,
    StepTimes,
    StepTotals,
    Total,
    TotalKind,
    WorkloadProfile,
)
from costgpu.units import format_count

FRAMEWORK = "reference"  # no build of any framework is meant
# Of what its GEMM and memory copy promise, a CPU reached in whole training steps: ResNet-50 0.82, BERT base 0.88, DCGAN
# 0.49. Source: one Zen 3 core of 85 GFLOP/s and 10 GB/s, torch 2.13, CPU time (2026-11-21).
SHARE_OF_NOMINAL = 0.75
ADAM_STATE_BYTES = 8  # per parameter, fp32
MOMENTUM_BYTES = 4
# Language models. FLOPs per token and parameter, forward and backward: Kaplan et al. 2020 (arXiv:2001.08361), section 2.1.
FLOPS_PER_TOKEN_AND_PARAMETER = 6.0
# A decoder has 12 L h^2 parameters in L layers of width h, and h about 128 L between 1 and 200 billion: Brown et al. 2020
# (arXiv:2005.14165), table 2.1.
PARAMETERS_PER_LAYER, WIDTH_PER_LAYER = 12.0, 128.0
# Kept for the backward pass per token, layer and unit of width, in half precision and with fused attention: Korthikanti et
# al. 2022 (arXiv:2205.05198), section 4.1; profiles count in fp32.
SAVED_BYTES = 34.0 * 2
# Moved, fp32, per token, layer and unit of width; kernels per layer. Source: BERT base and large as counted by
# benchmarks/references.py (1,120 bytes and 60 kernels), less the attention's matrices, which fused attention does not write.
MOVED_BYTES, KERNELS_PER_LAYER, TENSORS_PER_LAYER = 800.0, 60.0, 12
CONTEXT_TOKENS = 2048
# Logits and their loss, per token and word of the vocabulary, in half precision: 8 bytes (16 as profiles count); GPT-2's
# vocabulary (Radford et al. 2019), Llama 2's is 32,000 and Llama 3's 128,256.
LOGITS_BYTES, VOCABULARY = 16.0, 50_257
HALF_BYTES = 2.0  # of a parameter that is gathered, and of a gradient that is reduced, in half precision
STEP_TOKENS = 2**19  # in one optimizer step, accumulated; 0.5 million: Brown et al. 2020, table 2.1
LEAST_PARAMETERS = 1e6


def reference_profile(
    reference: Reference, machine: Machine, created: str, version: str, epochs: float | None = None
) -> WorkloadProfile:
    """Return the profile of a reference workload, as if it were a script that nobody ran.

    Args:
        machine: The local machine, described without a script; its figures give the seconds on its CPU.
        created: Time of creation, ISO 8601 UTC.
        epochs: Number of epochs; None for the usual number.

    Raises:
        UsageError: `epochs` is given, and the workload has no epochs.
    """
    if epochs is not None and reference.samples_per_epoch is None:
        raise UsageError(f"{reference.name} has no epochs.", hint="Use --total-steps.")
    batch = reference.batch_size
    totals = StepTotals(
        flops=batch * reference.flops_per_sample,
        bytes_moved=batch * reference.bytes_per_sample,
        kernels=reference.kernels_per_step,
        convolutions=reference.convolutions,
        source=f"{reference.detail}, batch {batch}, fp32 ({reference.source}, {reference.as_of})",
    )
    adam = reference.optimizer == "Adam"
    state = ADAM_STATE_BYTES if adam else MOMENTUM_BYTES if reference.momentum else 0
    return _profile(
        f"like {reference.name}",
        totals,
        machine,
        created,
        version,
        kind=reference.kind,
        total=_total(reference, epochs),
        framework=Framework(version="", python="", name=FRAMEWORK),
        optimizer=OptimizerFacts(
            name=reference.optimizer,
            parameters=reference.parameters,
            tensors=reference.tensors,
            momentum=reference.momentum,
            state_bytes=state * reference.parameters,
        ),
        data=DataLoading(batches_per_step=1.0, batch_size=batch, batch_bytes=batch * reference.sample_bytes),
        saved_tensor_bytes=int(batch * reference.saved_bytes_per_sample),
        notes=(
            f"Nothing was measured: this is {reference.detail}, as published, with batch {batch} in fp32.",
            "Reading and preparing the data is not in it.",
        ),
    )


def language_model_profile(
    parameters: float, tokens: float, machine: Machine, created: str, version: str
) -> WorkloadProfile:
    """Return the profile of training a decoder of so many parameters on so many tokens: 6 N D FLOPs, bf16, AdamW.

    Args:
        parameters: N.
        tokens: D.
        machine: The local machine, described without a script.
        created: Time of creation, ISO 8601 UTC.

    Raises:
        UsageError: A model too small for the rule, or fewer tokens than one sequence.
    """
    if parameters < LEAST_PARAMETERS:
        raise UsageError(
            f"--params {parameters:g}: the rule is for models of a million parameters and more.",
            hint="Measure the script, or use --like.",
        )
    if tokens < CONTEXT_TOKENS:
        raise UsageError(f"--tokens {tokens:g} is less than one sequence of {CONTEXT_TOKENS:,}.")
    layers = (parameters / (PARAMETERS_PER_LAYER * WIDTH_PER_LAYER**2)) ** (1 / 3)
    width = max(1.0, math.sqrt(parameters / (PARAMETERS_PER_LAYER * layers)))
    step_tokens = min(float(STEP_TOKENS), tokens)
    micro_batches = step_tokens / CONTEXT_TOKENS
    size = f"{format_count(parameters)} parameters, {format_count(tokens)} tokens"
    totals = StepTotals(
        flops=FLOPS_PER_TOKEN_AND_PARAMETER * parameters * step_tokens,
        bytes_moved=MOVED_BYTES * layers * width * step_tokens,
        kernels=KERNELS_PER_LAYER * max(1.0, layers) * micro_batches,
        source=f"the rule 6 N D for a decoder of {size}, bf16, AdamW (Kaplan et al. 2020)",
    )
    total = Total(
        kind=TotalKind.EXACT,
        steps=tokens / step_tokens,
        steps_per_epoch=None,
        how=f"{tokens:,.0f} tokens in steps of {step_tokens:,.0f}",
    )
    return _profile(
        f"like a language model of {size}",
        totals,
        machine,
        created,
        version,
        kind="transformer",
        total=total,
        framework=Framework(
            version="",
            python="",
            name=FRAMEWORK,
            matmul_tf32=True,
            autocast=[Autocast(device="cuda", dtype="bfloat16", enabled=True)],
        ),
        optimizer=OptimizerFacts(
            name="AdamW",
            parameters=int(parameters),
            tensors=int(TENSORS_PER_LAYER * max(1.0, layers)),
            state_bytes=int(ADAM_STATE_BYTES * parameters),
        ),
        data=DataLoading(
            batches_per_step=micro_batches, batch_size=1, batch_bytes=8 * CONTEXT_TOKENS, fetch_seconds_per_batch=None
        ),
        saved_tensor_bytes=int((SAVED_BYTES * layers * width + LOGITS_BYTES * VOCABULARY) * CONTEXT_TOKENS),
        micro_batches=micro_batches,
        parallelism=Parallelism(
            scheme=Scheme.DDP,
            how="the size of the model alone",
            parameters=int(parameters),
            trained_parameters=int(parameters),
            gathered_bytes=HALF_BYTES,
            reduced_bytes=HALF_BYTES,
            batch=BatchScaling.GLOBAL,
            sampler_distributed=True,
            largest_unit_parameters=int(parameters / max(1.0, layers)),
            chosen=True,
        ),
        notes=(
            f"Nothing was measured: 6 N D FLOPs for {size}, bf16, AdamW, {step_tokens:,.0f} tokens a step.",
            f"Sequences of {CONTEXT_TOKENS:,} tokens, with fused attention.",
            f"Taken to be {layers:.0f} layers of width {width:,.0f}; 18 bytes of memory per parameter, and activations.",
        ),
    )


def nominal_seconds(totals: StepTotals, machine: Machine) -> float:
    """Return the seconds of such a step on a CPU, by what its matrix multiply and memory copy can do."""
    rates = rates_here(machine)
    seconds = totals.flops / (rates.core_gflops * 1e9 * speedup_of(rates.cores, SIGMA_LARGE))
    if totals.bytes_moved > LARGE_BYTES * totals.kernels:
        seconds += totals.bytes_moved / (rates.memory_gbps * 1e9)
    return seconds / SHARE_OF_NOMINAL + totals.kernels * machine.op_seconds


def _total(reference: Reference, epochs: float | None) -> Total:
    wanted = epochs if epochs is not None else reference.epochs
    if reference.samples_per_epoch is None:
        return Total(kind=TotalKind.UNKNOWN, steps=None, steps_per_epoch=None, how="it has no usual length")
    per_epoch = float(math.ceil(reference.samples_per_epoch / reference.batch_size))
    words = f"{reference.samples_per_epoch:,} samples in batches of {reference.batch_size}"
    if wanted is None:
        return Total(kind=TotalKind.UNKNOWN, steps=None, steps_per_epoch=per_epoch, how=words)
    usual = "" if epochs is not None else ", as usual"
    how = f"{wanted:g} {'epoch' if wanted == 1 else 'epochs'}{usual}, of {words}"
    return Total(kind=TotalKind.EXACT, steps=wanted * per_epoch, steps_per_epoch=per_epoch, how=how)


def _profile(
    name: str,
    totals: StepTotals,
    machine: Machine,
    created: str,
    version: str,
    *,
    framework: Framework,
    optimizer: OptimizerFacts,
    notes: Sequence[str],
    parallelism: Parallelism | None = None,
    **facts: Any,
) -> WorkloadProfile:
    """Return a profile of one phase, of which `facts` are the other fields."""
    seconds = nominal_seconds(totals, machine)
    phase = Phase(
        label=name,
        steps_observed=0,
        step=StepTimes(
            count=0, median_seconds=seconds, mean_seconds=seconds, low_seconds=seconds, high_seconds=seconds
        ),
        optimizers=[optimizer],
        calls_per_step=totals.kernels,
        model_bytes=4 * optimizer.parameters,
        gpu=GpuPath.COUNTED,
        totals=totals,
        **facts,
    )
    return WorkloadProfile(
        script=name,
        arguments=[],
        created=created,
        costgpu_version=version,
        machine=machine,
        framework=framework,
        setup_seconds=0.0,
        ended=False,
        wall_seconds=0.0,
        peak_rss_bytes=None,
        phases=[phase],
        notes=list(notes),
        parallelism=parallelism,
    )
