"""Whether a run would work from here: every cloud side by side, and this computer."""

from __future__ import annotations

import os
import platform
import stat
import threading
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import platformdirs

from costgpu.config import config_file, data_folder, ledger_url
from costgpu.config.paths import data_path
from costgpu.config.settings_files import PREFIX, user_file
from costgpu.errors import AuthError, ConfigError, CostGpuError, LedgerError, PriceNotFound, UsageError
from costgpu.models.diagnostics import Check, Examination, failed, ok, unknown, warning
from costgpu.models.offer import Offer, PurchaseOption
from costgpu.pricing import price_store
from costgpu.pricing.catalog import Catalog
from costgpu.pricing.not_supported import place_error
from costgpu.pricing.query import OfferQuery
from costgpu.providers import registry
from costgpu.providers.spec import ProviderConfig, ProviderSpec
from costgpu.render.text.doctor import PlaceReport
from costgpu.units import AcceleratorRequest, NumberRange, parse_accelerator
from costgpu.version import __version__
from costgpu.workflows.context import AppContext
from costgpu.workflows.offers import has_image
from costgpu.workflows.reporter import Reporter

LEAST_MEMORY_GIB = 4.0  # of the machine that is looked at where none is named
SMALLEST_MEMORY_GIB = 1.0  # of the one that is created to look at it


def examine(
    context: AppContext,
    infra: Sequence[str],
    instance_type: str | None,
    gpus: str | None,
    *,
    spot: bool,
    smallest: bool = False,
) -> list[PlaceReport]:
    """Return this computer, and the clouds that were named or can be examined; the clouds are asked side by side.

    Args:
        smallest: Whether to look at the cheapest machine of each place where none is named.
    """
    names = _places(infra) if infra else [spec.name for spec in clouds()]
    if instance_type is not None and gpus is not None:
        raise UsageError("-t and --gpus contradict each other.", hint="A machine type has its accelerators.")
    offers: dict[str, Offer | None] = {}
    errors: list[PriceNotFound] = []
    for place in names:
        try:
            offers[place] = _offer(place, instance_type, gpus, context.reporter, spot=spot, smallest=smallest)
        except PriceNotFound as error:
            offers[place] = None
            errors.append(error)
    if errors and (infra or len(errors) == len(names)):  # places that were named must have it; of the others, one
        raise errors[0]
    found: dict[str, Sequence[Check]] = {}

    def ask(place: str) -> None:
        found[place] = cloud_checks(context, place.partition("/")[0], offers[place], asked=bool(infra))

    threads = [threading.Thread(target=ask, args=(place,), name=place, daemon=True) for place in names]
    for thread in threads:
        thread.start()
    here = PlaceReport(name="this computer", checks=own_checks(context))
    for thread in threads:
        thread.join()
    return [here, *(PlaceReport(name=place, checks=found[place], offer=offers[place]) for place in names)]


def permissions(provider: str) -> str:
    """Return the least permissions that are enough, as the provider takes them."""
    policies = {spec.name: spec.policy_file for spec in registry.specs() if spec.policy_file is not None}
    if provider not in policies:
        raise UsageError(f"--policy {provider}: there is none.", hint=f"Use {' or '.join(policies)}.")
    return policies[provider].read_text(encoding="utf-8")


def _places(infra: Sequence[str]) -> list[str]:
    """Return the places to ask, as they were named, without this computer."""
    regions: dict[str, set[str]] = {}
    for offer in price_store.list_offers() if infra else ():
        regions.setdefault(offer.provider, set()).add(offer.region)
    for place in infra:
        name, sign, region = place.partition("/")
        if (error := place_error(place, regions)) is not None:
            raise error
        if registry.find(name) is None or (sign and (not region or "/" in region or registry.is_here(name))):
            raise UsageError(f"--infra {place} is not a place.", hint="Such as aws, gcp/us-central1 or local.")
    return [place for place in dict.fromkeys(infra) if not registry.is_here(place)]


def _offer(
    place: str, instance_type: str | None, gpus: str | None, reporter: Reporter, *, spot: bool, smallest: bool
) -> Offer | None:
    """Return the cheapest offer of what was asked for; None if nothing was.

    Raises:
        PriceNotFound: There is none.
        UsageError: The accelerator is not one.
    """
    provider, _, region = place.partition("/")
    if not (region or instance_type or gpus or smallest):
        return None
    least_gib = SMALLEST_MEMORY_GIB if smallest else LEAST_MEMORY_GIB
    any_machine = not (instance_type or gpus)
    query = OfferQuery(
        accelerator=parse_accelerator(gpus) if gpus else AcceleratorRequest(none=True) if any_machine else None,
        infra=(provider,),
        purchase_options=(PurchaseOption.SPOT if spot else PurchaseOption.ON_DEMAND,),
        instance_type=instance_type,
        memory=NumberRange(least_gib, None) if any_machine else None,
        architecture="x86_64" if any_machine else None,
    )
    found = Catalog.current(reporter.note, has_image=has_image).query(query)
    if not region:
        return found[0]
    # A region without a price may still exist: the provider is asked, and says what is wrong with it.
    return next((offer for offer in found if offer.region == region), replace(found[0], region=region, zone=None))


def clouds() -> tuple[ProviderSpec, ...]:
    """Return the providers that can be examined."""
    return tuple(spec for spec in registry.specs() if spec.diagnostics is not None)


def cloud_checks(context: AppContext, name: str, offer: Offer | None, *, asked: bool) -> Sequence[Check]:
    """Return what is found of one provider; never raises.

    Args:
        context: Clock and settings. Settings that cannot be read count as not set: the checks of this computer say so.
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


def own_checks(context: AppContext) -> Sequence[Check]:
    """Return what is found of this computer."""
    done = Examination()
    done.add("python", lambda: ok("python", f"{platform.python_version()}, costgpu {__version__}"))
    done.add("settings", lambda: _settings(context))
    done.add("isolation", _isolation)
    done.add("data folder", _data_folder)
    done.add("ledger", _ledger)
    done.add("alerts", _alerts)
    done.add("cron", _cron)
    return done.checks


def _isolation() -> Check:
    """Return how far the user's files are out of reach of the programs that `costgpu estimate` measures."""
    from costgpu.measure.isolation.levels import MEANINGS, Isolation
    from costgpu.measure.isolation.start import examine_isolation

    cache = platformdirs.user_cache_path("costgpu")
    try:
        level, refused = examine_isolation(cache)
    except OSError as error:
        raise ConfigError(f"{cache} may not be written: {error.strerror}.", hint="Set XDG_CACHE_HOME.") from error
    detail = f"{level}. {MEANINGS[level]}"
    if level is not Isolation.COPY:
        return ok("isolation", detail, "; ".join(f"Not {stronger}: {why}" for stronger, why in refused.items()))
    why = "; ".join(f"{stronger}: {reason}" for stronger, reason in refused.items())
    return warning("isolation", detail, f"Measure where user namespaces or Landlock are allowed ({why}).")


def _settings(context: AppContext) -> Check:
    settings = context.settings
    file = config_file()
    where = str(file) if file.is_file() else f"no file {file}; defaults and variables count"
    return ok("settings", f"{where}; machines may live {settings.max_lease_hours:g} h")


def _data_folder() -> Check:
    folder = data_path()
    if not folder.exists():
        near = next(parent for parent in folder.parents if parent.exists())
        if not os.access(near, os.W_OK | os.X_OK):
            raise ConfigError(f"{folder} cannot be made: {near} may not be written.", hint="Set XDG_DATA_HOME.")
        return ok("data folder", f"{folder} is made, for you alone, when the first run needs it")
    found = folder.stat()
    if not stat.S_ISDIR(found.st_mode):
        raise ConfigError(f"{folder} is not a folder.", hint="Move it away, or set XDG_DATA_HOME.")
    if hasattr(os, "geteuid") and found.st_uid != os.geteuid():
        raise ConfigError(
            f"{folder} belongs to another user (number {found.st_uid}).",
            hint="Set XDG_DATA_HOME to a folder of your own.",
        )
    if not os.access(folder, os.W_OK | os.X_OK):
        raise ConfigError(f"{folder} may not be written.", hint=f"chmod 700 {folder}")
    if stat.S_IMODE(found.st_mode) & 0o077:
        return warning("data folder", f"others may look into {folder}, where keys of runs are", f"chmod 700 {folder}")
    return ok("data folder", f"{folder}, for you alone")


def _ledger() -> Check:
    """Read it; whether it can be written is asked of the system, so that nothing is changed."""
    from costgpu.ledger import Ledger

    with Ledger.open(ledger_url()) as ledger:
        place, runs = ledger.place, len(ledger.recent_runs())
    if "://" in place:
        return ok("ledger", f"{place} answers (whether it can be written, only a run tells)")
    file = Path(place)
    if not file.exists():
        return ok("ledger", f"{file} is made by the first run")
    if not (os.access(file, os.W_OK) and os.access(file.parent, os.W_OK)):
        raise LedgerError(f"The ledger {file} may not be written.", hint="No run starts without it: chmod u+w.")
    return ok("ledger", f"{file} can be read and written ({runs}{'+' if runs >= 50 else ''} runs)")


def _alerts() -> Check:
    file = user_file()
    if "alert_urls" not in file.values or file.path is None:
        if os.environ.get(f"{PREFIX}ALERT_URLS"):
            return ok("alerts", f"addresses in {PREFIX}ALERT_URLS; costgpu budget test-alert tries them")
        return ok("alerts", "no alert_urls: budget alerts are printed, and sent to nobody")
    if stat.S_IMODE(file.path.stat().st_mode) & 0o077:
        return warning("alerts", f"others may read {file.path}, which holds secrets", f"chmod 600 {file.path}")
    return ok("alerts", f"addresses in {file.path}, for you alone; costgpu budget test-alert tries them")


def _cron() -> Check:
    from costgpu.alert import crontab

    advice = "costgpu budget cron --reap --install ends by itself what has outlived its lease."
    try:
        table = crontab.read()
        installed = crontab.remove(table) != table
    except ConfigError as error:
        return unknown("cron", error.message)
    if installed:
        return ok("cron", "costgpu looks after budgets by itself")
    return ok("cron", "costgpu does nothing by itself: no line of it in your crontab", advice)
