"""Asks what becomes of files that the script reads and that would not travel."""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import TYPE_CHECKING

from costgpu.cli.terminal_reporter import ask, print_error, print_note
from costgpu.errors import NotConfirmed

if TYPE_CHECKING:
    from costgpu.workflows.context import AppContext
    from costgpu.workflows.runs.plan import PlannedRun


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


def note_refusal(planned: PlannedRun) -> None:
    """Say after a plan that is only shown what its launch would be refused for, or asked about."""
    from costgpu.workflows.runs.inputs import refusal

    if planned.plan.inputs.staying:
        print_error(refusal(planned.plan.inputs), before="With --yes this would be refused. ")
