"""An answer as a list of blocks: each has a short form, of which all together fit one screen, and a full form."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from costgpu.render.safe_text import escaped
from costgpu.render.text.layout import WIDTH, cut, fold
from costgpu.units import currency_note

ROWS = 40
ASKED_ROWS = 12  # that anything else gives way to


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """A part of an answer."""

    full: str = ""  # all of it; empty where there is nothing more to say than the short form does
    short: Callable[[int], list[str]] = lambda _: []  # it in at most so many rows
    most: int = 0  # rows of the short form; 0 for none
    least: int = 0  # rows that are left to it where others need room


def everything(blocks: Sequence[Block]) -> str:
    """Return the full forms."""
    return "\n\n".join(block.full for block in blocks if block.full)


def one_screen(blocks: Sequence[Block]) -> str:
    """Return the short forms, which make room for each other: who has the most rows to spare gives one."""
    shown = {index: block.short(block.most) for index, block in enumerate(blocks)}
    room = {index: len(lines) for index, lines in shown.items()}
    rows = ROWS - 2 * bool(currency_note())  # which follows below an empty row
    while sum(room.values()) + sum(map(bool, shown.values())) - 1 > rows:
        index = max((one for one in room if room[one]), key=lambda one: room[one] - blocks[one].least)
        room[index] -= 1
        shown[index] = blocks[index].short(room[index])
        room[index] = len(shown[index])
    return "\n\n".join(
        "\n".join(cut(escaped(" ".join(line.expandtabs().splitlines())), WIDTH) for line in lines)
        for lines in shown.values()
        if lines
    )


def paragraph(text: str, most: int, least: int) -> Block:
    """Return a paragraph as a short form alone."""
    return Block(short=lambda rows: fold(text, rows), most=most, least=least)


def clipped(text: str, most: int) -> list[str]:
    """Return the first lines of a text, and how many are missing."""
    lines = text.splitlines()
    if len(lines) <= most:
        return lines
    return [*lines[: most - 1], f"  and {len(lines) - most + 1} more: --explain"] if most > 1 else []


def asked_for(text: str) -> Block:
    """Return what an option of its own asked for: whole, if it is no longer than a table."""
    rows = len(text.splitlines())
    return Block(full=text, short=lambda most: clipped(text, most), most=rows, least=min(rows, ASKED_ROWS))
