"""The answer of an estimate on one screen: 40 rows of 80 columns, in which its parts make room for each other."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from costgpu.estimator.multi_gpu.words import scaling_sentences
from costgpu.estimator.spot import interruption_words
from costgpu.models.estimate import Estimate
from costgpu.models.prediction import Advice
from costgpu.render.estimate.advice import advice_title, overlap, saving_words
from costgpu.render.estimate.memory import memory_line
from costgpu.render.estimate.own_gpu import energy_section, own_section
from costgpu.render.estimate.sections import estimate_report, job_title, service_title, step_lines
from costgpu.render.estimate.tables import candidates_table, service_table, throughput_tables
from costgpu.render.phrases import notes_of, price_mark, steps_phrase
from costgpu.render.report import ReportSection
from costgpu.render.safe_text import escaped
from costgpu.render.text.layout import WIDTH, columns, cut, fold, fold_before
from costgpu.render.text.sections import report_text, section_text, table_lines
from costgpu.units import currency_note

ROWS = 40
ASKED_ROWS = 12  # that anything else gives way to
TURNS = 2  # doubts in the headline
UNFIT_TYPES = 3  # that were asked for, told below a table
ADVICE, ADVICE_ROWS = 3, 2  # pieces of advice, and rows of each
SHORT_NAME = 32  # columns of a script's name
MORE = "Everything, and where each number comes from: --explain"
MEASURED_AGAIN = f"{MORE} (--save measures once)"


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """A part of an answer."""

    short: Callable[[int], list[str]]  # it in at most so many rows
    most: int  # rows that it wants
    least: int  # rows that are left to it where others need room


def estimate_text(found: Estimate, *, explain: bool = False, besides: Sequence[ReportSection] = ()) -> str:
    """Return the answer, what it rests on, and the offers worth a look.

    Args:
        explain: Whether to show everything, with where each number comes from, and not what fits one screen.
        besides: What else was asked for.
    """
    if explain:
        log = f"\n\nThe script's output: {found.log}" if found.log else ""
        return report_text(estimate_report(found)) + log
    verdict, unit, alone = found.verdict, found.verdict.unit, found.service is None
    own = found.own if found.own is not None and not found.own.prediction.infeasible else None
    asked = [own_section(found.own, unit), energy_section(found.energy or (), own), *besides]
    return _one_screen(
        [
            _headline(found),
            Block(short=lambda rows: _measured_rows(found, rows), most=8, least=3),
            Block(short=lambda rows: _table_rows(found, rows), most=15, least=8),
            *(_sentence(words) for words in scaling_sentences(verdict.recommended)[:1]),
            *([Block(short=lambda rows: _throughput_rows(found, rows), most=9, least=0)] if alone else []),
            *([_sentence(interruption_words(verdict.interruptible))] if alone else []),
            Block(short=lambda rows: _advice_rows(found.advice, unit, rows), most=2 + ADVICE * ADVICE_ROWS, least=4),
            *(_asked_for(section_text(section)) for section in asked),
            Block(short=lambda rows: _doubt_rows(found, rows), most=5, least=5),
        ]
    )


def _one_screen(blocks: Sequence[Block]) -> str:
    """Return blocks that make room for each other: who has the most rows to spare gives one."""
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


def _sentence(text: str) -> Block:
    return Block(short=lambda rows: fold(text, rows) if text else [], most=3, least=2)


def _clipped(text: str, most: int) -> list[str]:
    """Return the first lines of a text, and how many are missing."""
    lines = text.splitlines()
    if len(lines) <= most:
        return lines
    return [*lines[: most - 1], f"  and {len(lines) - most + 1} more: --explain"] if most > 1 else []


def _asked_for(text: str) -> Block:
    """Return what an option of its own asked for: whole, if it is no longer than a table."""
    rows = len(text.splitlines())
    return Block(short=lambda most: _clipped(text, most), most=rows, least=min(rows, ASKED_ROWS))


def _headline(found: Estimate) -> Block:
    """Return the answer, and what would turn it; where both need more rows than there are, words of the answer give way."""
    verdict = found.verdict
    turns = " ".join([doubt.turns for doubt in verdict.doubts if doubt.turns][:TURNS])
    if verdict.recommended is not None and (mark := price_mark(verdict.recommended.offer)):
        longer = ", and the job may last longer" * verdict.recommended.outlasts_own_price
        turns = f"It counts your {mark}{longer}. {turns}".strip()

    def short(rows: int) -> list[str]:
        answer = verdict.headline or verdict.sentence
        return fold_before(answer, f" {turns}", rows) if turns else fold(answer, rows)

    return Block(short=short, most=9, least=7)


def _measured_rows(found: Estimate, most: int) -> list[str]:
    """Return how long the script runs, of several phases the last one, and what was measured of it."""
    profile = found.profile
    last, count = profile.phases[-1], len(profile.phases)
    name = cut(profile.script, SHORT_NAME)
    phases = f" ({count} phases, the last at {cut(last.label, SHORT_NAME)})" if count > 1 else ""
    memory = fold(memory_line(found), max(0, min(2, most - 1)))
    most -= len(memory)
    total = fold(f"{name}{phases}: {steps_phrase(last)}: {last.total.how}.", max(0, min(2, most - 2)))
    step, *beside = step_lines(profile, last)
    rows = [*total, *fold(step, min(3, most - len(total)))]
    return [*rows, *(fold(beside[0], min(2, most - len(rows))) if beside else []), *memory]


def _table_rows(found: Estimate, most: int) -> list[str]:
    """Return the machines for a load, or as many of the candidates as there is room for."""
    if found.service is not None:
        table = service_table(found.service, found.today)
        lines = [f"{service_title(found.service)}:", *table_lines(table)] if table is not None else []
        return _clipped("\n".join(lines), most)
    verdict = found.verdict
    rows = [verdict.here, *verdict.table]
    unfit = [
        cut(f"  > {one.candidate.offer.instance_type} will not do: {one.infeasible}.", WIDTH)
        for one in verdict.asked
        if one.infeasible and one.candidate.offer is not None
    ][:UNFIT_TYPES]
    # the recommendation, this machine, the best offers, what was asked for, then the others
    first = [verdict.recommended, verdict.here, verdict.best_gpu, verdict.best_cpu, *verdict.asked]
    ranks = {id(one): rank for rank, one in reversed(list(enumerate(first)))}
    telling = sorted(rows, key=lambda one: ranks.get(id(one), len(first)))
    for keep in range(len(rows), 0, -1):
        kept = [one for one in rows if any(one is other for other in telling[:keep])]
        more = [f"  {len(rows) - keep} more: --explain"] if keep < len(rows) else []
        lines = [f"{job_title(verdict)}:", *table_lines(candidates_table(verdict, kept, found.today)), *unfit, *more]
        if len(lines) <= most:
            return lines
    return []


def _throughput_rows(found: Estimate, most: int) -> list[str]:
    """Return what the last phase of inference makes, in the kind that says the most, if so many rows hold it."""
    tables = throughput_tables(found.verdict, found.profile, last=True)
    lines = ["Once it runs, boot and set-up apart:", *table_lines(tables[0])] if tables else []
    return lines if len(lines) <= most else []


def _advice_rows(advice: Sequence[Advice], unit: str, rows: int) -> list[str]:
    """Return the changes that are worth the most."""
    shown = advice[: min(ADVICE, (rows - 2) // ADVICE_ROWS)] if rows > ADVICE_ROWS else ()
    if not shown:
        return []
    more = f"{len(advice) - len(shown)} more: --explain." if len(advice) > len(shown) else ""
    last = " ".join(filter(None, (overlap(advice), more)))
    return [advice_title(advice, unit), *(row for one in shown for row in _in_short(one)), *([last] if last else [])]


def _in_short(one: Advice) -> list[str]:
    """Return the change and its saving in two rows; what does not fit is left out of the change, and not of the saving."""
    rest, brief = saving_words(one), re.sub(r" \([^()]*\)", "", one.action)
    whole = fold(f"{one.action}{rest}", ADVICE_ROWS + 1, "- ")
    return whole if len(whole) <= ADVICE_ROWS else fold_before(brief, rest, ADVICE_ROWS, "- ")


def _doubt_rows(found: Estimate, rows: int) -> list[str]:
    """Return the doubts that would not turn the answer in one row, the most important first, and where to read more."""
    verdict, log = found.verdict, found.log
    turning = [doubt for doubt in verdict.doubts if doubt.turns][:TURNS]
    doubts = [doubt.words for doubt in verdict.doubts if doubt.words and doubt not in turning]
    said = [doubt.said for doubt in verdict.doubts if doubt.said]
    others = sum(not any(words in note.lower() for words in said) for note in notes_of(verdict, found.profile))

    def line(count: int) -> str:
        rest = len(doubts) - count + others
        more = [f"and {rest} more: --explain"] if rest else []
        return f"Doubts: {'; '.join([*doubts[:count], *more])}"

    fitting = [line(count) for count in range(1, len(doubts) + 1) if columns(line(count)) <= WIDTH]
    first = fitting[-1:] or [row for doubt in doubts[:1] for row in fold(f"Doubts: {doubt}", 1)]
    first = first or ([f"Notes on these figures: {others}, with --explain"] if others else [])
    if not log:
        return [*first, MORE][: max(0, rows)]
    output = f"Its output: {log}"
    folder, _, name = output.rpartition("/")
    where = [output] if columns(output) <= WIDTH else [*fold(f"{folder}/", 2), *fold(name, 1)]
    return [*first, MEASURED_AGAIN, *where][: max(0, rows)]
