"""What an estimate says besides its verdict: advice, a GPU of one's own, energy, free notebooks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from costgpu.errors import UsageError
from costgpu.estimate.advice.advise import advise
from costgpu.estimate.buy_vs_rent import OwnershipTerms, find_gpu, ownership
from costgpu.estimate.energy import energy_kwh
from costgpu.estimate.free_notebooks import free_notebooks
from costgpu.estimate.predict import Workload, predict
from costgpu.estimate.verdict import Preferences
from costgpu.models.offer import AcceleratorSpec
from costgpu.models.prediction import Advice, Choice, FreeNotebook, Ownership, Prediction, Verdict
from costgpu.pricing.hardware import accelerators
from costgpu.units import parse_usd
from costgpu.workflows.estimate.request import EstimateRequest
from costgpu.workflows.offers import candidates
from costgpu.workflows.reporter import Reporter


@dataclass(frozen=True, slots=True, kw_only=True)
class Extras:
    """Answers besides the verdict.

    Attributes:
        advice: Changes that would make the job cheaper, best first.
        own: The job on the user's own GPU; None without one.
        notebooks: Free notebook services that lend a GPU.
        energy: kWh of this machine and of each row of the verdict's table; None if not asked for.
    """

    advice: tuple[Advice, ...]
    own: Ownership | None
    notebooks: tuple[FreeNotebook, ...]
    energy: tuple[tuple[Prediction, float], ...] | None


def own_gpu(request: EstimateRequest) -> tuple[AcceleratorSpec, OwnershipTerms] | None:
    """The user's own GPU and what it costs; None without one.

    Raises:
        UsageError: There is no such card or no such price.
    """
    if request.own is None:
        if request.own_price is not None or request.power_price is not None:
            option = "--own-price" if request.own_price is not None else "--power-price"
            raise UsageError(f"{option} is for a GPU of your own.", hint=f'--own "RTX 3090" {option} ...')
        return None
    return find_gpu(request.own, accelerators()), OwnershipTerms(
        price_usd=parse_usd(request.own_price) if request.own_price is not None else None,
        power_usd_per_kwh=float(parse_usd(request.power_price)) if request.power_price is not None else None,
    )


def compute_extras(
    request: EstimateRequest,
    workload: Workload,
    verdict: Verdict,
    offers: Sequence[Prediction],
    preferences: Preferences,
    reporter: Reporter,
) -> Extras:
    """Everything that was asked for besides the verdict."""

    def predictions(gpus: str | None, infra: tuple[str, ...], *, spot: bool) -> list[Prediction]:
        return [predict(workload, place) for place in candidates(gpus, infra, spot=spot, reporter=reporter)]

    narrowed = request.gpus is not None or bool(request.infra)
    wider = predictions(None, (), spot=request.spot) if narrowed else []
    spot_offers = [] if request.spot else predictions(request.gpus, request.infra, spot=True)
    card = own_gpu(request)
    machine = workload.profile.machine
    return Extras(
        advice=tuple(advise(workload, verdict, offers, preferences, spot_offers=spot_offers, wider_offers=wider)),
        own=ownership(workload, *card, verdict) if card is not None else None,
        notebooks=()
        if verdict.choice is Choice.HERE
        else tuple(free_notebooks(workload, workload.scope, accelerators())),
        energy=tuple((p, energy_kwh(p, machine)) for p in (verdict.here, *verdict.table)) if request.energy else None,
    )
