"""The error tree. Imports nothing.

    CostGpuError (1)
    ├── UsageError (2)              an argument or option that cannot be meant
    ├── ConfigError (3)             data that ship with the package, or settings, are unusable
    ├── PriceNotFound (4)           no offer has a known price for what was asked
    ├── ProfileError (5)            a workload profile document cannot be read
    └── ScriptError (20)            the user's script could not be measured
        ├── ScriptNotFound (21)
        ├── NotPython (22)
        ├── InterpreterError (23)   the interpreter to measure with cannot be used
        ├── ScriptCrashed (24)
        ├── MissingImport (25)
        ├── NeedsCuda (26)
        ├── WaitsForInput (27)
        ├── NeverStepped (28)       no optimizer step within the limit
        ├── NothingToMeasure (29)   the script ended without an optimizer step
        ├── OutOfMemory (30)
        ├── KilledBySignal (31)
        └── WouldHarmFiles (32)     the script insists on a change that would lose the user's data

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


class NeverStepped(ScriptError):
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
