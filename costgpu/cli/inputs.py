"""Agrees on a plan: shows it, asks what becomes of files that would not travel, and whether to launch it."""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import TYPE_CHECKING

from costgpu.cli.terminal_reporter import ask, confirm, print_error, print_note, say
from costgpu.errors import NotConfirmed

if TYPE_CHECKING:
    from costgpu.workflows.context import AppContext
    from costgpu.workflows.runs.plan import PlannedRun


def agree(
    context: AppContext, planned: PlannedRun, shown: str, question: str, unasked: str = "", *, dry_run: bool, asks: bool
) -> PlannedRun | None:
    """Show a plan, and return it with what was decided about it; None if showing it is all that was asked for.

    Args:
        question: What is asked before the launch; empty to launch it without asking.
        unasked: What is said of it where nobody is there to answer.
        asks: Whether a person may be asked about files.

    Raises:
        NotConfirmed: Nobody agrees.
        CostGpuError: It is refused.
    """
    from costgpu.workflows.runs.inputs import refusal

    say(shown, err=not dry_run)
    if dry_run:
        if planned.plan.inputs.staying:
            print_error(refusal(planned.plan.inputs), before="With --yes this would be refused. ")
        return None
    if planned.refusal is not None:
        raise planned.refusal
    planned = agree_on_inputs(context, planned, asks=asks)
    if question:
        alone = f"{unasked} Confirmation required, but stdin is not a terminal.".strip()
        hint = "Add -y, or --dry-run to only see the plan."
        confirm(question, alone=NotConfirmed(alone, hint=hint), otherwise="Not launched; nothing was spent.")
    return planned


def agree_on_inputs(context: AppContext, planned: PlannedRun, *, asks: bool) -> PlannedRun:
    """Return the plan with a decision about each file that the script reads and that would not travel.

    Args:
        asks: Whether a person may be asked.

    Raises:
        SyncRefused: Nobody is there to decide, or what is to travel as well is too large.
        NotConfirmed: The person stops.
    """
    from costgpu.render.phrases import counted
    from costgpu.units import format_size
    from costgpu.workflows.runs.inputs import refusal, send_too, without

    plan = planned.plan
    if not plan.inputs.staying:
        return planned
    error = refusal(plan.inputs)
    if not asks or not sys.stdin.isatty():
        raise error
    print_error(error)
    sendable = any(one.sendable for one in plan.inputs.staying)
    question = (
        "Send it too (s), go on without it (w), or stop? [s/w/N]"
        if sendable
        else "Go on without it (w), or stop? [w/N]"
    )
    answer = ask(question)
    if answer in ("s", "send") and sendable:
        sent = send_too(plan, context.settings.sync_limit_mib)
        print_note(f"{counted(sent.files, 'file')}, {format_size(sent.bytes)}, travel now.")
        return replace(planned, plan=sent)
    if answer in ("w", "without"):
        return replace(planned, plan=without(plan))
    raise NotConfirmed("Not launched; nothing was spent.")
