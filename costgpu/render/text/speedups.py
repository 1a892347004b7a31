"""The table of published speed-ups, as text."""

from __future__ import annotations

from typing import TYPE_CHECKING

from costgpu.models.offer import Grade, Speedup
from costgpu.render.text.layout import wrap
from costgpu.units import format_duration, format_ratio

if TYPE_CHECKING:
    from collections.abc import Sequence

IMPLAUSIBLE = "!"
_CLAIMS = "Claims: published without a machine, without the seconds, or without a source."
_IMPLAUSIBLE = f"{IMPLAUSIBLE} implausible, and never used."
_MEANING = (
    "Ratio: seconds on the CPU over seconds on the GPU for the same work; below 1x the CPU was faster. Against one core it"
    " is many times what it is against sixteen."
)


def speedups_table(rows: Sequence[Speedup]) -> str:
    """Return every line with its source: what was measured first, by ratio; then the claims."""
    measured, claims = ([row for row in rows if row.grade is grade] for grade in (Grade.MEASURED, Grade.CLAIM))
    sources = list(dict.fromkeys(row.source for row in [*measured, *claims]))
    numbers = {source: f"[{number}]" for number, source in enumerate(sources, 1)}
    blocks = []
    for kind in dict.fromkeys(row.kind for row in measured):
        mine = sorted((row for row in measured if row.kind == kind), key=lambda row: -row.ratio)
        heading = f"{kind}: {len(mine)} measured" if len(mine) > 1 else f"{kind}: 1 measured line"
        blocks.append("\n".join([heading, *(line for row in mine for line in _lines(row, numbers))]))
    blocks += _claims(claims, numbers)
    footer = [wrap(f"{numbers[source]} {source.replace('https://', '')}", rest="  ") for source in sources]
    return "\n\n".join([*blocks, wrap(_MEANING), "\n".join(footer)])


def _claims(claims: Sequence[Speedup], numbers: dict[str, str]) -> list[str]:
    if not claims:
        return []
    lines = [wrap(_CLAIMS)]
    for row in claims:
        mark = " " if row.plausible else IMPLAUSIBLE
        machines = f"{row.cpu or 'a CPU'} against {row.gpu or 'a GPU'}"
        remark = f"; {row.remark}" if row.remark else ""
        lines.append(
            wrap(
                f"{mark} {_range(row):>8}  {row.kind}: {row.detail}, {machines}{remark} {numbers[row.source]}",
                rest=" " * 12,
            )
        )
    if any(not row.plausible for row in claims):
        lines.append(_IMPLAUSIBLE)
    return ["\n".join(lines)]


def _range(row: Speedup) -> str:
    if row.ratio_low == row.ratio_high:
        return format_ratio(row.ratio)
    return f"{row.ratio_low:g}-{format_ratio(row.ratio_high)}"


def _lines(row: Speedup, numbers: dict[str, str]) -> list[str]:
    cores = "1 core" if row.cpu_cores == 1 else f"{row.cpu_cores} cores"
    first = f"  {_range(row):>8}  {row.gpu} against {row.cpu}, {cores}"
    words = [row.detail, row.framework]
    if row.cpu_seconds is not None and row.gpu_seconds is not None:
        words.append(f"{format_duration(row.cpu_seconds)} against {format_duration(row.gpu_seconds)}")
    words += [row.remark] if row.remark else []
    second = f"{'; '.join(words)} ({row.measured or 'undated'}) {numbers[row.source]}"
    return [wrap(first, rest=" " * 12), wrap(second, " " * 12)]
