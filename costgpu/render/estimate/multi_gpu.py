"""What several GPUs make of a training: as a table, and as parts of a JSON document."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from costgpu.models.prediction import Prediction
from costgpu.render.document import picked
from costgpu.render.estimate.tables import mark_of
from costgpu.render.phrases import offer_name, percent, short_offer_name
from costgpu.render.report import Cell, Heading, Row, Table, Tile
from costgpu.units import format_duration, format_usd


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
            f"{100 * one.efficiency:.0f} %",
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
    return [{"where": offer_name(one), **picked(one, "wall_seconds", "cost_usd"), **scaling_value(one)} for one in rows]
