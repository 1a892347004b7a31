"""`costgpu ledger billed` with several providers, of which one refuses."""

from datetime import UTC, datetime
from decimal import Decimal

import pytest

from costgpu.errors import AuthError, ProviderError, Throttled
from costgpu.providers.base import Bill, BilledRow
from costgpu.workflows.spending import billed
from tests.cli.here import told


class Teller:
    """A provider that tells what it has billed, or refuses at one of the two questions."""

    def __init__(self, name: str, *, kept: ProviderError | None = None, refusal: ProviderError | None = None) -> None:
        self.name, self.usd_per_request = name, Decimal("0.01")
        self._kept, self._refusal = kept, refusal

    def kept(self, start: datetime, end: datetime) -> Bill | None:
        if self._kept:
            raise self._kept
        return self._bill(start, end)

    def billed(self, start: datetime, end: datetime, *, fresh: bool = False) -> Bill:
        if self._kept or self._refusal:
            raise self._kept or self._refusal or AssertionError
        return self._bill(start, end)

    def _bill(self, start: datetime, end: datetime) -> Bill:
        row = BilledRow(run_id=f"of-{self.name}", start=start, end=start.replace(day=2), amount_usd=Decimal("1.25"))
        return Bill(
            provider=self.name,
            account="1",
            start=start,
            end=end,
            rows=(row,),
            asked_at=datetime.now(UTC),
            source=f"{self.name}'s bill",
            requests=0,
        )


def asking(monkeypatch: pytest.MonkeyPatch, *who: Teller) -> None:
    monkeypatch.setattr(billed, "billing_providers", lambda _context: list(who))


@pytest.mark.parametrize("words", [(), ("-y",)])
@pytest.mark.parametrize("where", ["kept", "refusal"])
def test_one_that_refuses_does_not_hide_the_others(
    monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], where: str
) -> None:
    refusal = AuthError("The credentials have expired.", hint="Log in again.")
    asking(monkeypatch, Teller("gcp", **{where: refusal}), Teller("aws"))
    code, out, err = told("ledger", "billed", *words)
    assert code == 41
    assert "of-aws" in out
    assert "$1.25" in out
    assert "of-gcp" not in out
    assert "gcp has not told" in err
    assert "The credentials have expired." in err
    assert "hint: Log in again." in err


def test_all_that_refuse_are_named_and_nothing_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    asking(
        monkeypatch, Teller("aws", refusal=Throttled("Too many questions.")), Teller("gcp", kept=AuthError("Expired."))
    )
    code, out, err = told("ledger", "billed", "-y")
    assert (code, out) == (45, "")
    assert "aws has not told" in err
    assert "gcp has not told what it has billed: Expired." in err
