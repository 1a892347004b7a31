"""Diagnostics: checks, each with a time limit, none of which stops the others. Imports `errors` only."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from costgpu.errors import (
    AuthError,
    ConfigError,
    CostGpuError,
    InvalidRequest,
    LedgerError,
    ProviderError,
    QuotaExceeded,
    RefusedHere,
    Unreachable,
)

SECONDS = 30.0  # for one check; Google's library alone takes up to 3 s to import
SKEW_WARNS, SKEW_FAILS = 60.0, 300.0
"""Seconds that a clock may be wrong. AWS takes signed requests for 5 minutes.

Source: AWS Identity and Access Management, "Troubleshoot Signature Version 4 signed requests" (2026-11)."""
ERROR_SEVERITY = (
    AuthError,
    QuotaExceeded,
    InvalidRequest,
    RefusedHere,
    Unreachable,
    ProviderError,
    ConfigError,
    LedgerError,
    CostGpuError,
)
"""The most severe first: what has to be corrected before the rest can be."""


class Status(StrEnum):
    """Result of a check."""

    OK = "ok"
    WARNING = "warning"  # works, and something should be changed
    FAILED = "failed"
    UNKNOWN = "unknown"  # could not be found out, or does not apply


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """Result of one examination."""

    name: str  # name of the check: ``credentials``, ``quota``, ...
    status: Status
    detail: str  # the finding in words
    fix: str = ""  # what to do about it; empty if nothing
    exit_code: int = 0  # exit code of the class of errors that it belongs to; 0 unless it failed


Look = Callable[[], Check]


def ok(name: str, detail: str, fix: str = "") -> Check:
    """Return a check that passed."""
    return Check(name=name, status=Status.OK, detail=detail, fix=fix)


def warning(name: str, detail: str, fix: str) -> Check:
    """Return a check of something that works and should be changed."""
    return Check(name=name, status=Status.WARNING, detail=detail, fix=fix)


def unknown(name: str, detail: str, fix: str = "") -> Check:
    """Return a check without a result."""
    return Check(name=name, status=Status.UNKNOWN, detail=detail, fix=fix)


def failed(name: str, error: CostGpuError) -> Check:
    """Return a check that failed."""
    return Check(name=name, status=Status.FAILED, detail=error.message, fix=error.hint, exit_code=error.exit_code)


def examine(name: str, look: Look, seconds: float = SECONDS) -> Check:
    """Run one check within a time limit; it never raises.

    Args:
        name: Name of the check if `look` raises.
        look: The check itself; its errors become the check's failure.
    """
    found: list[Check] = []

    def work() -> None:
        try:
            found.append(look())
        except CostGpuError as error:
            found.append(failed(name, error))
        except Exception as error:  # noqa: BLE001 - a fault in one check is no reason to withhold the others
            found.append(unknown(name, f"could not be checked: {type(error).__name__}: {' '.join(str(error).split())}"))

    thread = threading.Thread(target=work, name=f"check {name}", daemon=True)
    thread.start()
    thread.join(seconds)
    if found:
        return found[0]
    return failed(name, Unreachable(f"No answer within {seconds:g} s.", hint="Check the network, or try again."))


class Examination:
    """Runs checks one after the other and keeps them; those that need one that failed are left out."""

    def __init__(self, seconds: float = SECONDS) -> None:
        self.checks: list[Check] = []
        self._left_out: list[Check] = []
        self._seconds = seconds

    def add(self, name: str, look: Look, *, after: Sequence[Check] = ()) -> Check:
        """Run one check, or says why not.

        Args:
            after: Checks that must not have failed for this to make sense.
        """
        obstacle = next((each for each in after if each.status is Status.FAILED or each in self._left_out), None)
        if obstacle is not None:
            check = unknown(name, f"not asked: see {obstacle.name}")
            self._left_out.append(check)
        else:
            check = examine(name, look, self._seconds)
        self.checks.append(check)
        return check


def clock_check(whose: str, theirs: datetime, ours: datetime) -> Check:
    """Compare this computer's clock with another one.

    Args:
        whose: Owner of the other clock.
        ours: Time of this computer at the same moment, aware.
    """
    off = (ours - theirs).total_seconds()
    if abs(off) <= SKEW_WARNS:
        return ok("clock", f"within {max(1, round(abs(off)))} s of {whose}'s")
    words = f"this computer's clock is {abs(off):.0f} s {'ahead of' if off > 0 else 'behind'} {whose}'s"
    fix = "Set it: timedatectl set-ntp true (Linux), sntp -sS time.apple.com (macOS)."
    if abs(off) <= SKEW_FAILS:
        return warning("clock", f"{words}; requests are refused from {SKEW_FAILS:.0f} s on", fix)
    why = f"{words}: requests are refused, or leases end at the wrong time"
    return failed("clock", AuthError(why, hint=fix))


def permissions_check(needed: Sequence[str], held: Sequence[str], optional: Sequence[str], fix: str) -> Check:
    """Tell which of the needed permissions are missing.

    Args:
        needed: All permissions that costgpu uses.
        optional: Permissions without which something works less well, or is not offered.
    """
    missing = sorted(set(needed) - set(held))
    grave = [name for name in missing if name not in optional]
    have = f"{len(set(needed)) - len(missing)} of {len(set(needed))}"
    if grave:
        more = (
            f"; and, needed less, {', '.join(n for n in missing if n in optional)}" if len(missing) > len(grave) else ""
        )
        return failed("permissions", AuthError(f"{have} are there; missing: {', '.join(grave)}{more}", hint=fix))
    if missing:
        return warning("permissions", f"{have} are there; runs work without {', '.join(missing)}", fix)
    return ok("permissions", f"all {have.partition(' ')[0]} that costgpu uses are there")


def gravest(checks: Sequence[Check]) -> type[CostGpuError] | None:
    """Return the class of errors that the failed checks amount to; None if nothing failed."""
    codes = {check.exit_code for check in checks if check.status is Status.FAILED}
    return next((kind for kind in ERROR_SEVERITY if codes & _codes(kind)), None)


def _codes(kind: type[CostGpuError]) -> set[int]:
    return {kind.exit_code}.union(*(_codes(sub) for sub in kind.__subclasses__()))
