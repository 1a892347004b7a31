"""The error tree. Imports nothing.

A job that was run ends with its own exit code, whatever that is. Every error has an exit code of its own: the codes are
part of the interface, unique and never reused. Exit code 130 is Ctrl-C, as in a shell.

The first line of a class says what its code means; docs/exit-codes.md lists them all.
"""

from __future__ import annotations

from typing import ClassVar

EXIT_INTERRUPTED = 130


class CostGpuError(Exception):
    """An error without a code of its own.

    Attributes:
        message: What happened, where, and the value with its unit.
        hint: What the user can do about it; empty if there is nothing to say.
    """

    exit_code: ClassVar[int] = 1

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


def exit_codes() -> dict[int, tuple[type[CostGpuError], str]]:
    """Every exit code of costgpu's own errors, ascending: the class that it belongs to, and what it means."""
    found: list[type[CostGpuError]] = [CostGpuError]
    for error in found:
        found.extend(below for below in error.__subclasses__() if below.__module__ == __name__)
    found.sort(key=lambda error: error.exit_code)
    return {error.exit_code: (error, (error.__doc__ or "").partition("\n")[0]) for error in found}


class UsageError(CostGpuError):
    """Invalid argument or option."""

    exit_code = 2


class ConfigError(CostGpuError):
    """Invalid settings, or unusable data in the package."""

    exit_code = 3


class PriceNotFound(CostGpuError):
    """No offer with a known price matches."""

    exit_code = 4


class ProfileError(CostGpuError):
    """A saved profile cannot be read or written."""

    exit_code = 5


class CapTooSmall(CostGpuError):
    """The cost or time allowed is too small to boot the machine."""

    exit_code = 6


class NotConfirmed(CostGpuError):
    """The plan was not confirmed."""

    exit_code = 7


class ScriptError(CostGpuError):
    """The script could not be measured."""

    exit_code = 20


class ScriptNotFound(ScriptError):
    """There is no such script or module."""

    exit_code = 21


class NotPython(ScriptError):
    """The file is not Python source that the interpreter can compile."""

    exit_code = 22


class InterpreterError(ScriptError):
    """The interpreter is missing, too old, or does not start."""

    exit_code = 23


class ScriptCrashed(ScriptError):
    """The script crashed, or exited with a failure."""

    exit_code = 24


class MissingImport(ScriptError):
    """The script imports something that the interpreter does not have."""

    exit_code = 25


class NeedsCuda(ScriptError):
    """The script refuses to run without a CUDA device."""

    exit_code = 26


class WaitsForInput(ScriptError):
    """The script waits for input."""

    exit_code = 27


class NoTrainingStep(ScriptError):
    """No training step within the time limit."""

    exit_code = 28


class NothingToMeasure(ScriptError):
    """The script ended without a training step."""

    exit_code = 29


class OutOfMemory(ScriptError):
    """The script ran out of memory."""

    exit_code = 30


class KilledBySignal(ScriptError):
    """The script was killed by a signal."""

    exit_code = 31


class WouldHarmFiles(ScriptError):
    """The script insists on changing a file that is too large to copy."""

    exit_code = 32


class NoProgressLines(ScriptError):
    """The program printed nothing that tells its progress."""

    exit_code = 33


class ProviderError(CostGpuError):
    """The provider refused or failed.

    An unknown failure is this, and never `NoCapacity`.
    """

    exit_code = 40


class AuthError(ProviderError):
    """No credentials, expired ones, or a missing permission."""

    exit_code = 41


class NoCapacity(ProviderError):
    """No such machine is free anywhere that was tried."""

    exit_code = 42


class QuotaExceeded(ProviderError):
    """A quota of the account is too small."""

    exit_code = 43


class InvalidRequest(ProviderError):
    """The provider knows no such region, type, image or subnet."""

    exit_code = 44


class Throttled(ProviderError):
    """The provider asks for fewer requests."""

    exit_code = 45


class Unreachable(ProviderError):
    """The provider does not answer.

    The request may or may not have been carried out.
    """

    exit_code = 46


class TerminationUnconfirmed(ProviderError):
    """An instance may still be billing: the message names it and the command that ends it."""

    exit_code = 47


class OrphansFound(ProviderError):
    """`costgpu reap` found machines or other resources that no run needs."""

    exit_code = 48


class RunError(CostGpuError):
    """A run ended without its job's exit code."""

    exit_code = 50


class RunNotFound(RunError):
    """No such run, or more than one matches."""

    exit_code = 51


class BootFailed(RunError):
    """The machine did not boot."""

    exit_code = 52


class HostUnreachable(RunError):
    """The connection to the machine was lost.

    For now or for good.
    """

    exit_code = 53


class HostKeyMismatch(RunError):
    """The machine that answers is not the one that was created."""

    exit_code = 54


class MachineUnusable(RunError):
    """The machine lacks what a run needs."""

    exit_code = 55


class SyncRefused(RunError):
    """The working folder cannot be sent as it is."""

    exit_code = 56


class SetupFailed(RunError):
    """The set-up command failed."""

    exit_code = 57


class OutputsMissing(RunError):
    """Requested outputs are missing, or cannot be read on the machine, which then waits with them."""

    exit_code = 58


class OutputsDamaged(RunError):
    """A file was damaged in transfer."""

    exit_code = 59


class InstanceLost(RunError):
    """The instance was terminated by somebody else."""

    exit_code = 60


class Preempted(RunError):
    """The provider took the spot instance back."""

    exit_code = 61


class LimitReached(RunError):
    """A time, cost or idle limit ended the job."""

    exit_code = 62


class DiskFull(RunError):
    """The machine's disk was nearly full."""

    exit_code = 63


class RunCancelled(RunError):
    """The run was cancelled."""

    exit_code = 64


class RunBusy(RunError):
    """Another costgpu process drives this run."""

    exit_code = 65


class LedgerError(CostGpuError):
    """The ledger cannot be used."""

    exit_code = 70


class LedgerTooNew(LedgerError):
    """The ledger is from a newer costgpu."""

    exit_code = 71


class LedgerDamaged(LedgerError):
    """The ledger is damaged."""

    exit_code = 72


class LedgerConflict(LedgerError):
    """Two processes wrote to the same run.

    Read the run again.
    """

    exit_code = 73


class BudgetError(CostGpuError):
    """There is no such budget, or one with that name exists."""

    exit_code = 79


class BudgetCrossed(BudgetError):
    """`costgpu budget check`: an alert threshold is crossed."""

    exit_code = 80


class BudgetExceeded(BudgetError):
    """`costgpu budget check`: a budget is exceeded; `costgpu run`: refused for that reason."""

    exit_code = 81


class AlertFailed(BudgetError):
    """An alert could not be delivered; the next check tries again."""

    exit_code = 82
