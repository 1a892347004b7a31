"""Whether a run would work from here: every cloud side by side, and this computer."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import replace

from costgpu.config import data_folder
from costgpu.errors import AuthError, ConfigError, CostGpuError, PriceNotFound, UsageError
from costgpu.models.diagnostics import Check, failed, unknown
from costgpu.models.offer import Offer, PurchaseOption
from costgpu.pricing.catalog import query_current
from costgpu.pricing.query import OfferQuery
from costgpu.providers import registry
from costgpu.providers.spec import ProviderConfig, ProviderSpec
from costgpu.render.text.doctor import Place
from costgpu.units import AcceleratorRequest, parse_accelerator
from costgpu.workflows.computer_checks import own_checks
from costgpu.workflows.context import AppContext
from costgpu.workflows.reporter import Reporter

LEAST_MEMORY_GIB = 4.0  # of the machine that is looked at where none is named


def examine(
    context: AppContext, infra: Sequence[str], instance_type: str | None, gpus: str | None, *, spot: bool
) -> list[Place]:
    """This computer, and the clouds that were named or can be examined; the clouds are asked side by side."""
    names = _places(infra) if infra else [spec.name for spec in clouds()]
    offers = _offers(names, instance_type, gpus, spot=spot, asked=bool(infra), reporter=context.reporter)
    found: dict[str, Sequence[Check]] = {}

    def ask(place: str) -> None:
        found[place] = cloud_checks(context, place.partition("/")[0], offers[place], asked=bool(infra))

    threads = [threading.Thread(target=ask, args=(place,), name=place, daemon=True) for place in names]
    for thread in threads:
        thread.start()
    here = Place(name="this computer", checks=own_checks(context))
    for thread in threads:
        thread.join()
    return [here, *(Place(name=place, checks=found[place], offer=offers[place]) for place in names)]


def permissions(provider: str) -> str:
    """The least permissions that are enough, as the provider takes them."""
    policies = {spec.name: spec.policy for spec in registry.specs() if spec.policy is not None}
    if provider not in policies:
        raise UsageError(f"--policy {provider}: there is none.", hint=f"Use {' or '.join(policies)}.")
    return policies[provider]()


def _places(infra: Sequence[str]) -> list[str]:
    """The places to ask, as they were named, without this computer."""
    for place in infra:
        name, sign, region = place.partition("/")
        if registry.find(name) is None or (sign and (not region or "/" in region or name == "local")):
            raise UsageError(f"--infra {place} is not a place.", hint="Such as aws, gcp/us-central1 or local.")
    return [place for place in dict.fromkeys(infra) if place != "local"]


def _offers(
    places: list[str], instance_type: str | None, gpus: str | None, *, spot: bool, asked: bool, reporter: Reporter
) -> dict[str, Offer | None]:
    """The machine to ask about in each place. Places that were named must have it; of the others, one of them."""
    if instance_type is not None and gpus is not None:
        raise UsageError("-t and --gpus contradict each other.", hint="A machine type has its accelerators.")
    found: dict[str, Offer | None] = {}
    errors: list[PriceNotFound] = []
    for place in places:
        try:
            found[place] = _wanted(place, instance_type, gpus, spot=spot, reporter=reporter)
        except PriceNotFound as error:
            found[place] = None
            errors.append(error)
    if errors and (asked or len(errors) == len(places)):
        raise errors[0]
    return found


def _wanted(place: str, instance_type: str | None, gpus: str | None, *, spot: bool, reporter: Reporter) -> Offer | None:
    """The cheapest offer of what was asked for; None if nothing was.

    Raises:
        PriceNotFound: There is none.
        UsageError: The accelerator is not one.
    """
    provider, _, region = place.partition("/")
    if not (region or instance_type or gpus):
        return None
    any_machine = not (instance_type or gpus)
    query = OfferQuery(
        accelerator=parse_accelerator(gpus) if gpus else AcceleratorRequest(none=True) if any_machine else None,
        infra=(provider,),
        purchase_options=(PurchaseOption.SPOT if spot else PurchaseOption.ON_DEMAND,),
    )
    found = [
        offer
        for offer in query_current(query, reporter.note)
        if (instance_type is None or offer.instance_type == instance_type.lower())
        and (not any_machine or (offer.memory_gib >= LEAST_MEMORY_GIB and offer.architecture == "x86_64"))
    ]
    if not found:
        raise PriceNotFound(
            f"There is no offer of {instance_type} on {provider}.",
            hint=f"costgpu offers --infra {provider} lists them.",
        )
    if not region:
        return found[0]
    # A region without a price may still exist: the provider is asked, and says what is wrong with it.
    return next((offer for offer in found if offer.region == region), replace(found[0], region=region, zone=None))


def clouds() -> tuple[ProviderSpec, ...]:
    """The providers that can be examined."""
    return tuple(spec for spec in registry.specs() if spec.diagnostics is not None)


def cloud_checks(context: AppContext, name: str, offer: Offer | None, *, asked: bool) -> Sequence[Check]:
    """What is found of one provider; never raises.

    Args:
        context: Clock and settings. Settings that cannot be read count as not set: the checks of this computer say so.
        name: Name of the provider.
        offer: The machine that is wanted; None if none was named.
        asked: Whether the user has named this provider; else it may well be one without credentials.
    """
    spec = registry.spec(name)
    if not spec.has_credentials():
        if asked:
            return [failed("credentials", AuthError(f"There are none for {name} here.", hint=f"{spec.login_hint}."))]
        return [unknown("credentials", f"none here; to get some: {spec.login_hint}")]
    try:
        config = context.provider_config(name)
    except ConfigError:
        config = ProviderConfig(clock=context.clock, data_folder=data_folder)
    try:
        return spec.diagnostics(config).examine(offer) if spec.diagnostics is not None else []
    except CostGpuError as error:
        return [failed("credentials", error)]
    except Exception as error:  # noqa: BLE001 - a profile that does not exist, a damaged file: boto3 has its own kinds
        return [failed("credentials", AuthError(" ".join(str(error).split()), hint=f"{spec.login_hint}."))]
