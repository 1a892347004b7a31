"""The error tree. Imports nothing.

    CostGpuError (1)
    ├── UsageError (2)              an argument or option that cannot be meant
    ├── ConfigError (3)             data that ship with the package, or settings, are unusable
    ├── PriceNotFound (4)           no offer has a known price for what was asked
    ├── ProfileError (5)            a workload profile document cannot be read
    ├── CapTooSmall (6)             the cost or time that is allowed does not even boot the machine
    ├── NotConfirmed (7)            the user said no, or nobody was there to say yes
    ├── ScriptError (20)            the user's script could not be measured
    │   ├── ScriptNotFound (21)
    │   ├── NotPython (22)
    │   ├── InterpreterError (23)   the interpreter to measure with cannot be used
    │   ├── ScriptCrashed (24)
    │   ├── MissingImport (25)
    │   ├── NeedsCuda (26)
    │   ├── WaitsForInput (27)
    │   ├── NoTrainingStep (28)     no optimizer step within the limit
    │   ├── NothingToMeasure (29)   the script ended without an optimizer step
    │   ├── OutOfMemory (30)
    │   ├── KilledBySignal (31)
    │   ├── WouldHarmFiles (32)     the script insists on a change that would lose the user's data
    │   └── NoProgressLines (33)    the program printed nothing that tells its progress
    ├── ProviderError (40)          the provider refused or failed, in a way that has no name of its own
    │   ├── AuthError (41)          no credentials, expired ones, or without the permission
    │   ├── NoCapacity (42)         the provider has no such machine free there now
    │   ├── QuotaExceeded (43)      the account may not have so much
    │   ├── InvalidRequest (44)     no such region, type, image, subnet, ...
    │   ├── Throttled (45)          too many requests; worth repeating
    │   ├── Unreachable (46)        no answer: the request may or may not have been carried out
    │   ├── TerminationUnconfirmed (47)  an instance may still be billing
    │   └── OrphansFound (48)       something of ours was billed that nobody wanted any more
    ├── RunError (50)               a run ended without its job's own exit code
    │   ├── RunNotFound (51)
    │   ├── BootFailed (52)         the machine did not come up, or SSH did not
    │   ├── HostUnreachable (53)    the connection to the machine is lost
    │   ├── HostKeyMismatch (54)    whoever answers is not the machine that was created
    │   ├── MachineUnusable (55)    the image lacks what a run needs
    │   ├── SyncRefused (56)        the working folder cannot be sent as it is
    │   ├── SetupFailed (57)
    │   ├── OutputsMissing (58)     outputs that were asked for are not there, or cannot be read
    │   ├── OutputsDamaged (59)     a checksum does not match
    │   ├── InstanceLost (60)       it was terminated by somebody or something else
    │   ├── Preempted (61)
    │   ├── LimitReached (62)       deadline, cost, idleness
    │   ├── DiskFull (63)
    │   ├── RunCancelled (64)
    │   └── RunBusy (65)            another costgpu process drives this run
    ├── LedgerError (70)            the record of runs cannot be used
    │   ├── LedgerTooNew (71)
    │   ├── LedgerDamaged (72)
    │   └── LedgerConflict (73)     another process has appended to the run meanwhile
    └── BudgetError (79)            a budget is not what it should be
        ├── BudgetCrossed (80)      an alert threshold below 100 % is crossed
        ├── BudgetExceeded (81)     more is spent than the budget allows
        └── AlertFailed (82)        an alert could not be delivered; the next check tries again

A job that was run ends with its own exit code, whatever that is.
Exit code 130 is Ctrl-C, as in a shell. Codes are part of the interface: they are unique and never reused.
"""

from __future__ import annotations

from typing import ClassVar

EXIT_INTERRUPTED = 130


class CostGpuError(Exception):
    """Base of every error that costgpu raises on purpose.

    Attributes:
        message: What happened, where, and the value with its unit.
        hint: What the user can do about it; empty if there is nothing to say.
        exit_code: The exit status of the command line for this class.
    """

    exit_code: ClassVar[int] = 1

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class UsageError(CostGpuError):
    """An argument or option that cannot be meant as it stands."""

    exit_code = 2


class ConfigError(CostGpuError):
    """Shipped data or settings are unusable."""

    exit_code = 3


class PriceNotFound(CostGpuError):
    """No offer with a known price matches."""

    exit_code = 4


class ProfileError(CostGpuError):
    """A workload profile document is damaged or from a newer version."""

    exit_code = 5


class ScriptError(CostGpuError):
    """The user's script could not be measured."""

    exit_code = 20


class ScriptNotFound(ScriptError):
    """There is no such script or module."""

    exit_code = 21


class NotPython(ScriptError):
    """The file is not Python source that this interpreter can compile."""

    exit_code = 22


class InterpreterError(ScriptError):
    """The interpreter to measure with is missing, too old, or does not start."""

    exit_code = 23


class ScriptCrashed(ScriptError):
    """The script raised, or exited with a failure."""

    exit_code = 24


class MissingImport(ScriptError):
    """The script imports something that the interpreter does not have."""

    exit_code = 25


class NeedsCuda(ScriptError):
    """The script refuses to run without a CUDA device."""

    exit_code = 26


class WaitsForInput(ScriptError):
    """The script reads standard input, which is empty during a measurement."""

    exit_code = 27


class NoTrainingStep(ScriptError):
    """No optimizer step and no backward pass within the time limit."""

    exit_code = 28


class NothingToMeasure(ScriptError):
    """The script ended normally without one optimizer step or backward pass."""

    exit_code = 29


class OutOfMemory(ScriptError):
    """The script ran out of memory on this machine."""

    exit_code = 30


class KilledBySignal(ScriptError):
    """A signal that costgpu did not send ended the script."""

    exit_code = 31


class WouldHarmFiles(ScriptError):
    """The script insists on a change that cannot be diverted from the user's own data."""

    exit_code = 32


class NoProgressLines(ScriptError):
    """The program printed no line that tells its progress, or none that the user's pattern matches."""

    exit_code = 33


class CapTooSmall(CostGpuError):
    """The cost or time that is allowed would be used up before the job starts."""

    exit_code = 6


class NotConfirmed(CostGpuError):
    """The plan was not agreed to."""

    exit_code = 7


class ProviderError(CostGpuError):
    """A provider refused or failed. An unknown failure is this, and never `NoCapacity`."""

    exit_code = 40


class AuthError(ProviderError):
    """Credentials are missing, expired, or lack a permission."""

    exit_code = 41


class NoCapacity(ProviderError):
    """The provider has no such machine free in that place now."""

    exit_code = 42


class QuotaExceeded(ProviderError):
    """The account's quota does not allow it."""

    exit_code = 43


class InvalidRequest(ProviderError):
    """The provider does not know what was named."""

    exit_code = 44


class Throttled(ProviderError):
    """Too many requests."""

    exit_code = 45


class Unreachable(ProviderError):
    """No answer came: the request may or may not have been carried out."""

    exit_code = 46


class TerminationUnconfirmed(ProviderError):
    """The provider has not confirmed that the instance is gone: it may be billing."""

    exit_code = 47


class OrphansFound(ProviderError):
    """Machines or other things of ours were there, and billed, that no run wanted any more."""

    exit_code = 48


class RunError(CostGpuError):
    """A run ended without its job's own exit code."""

    exit_code = 50


class RunNotFound(RunError):
    """No run, or more than one, is meant by that name."""

    exit_code = 51


class BootFailed(RunError):
    """The machine did not come up, or never answered."""

    exit_code = 52


class HostUnreachable(RunError):
    """The connection to the machine is lost, for now or for good."""

    exit_code = 53


class HostKeyMismatch(RunError):
    """Whoever answers at the address is not the machine that was created."""

    exit_code = 54


class MachineUnusable(RunError):
    """The machine lacks what a run needs, such as Python."""

    exit_code = 55


class SyncRefused(RunError):
    """The working folder cannot be sent as it is."""

    exit_code = 56


class SetupFailed(RunError):
    """The set-up command failed; the job was not started."""

    exit_code = 57


class OutputsMissing(RunError):
    """The job ended, but outputs that were asked for are not there, or cannot be read."""

    exit_code = 58


class OutputsDamaged(RunError):
    """A file arrived with another checksum than it had on the machine."""

    exit_code = 59


class InstanceLost(RunError):
    """The instance was ended by somebody or something else."""

    exit_code = 60


class Preempted(RunError):
    """The provider took the spot instance back."""

    exit_code = 61


class LimitReached(RunError):
    """The deadline, the cost limit or the idle limit ended the job."""

    exit_code = 62


class DiskFull(RunError):
    """The disk of the machine was nearly full."""

    exit_code = 63


class RunCancelled(RunError):
    """The user cancelled the run."""

    exit_code = 64


class RunBusy(RunError):
    """Another process of costgpu drives this run."""

    exit_code = 65


class LedgerError(CostGpuError):
    """The record of runs cannot be used."""

    exit_code = 70


class LedgerTooNew(LedgerError):
    """The ledger was written by a newer costgpu."""

    exit_code = 71


class LedgerDamaged(LedgerError):
    """The ledger cannot be read."""

    exit_code = 72


class LedgerConflict(LedgerError):
    """Another process has appended to the same run meanwhile: read it again."""

    exit_code = 73


class BudgetError(CostGpuError):
    """A budget is unknown, or exists already."""

    exit_code = 79


class BudgetCrossed(BudgetError):
    """A threshold below 100 % is crossed."""

    exit_code = 80


class BudgetExceeded(BudgetError):
    """More is spent than the budget allows; or a run is refused because of that."""

    exit_code = 81


class AlertFailed(BudgetError):
    """An alert could not be delivered; the next check tries again."""

    exit_code = 82
