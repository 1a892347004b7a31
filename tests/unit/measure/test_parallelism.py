"""How a training in several processes is described, from what the probe saw of it."""

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from costgpu.measure.launcher import Launch, find_launch
from costgpu.measure.profile.parallelism import parallel_notes, parallelism_of
from costgpu.measure.ranks import MOST_RANKS, gpus_of, rank_environment, ranks_of
from costgpu.models.parallelism import BatchScaling, Parallelism, Scheme
from tests.properties import examples
from tests.unit.measure.records import result

TORCHRUN = Launch(launcher="torchrun", processes=4, ranked=True)
DDP = {"what": "DistributedDataParallel", "place": "train.py:9", "schemes": {"ddp": 1000}}
FSDP = {"what": "fully_shard", "place": "train.py:8", "schemes": {"fsdp": 900, "fsdp_grad_op": 100}, "units": 2}


def sighting(seen: dict[str, Any], **other: Any) -> dict[str, Any]:
    size = sum(seen["schemes"].values())
    return {"parameters": size, "trained": size, "unit": 0, "units": 0} | seen | other


def row(op: str, elements: float, dtype: str = "float32", **other: Any) -> dict[str, Any]:
    size = {"float32": 4, "bfloat16": 2, "int64": 8, "float64": 8}[dtype]
    filled = {"op": op, "dtype": dtype, "ranks": 4, "backward": False, "calls": 1.0}
    return filled | {"elements": elements, "bytes": elements * size} | other


def loader(**other: Any) -> dict[str, Any]:
    plain = {"kinds": ["DataLoader", "RandomSampler"], "split_by_node": False, "samples": 640, "batches": 40}
    sizes = {"batch_size": 16, "split_batches": False, "drop_last": False, "replicas": None}
    return plain | sizes | other


def seen(*sightings: dict[str, Any], **other: Any) -> Any:
    """A record with what was seen of several ranks."""
    plain = {
        "asked": 1,
        "assumed": 1,
        "needs_launcher": False,
        "nodes": 1,
        "measured": 4,
        "why_alone": "",
        "gpu_backend": False,
        "fixed": False,
        "sightings": list(sightings),
        "meshes": [],
        "comm_hooks": [],
        "collectives": [],
        "answer_seconds": 0.0,
        "data": None,
        "rank_batch": None,
        "batch_divided": "",
        "data_divided": "",
        "global_batch": False,
        "sampler_inserted": False,
    }
    return result(ranks=plain | other)


def described(record: Any, launch: Launch | None = TORCHRUN) -> Parallelism:
    found = parallelism_of(record, launch)
    assert found is not None
    return found


def test_one_process_is_none() -> None:
    assert parallelism_of(result(), None) is None
    assert parallelism_of(seen(measured=1), None) is None
    assert parallelism_of(seen(measured=1), Launch(launcher="python")) is None


def test_a_launch_without_exchange_is_not_known() -> None:
    assert described(seen()).scheme is Scheme.OTHER
    assert described(seen(collectives=[row("broadcast", 10)])).how == "calls of broadcast"
    by_hand = described(seen(collectives=[row("all_reduce", 1000)]))
    assert (by_hand.scheme, by_hand.gradient_bytes) == (Scheme.DDP, 4)


@pytest.mark.parametrize(
    ("sightings", "scheme"),
    [
        ([DDP], Scheme.DDP),
        ([FSDP], Scheme.FSDP),
        ([DDP, {"what": "ZeroRedundancyOptimizer", "place": "", "schemes": {"zero1": 0}}], Scheme.ZERO1),
        ([FSDP, {"what": "parallelize_module", "place": "", "schemes": {"tensor": 0}}], Scheme.TENSOR),
        ([{"what": "PipelineStage", "place": "", "schemes": {"pipeline": 0}}, DDP], Scheme.PIPELINE),
    ],
)
def test_the_scheme_that_decides(sightings: list[dict[str, Any]], scheme: Scheme) -> None:
    found = described(seen(*map(sighting, sightings)))
    assert found.scheme is scheme
    assert found.parameters == 1000 or scheme is Scheme.PIPELINE


@pytest.mark.parametrize(
    ("name", "scheme"), [("tp", Scheme.TENSOR), ("pp", Scheme.PIPELINE), ("dp_shard", Scheme.FSDP)]
)
def test_axes_of_a_mesh(name: str, scheme: Scheme) -> None:
    assert described(seen(sighting(FSDP), meshes=[[[2, 2], ["dp", name]]])).scheme is scheme
    assert described(seen(sighting(FSDP), meshes=[[[4, 1], ["dp", name]]])).scheme is Scheme.FSDP


@pytest.mark.parametrize(
    ("other", "processes", "launcher"),
    [
        ({"asked": 4}, 4, ""),
        ({"asked": 8, "assumed": 8}, None, ""),
        ({"asked": 8, "assumed": 8, "fixed": True}, 8, ""),
        ({"asked": 8, "needs_launcher": True}, None, "torchrun"),
    ],
)
def test_processes_that_no_launcher_was_asked_for(other: dict[str, Any], processes: int | None, launcher: str) -> None:
    found = described(seen(sighting(DDP), **other), None)
    assert (found.processes, found.launcher) == (processes, launcher)


def test_figures_that_are_reduced_are_no_gradients() -> None:
    rows = [row("all_reduce", 1000, "bfloat16"), row("all_reduce", 2), row("all_reduce", 1, "float64")]
    found = described(seen(sighting(DDP), collectives=rows))
    assert (found.gradient_bytes, found.reductions_per_step) == (2, 1)


@pytest.mark.parametrize(
    ("data", "other", "distributed"),
    [
        ({"kinds": ["DataLoader", "DistributedSampler"]}, {}, True),
        ({"kinds": ["DataLoaderShard", "BatchSamplerShard"]}, {}, True),
        ({"split_by_node": True, "samples": None}, {}, True),
        ({}, {}, False),
        ({"drop_last": True}, {}, False),
        ({"batches": 10}, {}, True),  # a sampler of the script's own
        ({"samples": None}, {}, None),
        ({}, {"data_divided": "train.py:3"}, None),
        ({}, {"sampler_inserted": True}, True),
    ],
)
def test_whose_data(data: dict[str, Any], other: dict[str, Any], distributed: bool | None) -> None:
    record = seen(sighting(DDP), data=loader(**data), **other)
    found = described(record)
    assert found.sampler_distributed is distributed
    assert any("whole data set" in note for note in parallel_notes(found, record)) is (distributed is False)


@pytest.mark.parametrize(
    ("other", "batch"),
    [
        ({"data": loader()}, BatchScaling.PER_RANK),
        ({}, BatchScaling.PER_RANK),
        ({"data_divided": "train.py:3"}, BatchScaling.UNKNOWN),
        ({"batch_divided": "train.py:3 (64 // world)"}, BatchScaling.GLOBAL),
        ({"data": loader(split_batches=True)}, BatchScaling.GLOBAL),
        ({"global_batch": True}, BatchScaling.GLOBAL),
    ],
)
def test_what_becomes_of_the_batch(other: dict[str, Any], batch: BatchScaling) -> None:
    assert described(seen(sighting(DDP), **other)).batch is batch


@examples(200)
@given(
    trained=st.integers(100, 10**10),
    reductions=st.integers(1, 64),
    size=st.sampled_from(["float32", "bfloat16"]),
    logged=st.floats(0, 5),
)
def test_gradients_are_counted_whatever_their_number(trained: int, reductions: int, size: str, logged: float) -> None:
    rows = [row("all_reduce", trained * reductions, size, backward=True), row("all_reduce", logged)]
    found = described(seen(sighting(DDP, parameters=trained, trained=trained), collectives=rows))
    assert found.reductions_per_step == reductions
    assert found.gradient_bytes == {"float32": 4, "bfloat16": 2}[size]
    assert sum(one.bytes_per_step for one in found.collectives) >= found.gradient_bytes * trained * reductions


@examples(200)
@given(samples=st.integers(1, 10**9), ranks=st.integers(2, 512), batch=st.integers(1, 4096), drop=st.booleans())
def test_a_loader_is_judged_by_its_length(samples: int, ranks: int, batch: int, drop: bool) -> None:
    """Of a sampler of unknown kind: a rank's part is not the whole, unless both are as many batches."""
    rounded = math.floor if drop else math.ceil
    whole, part = rounded(samples / batch), rounded(math.ceil(samples / ranks) / batch)
    of_all = described(
        seen(sighting(DDP), measured=ranks, data=loader(samples=samples, batches=whole, batch_size=batch))
    )
    of_one = described(
        seen(sighting(DDP), measured=ranks, data=loader(samples=samples, batches=part, batch_size=batch))
    )
    assert of_all.sampler_distributed in (False, None)
    assert of_one.sampler_distributed is True or part in (0, samples // batch, whole)


@pytest.mark.parametrize(
    ("line", "ranks", "gpus"),
    [
        ("torchrun --nproc-per-node 4 --nnodes 2 a.py", 8, 4),
        ("torchrun --nproc-per-node auto --nnodes 2 a.py", 16, 8),
        ("accelerate launch a.py", 8, 8),
        ("torchrun a.py", 1, 1),
        ("torchrun --nproc-per-node 8 --nnodes 100000 a.py", MOST_RANKS, 1),
    ],
)
def test_the_world_of_a_launch(line: str, ranks: int, gpus: int) -> None:
    launch = find_launch(line.split())
    assert launch is not None
    assert (ranks_of(launch), gpus_of(launch)) == (ranks, gpus)
    environment = rank_environment(launch)
    assert environment["WORLD_SIZE"] == str(ranks)
    assert environment["RANK"] == environment["LOCAL_RANK"] == "0"
    assert ("TORCHELASTIC_RUN_ID" in environment) is launch.torchrun


def test_python_is_no_launcher() -> None:
    launch = find_launch(["python", "a.py"])
    assert launch is not None
    assert (rank_environment(launch), gpus_of(None)) == ({}, 1)


def test_notes() -> None:
    record = seen(sighting(DDP))
    assert parallel_notes(described(record), record, TORCHRUN) == [
        "It asks for 4 processes (torchrun) and was measured as rank 0 of 4: DistributedDataParallel at train.py:9."
    ]
    alone = seen(sighting(DDP), measured=1, why_alone="torch 1.9: no", comm_hooks=["powerSGD_hook"])
    notes = parallel_notes(described(alone), alone, TORCHRUN)
    assert "measured as one process" in notes[0]
    assert "torch 1.9: no" in notes[1]
    assert "powerSGD_hook" in notes[2]
    whole = seen(sighting({"what": "Trainer on all GPUs", "place": "", "schemes": {"ddp": 9}}), measured=1)
    assert "uses all of them: Trainer on all GPUs" in parallel_notes(described(whole, None), whole)[0]
