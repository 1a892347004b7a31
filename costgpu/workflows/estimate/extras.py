"""What an estimate says beside its verdict: advice, a GPU of one's own, energy, free notebooks, the page. Imports lazily."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from costgpu.errors import UsageError

if TYPE_CHECKING:
    from datetime import date

    from costgpu.estimate.buy_vs_rent import OwnershipTerms
    from costgpu.estimate.predict import Workload
    from costgpu.estimate.verdict import Preferences
    from costgpu.models.offer import AcceleratorSpec
    from costgpu.models.prediction import Advice, FreeNotebook, Ownership, Prediction, Verdict


@dataclass(slots=True)
class Besides:
    """What was asked for, and, after `weigh`, what came of it.

    Attributes:
        card: The user's own GPU; None without one.
        terms: What it and its electricity cost.
        energy: Whether kWh are shown.
        chart: Whether bars are drawn.
        report: Where the page goes; None for none.
        force: Whether it may replace a file.
        advice: What would make it cheaper.
        own: The job on the own GPU.
        notebooks: Free tiers that it fits.
        rows: Name and kWh of this machine and of each row of the table.
    """

    card: AcceleratorSpec | None = None
    terms: OwnershipTerms | None = None
    energy: bool = False
    chart: bool = False
    report: Path | None = None
    force: bool = False
    advice: tuple[Advice, ...] = ()
    own: Ownership | None = None
    notebooks: tuple[FreeNotebook, ...] = ()
    rows: list[tuple[str, float]] = field(default_factory=list)
    verdict: Verdict | None = None

    @classmethod
    def asked(
        cls,
        *,
        own: str | None,
        own_price: str | None,
        power_price: str | None,
        energy: bool,
        chart: bool,
        report: str | None,
        force: bool,
    ) -> Besides:
        """From the options; a wrong one is an error before anything is measured.

        Raises:
            UsageError: No such card, no such price, or a file that must not be replaced.
        """
        from costgpu.estimate.buy_vs_rent import OwnershipTerms, find_gpu
        from costgpu.pricing.hardware import accelerators
        from costgpu.units import parse_usd
        from costgpu.workflows.write_file import check_target

        if own is None and (own_price is not None or power_price is not None):
            word = "--own-price" if own_price is not None else "--power-price"
            raise UsageError(f"{word} is for a GPU of your own.", hint=f'--own "RTX 3090" {word} ...')
        card = find_gpu(own, accelerators()) if own is not None else None
        terms = (
            OwnershipTerms(
                price_usd=parse_usd(own_price) if own_price is not None else None,
                power_usd_per_kwh=float(parse_usd(power_price)) if power_price is not None else None,
            )
            if card is not None
            else None
        )
        if report is not None:
            check_target(Path(report), force=force)
        elif force:
            raise UsageError("--force is for --report.", hint="A saved profile is replaced without it.")
        return cls(card, terms, energy, chart, Path(report) if report is not None else None, force)

    def weigh(
        self,
        workload: Workload,
        verdict: Verdict,
        offers: Sequence[Prediction],
        preferences: Preferences,
        today: date,
        *,
        gpus: str | None,
        infra: tuple[str, ...],
        spot: bool,
    ) -> None:
        """Computes all of it, and writes the page if one was asked for."""
        from costgpu.estimate.advice.advise import advise
        from costgpu.estimate.buy_vs_rent import ownership
        from costgpu.estimate.energy import energy_kwh
        from costgpu.estimate.free_notebooks import free_notebooks
        from costgpu.estimate.predict import predict
        from costgpu.models.prediction import Choice
        from costgpu.pricing.hardware import accelerators
        from costgpu.render.phrases import offer_name
        from costgpu.workflows.estimate.measure import candidates

        def predicted(wanted: str | None, places: tuple[str, ...], *, on_spot: bool) -> list[Prediction]:
            return [predict(workload, place) for place in candidates(wanted, places, spot=on_spot)]

        self.verdict = verdict
        wider = predicted(None, (), on_spot=spot) if gpus is not None or infra else []
        cheaper = [] if spot else predicted(gpus, infra, on_spot=True)
        self.advice = advise(workload, verdict, offers, preferences, spot_offers=cheaper, wider_offers=wider)
        if self.card is not None and self.terms is not None:
            self.own = ownership(workload, self.card, self.terms, verdict)
        if self.energy:
            machine = workload.profile.machine
            self.rows = [(offer_name(p), energy_kwh(p, machine)) for p in (verdict.here, *verdict.table)]
        if verdict.choice is not Choice.HERE:
            self.notebooks = tuple(free_notebooks(workload, workload.scope, accelerators()))
        if self.report is not None:
            self._write(workload, verdict, today)

    def _write(self, workload: Workload, verdict: Verdict, today: date) -> None:
        from costgpu import __version__
        from costgpu.render.html.verdict_page import verdict_html
        from costgpu.render.text.advice import sentences
        from costgpu.render.text.buy_vs_rent import notebook_lines
        from costgpu.workflows.write_file import write_file

        assert self.report is not None  # noqa: S101 - the caller's condition
        page = verdict_html(
            verdict,
            workload.profile,
            [" ".join(sentences(one)) for one in self.advice],
            today,
            own=self.own,
            notebooks=notebook_lines(self.notebooks),
            energy=[kwh for _, kwh in self.rows] if self.energy else None,
            version=__version__,
        )
        write_file(self.report, [page], force=self.force)
        typer.echo(f"The page: {self.report}", err=True)

    def texts(self, encoding: str) -> list[str]:
        """Blocks for the terminal, in their order; none that is empty."""
        from costgpu.render.text.advice import advice_lines
        from costgpu.render.text.buy_vs_rent import energy_text, notebook_text, own_text
        from costgpu.render.text.text_chart import bars

        assert self.verdict is not None  # noqa: S101 - after weigh()
        unit = self.verdict.unit
        found = [
            bars(self.verdict, encoding=encoding) if self.chart else "",
            "\n".join(advice_lines(self.advice, unit=unit)),
            own_text(self.own, unit) if self.own is not None else "",
            energy_text(self.rows) if self.rows else "",
            notebook_text(self.notebooks) if self.notebooks else "",
        ]
        return [text for text in found if text]

    def documents(self) -> dict[str, Any]:
        """The same for a JSON document."""
        from costgpu.render.text.advice import advice_values
        from costgpu.render.text.buy_vs_rent import notebook_values, own_value

        found: dict[str, Any] = {
            "advice": advice_values(self.advice),
            "own": own_value(self.own) if self.own is not None else None,
            "free_notebooks": notebook_values(self.notebooks),
        }
        if self.energy:
            found["energy_kwh"] = [{"where": name, "kwh": kwh} for name, kwh in self.rows]
        return found
