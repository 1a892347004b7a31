"""Reports and their parts as text for a terminal of 80 columns."""

from __future__ import annotations

from costgpu.render.report import Cell, ItemList, Report, ReportSection, Row, Table, cell_of
from costgpu.render.text.layout import WIDTH, columns, cut, fold, wrap

MARK_WIDTH = 2
LONGEST_NAME, LEGEND_ROWS = 3, 2  # rows


def report_text(report: Report) -> str:
    """Return the answer, and all sections in full."""
    return "\n\n".join([wrap(report.answer), *filter(None, map(section_text, report.sections))])


def section_text(section: ReportSection) -> str:
    """Return a section with its title, without its pictures; empty without parts."""
    lines = []
    for part in section.parts:
        match part:
            case str():
                lines.append(wrap(part))
            case ItemList(lines=items, style="nested"):
                lines += [cut(f"{'  ' * depth}{item}", WIDTH) for depth, item in enumerate(items, 1)]
            case ItemList(lines=items):
                lines += [wrap(item, "- ") for item in items]
            case Table():
                lines += table_lines(part)
    if lines and section.title:
        lines.insert(0, wrap(section.title + ":" * isinstance(section.parts[-1], Table)))
    return "\n".join(lines)


def table_lines(table: Table) -> list[str]:
    """Return the head and the rows of a table; names take what the figures leave of the width.

    A name that is longer has a line of its own. Where the figures alone are too wide, the last columns are left out.
    """
    shown = [(index, heading) for index, heading in enumerate(table.headings) if heading.width]

    def figures(cells: Row) -> list[str]:
        found = []
        for index, heading in shown:
            cell = cell_of(cells[index]) if index < len(cells) else Cell("")
            found += [cell.text, cell.span][: 1 + bool(heading.span)]
        return found

    head = [Cell(heading.text, heading.span) for heading in table.headings]
    rows = [(cell_of(cells[0]), figures(cells)) for cells in (head, *table.rows)]
    least = [width for _, each in shown for width in (each.width, each.span_width)[: 1 + bool(each.span)]]
    widths = [max(width, *(columns(texts[index]) for _, texts in rows)) for index, width in enumerate(least)]
    while sum(widths) + len(widths) > WIDTH - MARK_WIDTH:
        widths.pop()
    room = WIDTH - MARK_WIDTH - sum(widths) - len(widths)
    lines = []
    for first, texts in rows:
        if not any(texts):
            lines += [cut(first.text, WIDTH)] if first.text else []
            continue
        mark, name = f"{first.mark[:1]:{MARK_WIDTH}}", first.text
        if columns(name) > room:
            lines += fold(name, LONGEST_NAME, mark)
            mark, name = " " * MARK_WIDTH, ""
        aligned = "".join(f" {text:>{width}}" for text, width in zip(texts, widths, strict=False))
        lines.append(f"{mark}{name}{' ' * (room - columns(name))}{aligned}".rstrip())
    return [*lines, *(row for sentence in table.legend for row in fold(sentence, LEGEND_ROWS, " " * MARK_WIDTH))]
