"""The error tree. Imports nothing of costgpu's.

A job that was run ends with its own exit code, whatever that is. Every error has an exit code of its own: the codes are
part of the interface, unique and never reused. Exit code 130 is Ctrl-C, as in a shell.

The first line of a class says what its code means; docs/exit-codes.md lists them all.
"""

from __future__ import annotations

from enum import StrEnum
from typing import ClassVar

EXIT_INTERRUPTED = 130


class Retry(StrEnum):
    """Where a request that a provider has refused may be granted if it is made again."""

    HERE = "here"  # the same request, a moment later
    ELSEWHERE = "elsewhere"  # for another type, zone or region
    NEVER = "never"  # not before somebody has changed something


class CostGpuError(Exception):
    """An error without a code of its own.

    Attributes:
        message: What happened, where, and the value with its unit.
        hint: What the user can do about it; empty if there is nothing to say.
    """

    exit_code: ClassVar[int] = 1

    def __init_subclass__(cls, *, exit_code: int | None = None) -> None:
        """Every class of this module has an exit code of its own; one from elsewhere may inherit its parent's."""
        super().__init_subclass__()
        if exit_code is not None:
            cls.exit_code = exit_code

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


def exit_codes() -> dict[int, tuple[type[CostGpuError], str]]:
    """Return every exit code of costgpu's own errors, ascending: the class that it belongs to, and what it means."""
    found: list[type[CostGpuError]] = [CostGpuError]
    for error in found:
        found.extend(below for below in error.__subclasses__() if below.__module__ == __name__)
    found.sort(key=lambda error: error.exit_code)
    return {error.exit_code: (error, (error.__doc__ or "").partition("\n")[0]) for error in found}


class UsageError(CostGpuError, exit_code=2):
    """Invalid argument or option."""


class ConfigError(CostGpuError, exit_code=3):
    """Invalid settings, or unusable data in the package."""


class PriceNotFound(CostGpuError, exit_code=4):
    """No offer with a known price matches."""


class ProfileError(CostGpuError, exit_code=5):
    """A saved profile cannot be read or written."""


class CapTooSmall(CostGpuError, exit_code=6):
    """The cost or time allowed is too small to boot the machine."""


class NotConfirmed(CostGpuError, exit_code=7):
    """The plan was not confirmed."""


class CannotWrite(CostGpuError, exit_code=8):
    """Stdout, stderr or a file cannot be written, as on a full disk; a command that fails keeps its own code."""


class ScriptError(CostGpuError, exit_code=20):
    """The script could not be measured."""


class ScriptNotFound(ScriptError, exit_code=21):
    """There is no such script or module."""


class NotPython(ScriptError, exit_code=22):
    """The file is not Python source that the interpreter can compile, or nothing in it does anything."""


class InterpreterError(ScriptError, exit_code=23):
    """The interpreter is missing, too old, or does not start."""


class ScriptCrashed(ScriptError, exit_code=24):
    """The script crashed, or exited with a failure."""


class MissingImport(ScriptError, exit_code=25):
    """The script imports something that the interpreter does not have."""


class NeedsCuda(ScriptError, exit_code=26):
    """The script refuses to run without a CUDA device."""


class WaitsForInput(ScriptError, exit_code=27):
    """The script waits for input."""


class NoTrainingStep(ScriptError, exit_code=28):
    """No training step within the time limit."""


class NothingToMeasure(ScriptError, exit_code=29):
    """The script ended without a training step."""


class OutOfMemory(ScriptError, exit_code=30):
    """The script ran out of memory."""


class KilledBySignal(ScriptError, exit_code=31):
    """The script was killed by a signal."""


class WouldHarmFiles(ScriptError, exit_code=32):
    """The script's writes cannot be kept away from the files that are there."""


class NoProgressLines(ScriptError, exit_code=33):
    """The program printed nothing that tells its progress."""


class NoMetric(ScriptError, exit_code=34):
    """A trial of a sweep ended without ever printing the metric."""


class TrialsFailed(ScriptError, exit_code=35):
    """Every trial of a sweep failed."""


class NoStandIn(ScriptError, exit_code=37):
    """Something of the script cannot be measured without weights."""


class MissingFiles(ScriptError, exit_code=38):
    """Files of a hub that the script wants are neither on this machine nor within reach."""


class NoFiniteMetric(ScriptError, exit_code=36):
    """Every value of a sweep's metric is NaN or infinite."""


class ProviderError(CostGpuError, exit_code=40):
    """The provider refused or failed.

    An unknown failure is this, and never `NoCapacity`.
    """

    retry: ClassVar[Retry] = Retry.NEVER


class AuthError(ProviderError, exit_code=41):
    """No credentials, expired ones, or a missing permission."""


class NoCapacity(ProviderError, exit_code=42):
    """No such machine is free anywhere that was tried."""

    retry = Retry.ELSEWHERE


class QuotaExceeded(ProviderError, exit_code=43):
    """A quota of the account is too small."""


class InvalidRequest(ProviderError, exit_code=44):
    """The provider knows no such region, type, image or subnet."""


class Throttled(ProviderError, exit_code=45):
    """The provider asks for fewer requests."""

    retry = Retry.HERE


class Unreachable(ProviderError, exit_code=46):
    """The provider does not answer.

    The request may or may not have been carried out.
    """

    retry = Retry.HERE


class TerminationUnconfirmed(ProviderError, exit_code=47):
    """An instance may still be billing: the message names it and the command that ends it."""


class OrphansFound(ProviderError, exit_code=48):
    """`costgpu reap` found machines or other resources that no run needs."""


class RefusedHere(ProviderError, exit_code=49):
    """The provider refuses this machine in this place.

    The refusal is about one type, zone or moment: another place may grant it.
    """

    retry = Retry.ELSEWHERE


class RunError(CostGpuError, exit_code=50):
    """A run ended without its job's exit code."""


class RunNotFound(RunError, exit_code=51):
    """No such run, or more than one matches."""


class BootFailed(RunError, exit_code=52):
    """The machine did not boot."""


class HostUnreachable(RunError, exit_code=53):
    """The connection to the machine was lost.

    For now or for good.
    """


class HostKeyMismatch(RunError, exit_code=54):
    """The machine that answers is not the one that was created."""


class MachineUnusable(RunError, exit_code=55):
    """The machine lacks what a run needs."""


class SyncRefused(RunError, exit_code=56):
    """The working folder cannot be sent as it is, or the script reads what would not travel."""


class SetupFailed(RunError, exit_code=57):
    """The set-up command failed."""


class OutputsMissing(RunError, exit_code=58):
    """Requested outputs are missing; or some cannot be brought home, or a long job made none, and the machine waits."""


class OutputsDamaged(RunError, exit_code=59):
    """A file was damaged in transfer."""


class InstanceLost(RunError, exit_code=60):
    """The instance was terminated by somebody else."""


class Preempted(RunError, exit_code=61):
    """The provider took the machine back: a spot machine, or one whose host failed or was maintained."""


class LimitReached(RunError, exit_code=62):
    """A time, cost or idle limit ended the job."""


class DiskFull(RunError, exit_code=63):
    """The machine's disk was nearly full."""


class RunCancelled(RunError, exit_code=64):
    """The run was cancelled."""


class RunBusy(RunError, exit_code=65):
    """Another costgpu process drives this run."""


class NodesApart(RunError, exit_code=66):
    """The machines of a job cannot work together, or one of them is missing."""


class DriverFailed(RunError, exit_code=67):
    """The machine's GPU or its driver does not answer."""


class PackagesMissing(RunError, exit_code=68):
    """A package that the script imports would not be installed on the machine."""


class LedgerError(CostGpuError, exit_code=70):
    """The ledger cannot be used."""


class LedgerTooNew(LedgerError, exit_code=71):
    """The ledger is from a newer costgpu."""


class LedgerDamaged(LedgerError, exit_code=72):
    """The ledger is damaged."""


class LedgerConflict(LedgerError, exit_code=73):
    """Two processes wrote to the same run.

    Read the run again.
    """


class BudgetError(CostGpuError, exit_code=79):
    """There is no such budget, or one with that name exists."""


class BudgetCrossed(BudgetError, exit_code=80):
    """`costgpu budget check`: an alert threshold is crossed."""


class BudgetExceeded(BudgetError, exit_code=81):
    """`costgpu budget check`: a budget is exceeded; `costgpu run`: a budget refuses the run."""


class AlertFailed(BudgetError, exit_code=82):
    """An alert could not be delivered; the next check tries again."""
