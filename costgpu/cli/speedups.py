"""`costgpu speedups`: measured CPU-versus-GPU figures, and claims."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from costgpu.cli import options as opt
from costgpu.errors import UsageError

if TYPE_CHECKING:
    from costgpu.models.offer import Speedup


def speedups(
    kind: Annotated[str | None, typer.Argument(help="Kind of work, e.g. resnet50 or gradient-boosted-trees.")] = None,
    gpus: Annotated[str | None, typer.Option(help="GPU to show, e.g. K80, V100, H100.")] = None,
    json: opt.Json = False,
    output: opt.Format = "text",
) -> None:
    """Show benchmarks of GPUs against CPUs, by kind of work.

    costgpu uses this benchmark table where a script's own steps cannot be followed, always
    with a wide interval. Measured lines come first; claims stand apart, and implausible ones
    are marked.
    """
    from costgpu.pricing.speedups import speedups as table
    from costgpu.render.text.speedups import speedups_json, speedups_summary, speedups_table

    as_json = opt.wants_json(json, output)
    rows = select(table(), kind, gpus)
    if as_json:
        typer.echo(speedups_json(rows))
    else:
        typer.echo(speedups_summary(rows) if kind is None and gpus is None else speedups_table(rows))


def select(rows: tuple[Speedup, ...], kind: str | None, gpu: str | None) -> tuple[Speedup, ...]:
    """The rows of a kind of work and of a GPU with its variants; None for all.

    Raises:
        UsageError: There is no such kind or GPU, or no row of both.
    """
    from costgpu.pricing.hardware import accelerator
    from costgpu.pricing.speedups import of_kind

    if kind is not None:
        rows = of_kind(rows, kind)
    if gpu is None:
        return rows
    name = accelerator(gpu).name
    found = tuple(row for row in rows if row.gpu == name or row.gpu.startswith(f"{name}-"))
    if not found:
        known = ", ".join(sorted({row.gpu for row in rows if row.gpu}))
        raise UsageError(
            f"The table has no line of {kind or 'any kind'} on {name}.",
            hint=f"It has {known or 'none with a named GPU'}.",
        )
    return found
