"""The table of published speed-ups, in words."""

from __future__ import annotations

from collections.abc import Sequence

from costgpu.models.offer import Grade, Speedup
from costgpu.render.report import ItemList, Part, ReportSection
from costgpu.units import format_duration, format_ratio

IMPLAUSIBLE = "!"
_CLAIMS = "Claims: published without a machine, without the seconds, or without a source."
_IMPLAUSIBLE = f"{IMPLAUSIBLE} implausible, and never used."
_MEANING = (
    "Ratio: seconds on the CPU over seconds on the GPU for the same work; below 1x the CPU was faster. Against one core it"
    " is many times what it is against sixteen."
)


def speedup_section(kind: str, rows: Sequence[Speedup]) -> ReportSection:
    """Return every line about a kind of work with its source: what was measured first, by ratio; then the claims."""
    measured, claims = ([row for row in rows if row.grade is grade] for grade in (Grade.MEASURED, Grade.CLAIM))
    sources = list(dict.fromkeys(row.source for row in [*measured, *claims]))
    numbers = {source: f"[{number}]" for number, source in enumerate(sources, 1)}
    title = f"{kind}: {len(measured)} measured" if len(measured) != 1 else f"{kind}: 1 measured line"
    parts: list[Part] = [ItemList([_measured(row, numbers) for row in sorted(measured, key=lambda row: -row.ratio)])]
    if claims:
        implausible = [] if all(row.plausible for row in claims) else [_IMPLAUSIBLE]
        parts += [_CLAIMS, ItemList([_claim(row, numbers) for row in claims]), *implausible]
    sourced = [f"{numbers[source]} {source.replace('https://', '')}" for source in sources]
    return ReportSection(title=title, parts=[*parts, _MEANING, ItemList(sourced, "soft")])


def _claim(row: Speedup, numbers: dict[str, str]) -> str:
    mark = "" if row.plausible else f"{IMPLAUSIBLE} "
    machines = f"{row.cpu or 'a CPU'} against {row.gpu or 'a GPU'}"
    remark = f"; {row.remark}" if row.remark else ""
    return f"{mark}{_range(row)} {row.detail}, {machines}{remark} {numbers[row.source]}"


def _range(row: Speedup) -> str:
    if row.ratio_low == row.ratio_high:
        return format_ratio(row.ratio)
    return f"{row.ratio_low:g}-{format_ratio(row.ratio_high)}"


def _measured(row: Speedup, numbers: dict[str, str]) -> str:
    cores = "1 core" if row.cpu_cores == 1 else f"{row.cpu_cores} cores"
    words = [row.detail, row.framework]
    if row.cpu_seconds is not None and row.gpu_seconds is not None:
        words.append(f"{format_duration(row.cpu_seconds)} against {format_duration(row.gpu_seconds)}")
    words += [row.remark] if row.remark else []
    facts = f"{'; '.join(words)} ({row.measured or 'undated'}) {numbers[row.source]}"
    return f"{_range(row)} {row.gpu} against {row.cpu}, {cores}: {facts}"
