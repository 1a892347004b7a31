"""`costgpu speedups`: measured CPU-versus-GPU figures, and claims. Heavy imports wait until it runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from costgpu.models.offer import Speedup


def speedups(
    kind: Annotated[
        str | None, typer.Argument(help="Kind of work, such as resnet50 or gradient-boosted-trees.")
    ] = None,
    gpus: Annotated[str | None, typer.Option(help="Only this GPU: K80, V100, H100.")] = None,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON document; as -o json.")] = False,
    output: Annotated[str, typer.Option("--output", "-o", help="Format: table or json.")] = "table",
) -> None:
    """Show the benchmark table: how much faster others found a GPU than a CPU, by kind of work.

    It is what costgpu goes by where a script's own steps cannot be followed, always with a
    wide interval. Measured lines come first; claims stand apart, and implausible ones are marked.
    """
    from costgpu.cli.offers import is_json
    from costgpu.pricing.speedups import speedups as table
    from costgpu.render.text.speedups import speedups_json, speedups_summary, speedups_table

    as_json = is_json(output) or json
    rows = select(table(), kind, gpus)
    if as_json:
        typer.echo(speedups_json(rows))
    else:
        typer.echo(speedups_summary(rows) if kind is None and gpus is None else speedups_table(rows))


def select(rows: tuple[Speedup, ...], kind: str | None, gpus: str | None) -> tuple[Speedup, ...]:
    """The rows that are asked for.

    Args:
        rows: The table.
        kind: Of work; None for all.
        gpus: A GPU as the user spells it, its variants included; None for all.

    Raises:
        UsageError: There is no such kind or GPU, or no row of both.
    """
    from costgpu.errors import UsageError
    from costgpu.pricing.hardware import accelerator
    from costgpu.pricing.speedups import of_kind

    if kind is not None:
        rows = of_kind(rows, kind)
    if gpus is None:
        return rows
    name = accelerator(gpus).name
    found = tuple(row for row in rows if row.gpu == name or row.gpu.startswith(f"{name}-"))
    if not found:
        known = ", ".join(sorted({row.gpu for row in rows if row.gpu}))
        raise UsageError(
            f"The table has no line of {kind or 'any kind'} on {name}.",
            hint=f"It has {known or 'none with a named GPU'}.",
        )
    return found
