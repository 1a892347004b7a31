"""How a script trains in several processes: from the probe's record and the launch to `Parallelism`. Pure."""

from __future__ import annotations

import math
import re
from dataclasses import replace

from costgpu.measure.launcher import Launch
from costgpu.measure.probe.record import CollectiveRow, DataPart, ProbeRecord, RanksRecord, Sighting
from costgpu.models.parallelism import BatchScaling, Collective, Parallelism, Scheme
from costgpu.models.workload import Phase

# Of several that were seen, the one that decides: what is not predicted first, then what shards most.
_ORDER = [
    Scheme.PIPELINE,
    Scheme.TENSOR,
    Scheme.OTHER,
    Scheme.ZERO3,
    Scheme.HSDP,
    Scheme.FSDP,
    Scheme.FSDP_GRAD_OP,
    Scheme.ZERO2,
    Scheme.ZERO1,
    Scheme.DDP,
    Scheme.DATA_PARALLEL,
]
_BYTES = {"float64": 8, "float32": 4, "float16": 2, "bfloat16": 2}
_DISTRIBUTED = re.compile("Distributed|Shard|Dispatcher")  # of a sampler, a batch sampler or a loader
_TENSOR_AXES = re.compile(r"^(tp|tensor|model|mp|cp|sp|ep|context|expert|sequence)", re.IGNORECASE)
_PIPELINE_AXES = re.compile(r"^(pp|pipe)", re.IGNORECASE)
_PLAIN_HOOKS = ("allreduce_hook", "fp16_compress_hook", "bf16_compress_hook")
_LEAST_SHARE = 0.5  # of the gradients: fewer elements than this that are reduced are figures to print
_FIGURES = 0.1  # of the largest reduction: losses, norms
_NEAR = 0.05  # of a whole number of reductions per step: buckets are padded, and some steps log


def parallelism_of(record: ProbeRecord, launch: Launch | None = None) -> Parallelism | None:
    """Return how it trains in several processes; None for a script that trains in one."""
    ranks = record.get("ranks")
    if ranks is None or not (
        ranks["sightings"] or ranks["asked"] > 1 or (launch is not None and launch.processes != 1)
    ):
        return None
    rows = ranks["collectives"]
    scheme, how, models = _scheme(ranks, _trained(record))
    parameters = sum(one["parameters"] for one in models)
    trained = sum(one["trained"] for one in models)
    if not trained:
        trained = _trained(record)
        parameters = parameters or trained
    gradients = _gradients(rows)
    reduced = [row for row in rows if row["op"] == "reduce_scatter" and row["dtype"] in _BYTES]
    gathered = [row for row in rows if row["op"] == "all_gather" and row["dtype"] in _BYTES]
    sharded = scheme.shards_parameters
    launched = launch if launch is not None and (launch.processes != 1 or launch.ranked) else None
    return Parallelism(
        scheme=scheme,
        how=how,
        launcher=launched.launcher if launched else "torchrun" if ranks["needs_launcher"] else "",
        processes=launched.processes if launched else _processes(ranks),
        nodes=launched.machines if launched else ranks["nodes"],
        fixed_processes=not launched and ranks["fixed"],
        measured_ranks=ranks["measured"],
        parameters=parameters,
        trained_parameters=trained,
        gradient_bytes=_element_bytes((reduced or gradients) if sharded else gradients, _weight_bytes(record)),
        gathered_bytes=_element_bytes(gathered, 4.0) if sharded else 0.0,
        reduced_bytes=_element_bytes(reduced, 4.0) if sharded else 0.0,
        reductions_per_step=_sharded_reductions(reduced, trained, models)
        if sharded
        else _reductions(gradients, trained),
        collectives=[
            Collective(
                op=row["op"],
                dtype=row["dtype"],
                calls_per_step=row["calls"],
                bytes_per_step=row["bytes"],
                group_size=row["ranks"],
            )
            for row in rows
        ],
        batch=_batch(ranks),
        sampler_distributed=_distributed(ranks),
        epoch_samples=ranks["data"]["samples"] if ranks["data"] else None,
        rank_batch=_rank_batch(ranks),
        drop_last=bool(ranks["data"] and ranks["data"]["drop_last"]),
        largest_unit_parameters=max((one["unit"] for one in models), default=0) if sharded else 0,
        elastic=launched is not None and launched.elastic,
        needs_gpu_backend=ranks["gpu_backend"],
    )


def of_whole_model(phase: Phase, parallelism: Parallelism | None) -> Phase:
    """Return the phase with sizes of the whole model, where the rank that was measured held only a part of it.

    Sharded parameters and optimizer states are spread evenly, so that one factor fits all of an optimizer.
    """
    if parallelism is None or not parallelism.scheme.shards_optimizer or not phase.unit.trains:
        return phase
    held, whole = sum(one.parameters for one in phase.optimizers), parallelism.trained_parameters
    factor = whole / held if held and whole > held else 1.0
    optimizers = [
        replace(
            one,
            parameters=round(one.parameters * factor),
            state_bytes=round(one.state_bytes * factor),
            dtypes={name: round(count * factor) for name, count in one.dtypes.items()},
        )
        for one in phase.optimizers
    ]
    if not parallelism.scheme.shards_parameters:
        return replace(phase, optimizers=optimizers)
    counted = sum(count for one in optimizers for name, count in one.dtypes.items() if name in _BYTES)
    size = sum(_BYTES.get(name, 0) * count for one in optimizers for name, count in one.dtypes.items())
    each = size / counted if counted else 4.0
    frozen = parallelism.parameters - parallelism.trained_parameters
    return replace(
        phase,
        optimizers=optimizers,
        model_bytes=max(phase.model_bytes, round(parallelism.parameters * each)),
        frozen_bytes=max(phase.frozen_bytes, round(frozen * each)),
    )


def _processes(ranks: RanksRecord) -> int | None:
    """Return processes that the script itself asks for; None for one per GPU."""
    one_per_gpu = ranks["needs_launcher"] or (ranks["asked"] == ranks["assumed"] and not ranks["fixed"])
    return None if one_per_gpu or ranks["asked"] == 1 else ranks["asked"]


def _scheme(ranks: RanksRecord, trained: int) -> tuple[Scheme, str, list[Sighting]]:
    """Return the scheme that decides, how it was found, and the sightings that hold the model."""
    seen: list[tuple[Scheme, Sighting]] = []
    for one in ranks["sightings"]:
        kinds = one["schemes"]
        seen.append((Scheme(max(kinds, key=lambda kind: kinds[kind])), one))
    seen.sort(key=lambda pair: _ORDER.index(pair[0]))
    for sizes, names in ranks["meshes"]:
        for size, name in zip(sizes, names, strict=False):
            axis = Scheme.PIPELINE if _PIPELINE_AXES.match(name) else Scheme.TENSOR
            if size > 1 and (_PIPELINE_AXES.match(name) or _TENSOR_AXES.match(name)):
                return axis, f"init_device_mesh with {name}={size}", _models(None, seen)
    if seen:
        scheme, first = seen[0]
        place = f" at {first['place']}" if first["place"] else ""
        return scheme, first["what"] + place, _models(first, seen)
    by_hand = sum(row["elements"] for row in _gradients(ranks["collectives"]))
    if by_hand and by_hand >= _LEAST_SHARE * trained:
        return Scheme.DDP, "all_reduce of gradients by the script itself", []
    if ranks["collectives"]:
        return Scheme.OTHER, f"calls of {ranks['collectives'][0]['op']}", []
    return Scheme.OTHER, "no gradients are exchanged", []


def _models(first: Sighting | None, seen: list[tuple[Scheme, Sighting]]) -> list[Sighting]:
    """Return the sighting that holds the model: the one that decides, or else the one with the most parameters."""
    if first is not None and first["parameters"]:
        return [first]
    return sorted((one for _, one in seen if one["parameters"]), key=lambda one: -one["parameters"])[:1]


def _trained(record: ProbeRecord) -> int:
    found = [sum(one["parameters"] for one in phase["optimizers"]) for phase in record.get("phases") or []]
    found += [series["facts"].get("parameters") or 0 for series in record.get("series") or []]
    return max(found, default=0)


def _gradients(rows: list[CollectiveRow]) -> list[CollectiveRow]:
    """Reductions of whole gradients: those inside backward passes, or else the script's own; without those of figures."""
    reduced = [row for row in rows if row["op"] == "all_reduce" and row["dtype"] in _BYTES]
    found = [row for row in reduced if row["backward"]] or reduced
    most = max((row["elements"] for row in found), default=0.0)
    return [row for row in found if row["elements"] > _FIGURES * most]


def _element_bytes(rows: list[CollectiveRow], default: float) -> float:
    elements = sum(row["elements"] for row in rows)
    return sum(row["bytes"] for row in rows) / elements if elements else default


def _reductions(rows: list[CollectiveRow], trained: int) -> float:
    """Return how often all gradients are reduced in a step; 1 where that was not seen."""
    share = sum(row["elements"] for row in rows) / trained if trained else 0.0
    if share < _LEAST_SHARE:
        return 1.0
    whole = max(1, round(share))
    return float(whole) if abs(share - whole) <= _NEAR * whole else share


def _sharded_reductions(rows: list[CollectiveRow], trained: int, models: list[Sighting]) -> float:
    """Return the same by the number of calls, where the number of units is known: small units are padded."""
    units = sum(one["units"] for one in models)
    calls = sum(row["calls"] for row in rows) / units if units else 0.0
    whole = round(calls)
    return float(whole) if whole and abs(calls - whole) <= _NEAR * whole else _reductions(rows, trained)


def _weight_bytes(record: ProbeRecord) -> float:
    """Return the bytes of one element of most of what is trained; 4 where that is not known."""
    dtypes: dict[str, int] = {}
    for phase in record.get("phases") or []:
        for one in phase["optimizers"]:
            for dtype, count in one["dtypes"].items():
                dtypes[dtype] = dtypes.get(dtype, 0) + count
    return float(_BYTES.get(max(dtypes, key=lambda name: dtypes[name]), 4)) if dtypes else 4.0


def _batch(ranks: RanksRecord) -> BatchScaling:
    data = ranks["data"]
    if ranks["batch_divided"] or ranks["global_batch"] or (data and data["split_batches"]):
        return BatchScaling.GLOBAL
    if data is None and ranks["data_divided"]:
        return BatchScaling.UNKNOWN
    return BatchScaling.PER_RANK


def _rank_batch(ranks: RanksRecord) -> int | None:
    data = ranks["data"]
    if data is not None and data["batch_size"] and not data["split_batches"]:
        return data["batch_size"]
    return ranks["rank_batch"]


def _distributed(ranks: RanksRecord) -> bool | None:
    """Return whether a rank gets its own part: by the class of its sampler, else by the length of its loader."""
    data = ranks["data"]
    if ranks["sampler_inserted"]:
        return True
    if data is None:
        return None
    if data["split_by_node"] or any(_DISTRIBUTED.search(kind) for kind in data["kinds"]):
        return True
    if ranks["data_divided"]:
        return None
    return _by_length(data, ranks["measured"])


def _by_length(data: DataPart, ranks: int) -> bool | None:
    samples, batches, size = data["samples"], data["batches"], data["batch_size"]
    if not samples or not batches or not size or ranks == 1:
        return None
    if batches >= samples // size:
        return False
    return True if batches <= math.ceil(math.ceil(samples / ranks) / size) else None


def parallel_notes(found: Parallelism | None, record: ProbeRecord, launch: Launch | None = None) -> list[str]:
    """Return what a reader should know of it."""
    ranks = record.get("ranks")
    if found is None or ranks is None:
        return []
    notes = []
    asked = launch.asked if launch is not None else ""
    if not asked and (ranks["asked"] > 1 or ranks["needs_launcher"]):
        asked = "one process per GPU" if found.processes is None else f"{found.processes} processes"
    measured = f"rank 0 of {found.measured_ranks}" if found.measured_ranks > 1 else "one process"
    how = f": {found.how}" if found.how else ""
    if not asked and found.measured_ranks == 1 and not found.launcher:
        notes.append(f"Where there are several GPUs, it uses all of them{how}; it was measured on one device.")
    elif asked or found.measured_ranks > 1:
        asked = f"It asks for {asked} and" if asked else "It"
        notes.append(f"{asked} was measured as {measured}{how}.")
    if ranks["why_alone"] and found.measured_ranks == 1 and asked:
        notes.append(f"Several ranks could not be stood in for ({ranks['why_alone']}).")
    if found.sampler_distributed is False and found.measured_ranks > 1:
        notes.append(
            "Every rank walks the whole data set: nothing distributes it, so that more GPUs do not end sooner."
        )
    unusual = [hook for hook in ranks["comm_hooks"] if hook not in _PLAIN_HOOKS]
    if unusual:
        notes.append(f"Its communication hook {unusual[0]} is taken as what was seen of it in the first steps.")
    return notes
