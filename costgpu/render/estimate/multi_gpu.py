"""What several GPUs make of a training: in words, as a table, and as parts of a JSON document."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from costgpu.models.parallelism import Scaling
from costgpu.models.prediction import Prediction
from costgpu.render.document import json_object, picked
from costgpu.render.estimate.tables import mark_of
from costgpu.render.phrases import offer_name, percent, short_offer_name
from costgpu.render.report import Cell, Heading, Row, Table, Tile
from costgpu.units import format_duration, format_usd

LEAST_SHARE = 0.005  # of a step, to be told


def scaling_sentences(prediction: Prediction | None) -> list[str]:
    """Return how well the GPUs of a place work together, what the rest is lost to, and the memory; none with one GPU."""
    scaling = prediction.scaling if prediction is not None else None
    if prediction is None or scaling is None:
        return []
    ends = f"{100 * scaling.efficiency_low:.0f}-{100 * scaling.efficiency_high:.0f} %"
    where = f"{scaling.gpus} GPUs" + (f" in {scaling.nodes} machines" if scaling.nodes > 1 else "")
    efficient = (
        f"{where} under {scaling.scheme.phrase}: {100 * scaling.efficiency:.0f} % [{ends}] of the throughput of"
        f" {scaling.gpus} single GPUs."
    )
    found = [efficient]
    if lost := _losses(scaling, prediction.step_seconds):
        found.append(f"Of a step, {lost}.")
    if scaling.strong:
        found.append("The global batch stays: each GPU takes its share of it.")
    facts = []
    if scaling.memory_gib is not None and prediction.offer is not None and prediction.offer.accelerator is not None:
        facts.append(f"{scaling.memory_gib:.1f} of {prediction.offer.accelerator.memory_gib:g} GiB on each GPU")
    if scaling.mfu is not None:
        facts.append(f"{100 * scaling.mfu:.0f} % of the peak of its arithmetic (MFU)")
    if facts:
        found.append(f"{'; '.join(facts)}.")
    return found


def _losses(scaling: Scaling, step: float) -> str:
    """``10 % is communication and 2 % is waiting for data``; empty if next to nothing is lost."""
    parts = {
        "communication": scaling.communication_seconds,
        "stragglers and latency": scaling.straggler_seconds,
        "waiting for data": scaling.input_seconds,
    }
    shown = [
        f"{100 * seconds / step:.0f} % is {name}" for name, seconds in parts.items() if seconds > LEAST_SHARE * step
    ]
    return ", ".join(shown[:-1]) + (" and " if len(shown) > 1 else "") + shown[-1] if shown else ""


def efficiency_tiles(prediction: Prediction) -> list[Tile]:
    """Return how well the GPUs of a place work together as a tile; none with one GPU."""
    if (scaling := prediction.scaling) is None:
        return []
    return [
        ("Efficiency", percent(scaling.efficiency), f"of {scaling.gpus} single GPUs, under {scaling.scheme.phrase}")
    ]


def scaling_table(rows: Sequence[Prediction], recommended: Prediction | None) -> Table | None:
    """Return a row for each number of GPUs; None with fewer than two."""
    if len(rows) < 2:
        return None
    cells: list[Row] = [
        [
            Cell(short_offer_name(one), long=offer_name(one), mark=mark_of(one, recommended)),
            format_duration(one.wall_seconds.value),
            format_usd(one.cost_usd.value),
            f"{100 * (one.scaling.efficiency if one.scaling is not None else 1.0):.0f} %",
        ]
        for one in rows
    ]
    head = [Heading("", long="where"), Heading("time", 9), Heading("cost", 8), Heading("efficiency", 15)]
    return Table("", head, cells)


def scaling_value(prediction: Prediction) -> dict[str, Any]:
    """Return the machines and GPUs that work, and how well together, as JSON values."""
    scaling = prediction.scaling
    value: dict[str, Any] = {"nodes": prediction.candidate.nodes, "gpus": prediction.gpus, "scaling": None}
    if scaling is not None:
        step = prediction.step_seconds
        value["scaling"] = {
            **picked(scaling, "scheme", "efficiency", "efficiency_low", "efficiency_high", "steps"),
            "communication_share": scaling.communication_seconds / step if step > 0 else 0.0,
            "straggler_share": scaling.straggler_seconds / step if step > 0 else 0.0,
            "input_share": scaling.input_seconds / step if step > 0 else 0.0,
            **picked(scaling, "memory_gib", "mfu", "strong", "checkpointed", "rank_batch"),
        }
    return value


def scaling_values(rows: Sequence[Prediction]) -> list[dict[str, Any]]:
    """Return the lines of `scaling_table` as parts of a document."""
    return [
        json_object(
            {
                "where": offer_name(one),
                **picked(one, "wall_seconds", "cost_usd"),
                **scaling_value(one),
            }
        )
        for one in rows
    ]
