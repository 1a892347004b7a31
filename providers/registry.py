"""The providers by name: those of costgpu, and those that other packages register. Loads specs, never adapters.

Another package registers a provider by an entry point in the group ``costgpu.providers`` whose object is a
`ProviderSpec`. Entry points are read only if a name is unknown, or all providers are listed.
"""

from __future__ import annotations

import contextlib
import sys
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from costgpu.errors import ConfigError, CostGpuError, InvalidRequest, PriceNotFound
from costgpu.providers.spec import ProviderSetting, ProviderSpec

if TYPE_CHECKING:
    from costgpu.models.offer import Offer
    from costgpu.models.provider_costs import ProviderCosts
    from costgpu.providers.base import Bucket

GROUP = "costgpu.providers"
BUILT_IN = {
    "aws": "costgpu.providers.aws:SPEC",
    "gcp": "costgpu.providers.gcp:SPEC",
    "local": "costgpu.providers.local:SPEC",
}
_registered: dict[str, ProviderSpec] = {}


def register(spec: ProviderSpec) -> None:
    """Add a provider to this process only, as tests and notebooks do."""
    _registered[spec.name] = spec


def find(name: str) -> ProviderSpec | None:
    """Return the spec of that name; None if there is no such provider.

    Raises:
        ConfigError: Another package registers that name, and its spec cannot be loaded.
    """
    if name in BUILT_IN or name in _registered:
        return _registered.get(name) or _built_in(name)
    place = _entry_points().get(name)
    return _load(name, place) if place is not None else None


def spec(name: str) -> ProviderSpec:
    """Return the spec of that name.

    Raises:
        InvalidRequest: There is no such provider.
        ConfigError: As for `find`.
    """
    found = find(name)
    if found is None:
        names = ", ".join(sorted({*BUILT_IN, *_registered, *_entry_points()}))
        raise InvalidRequest(f"There is no provider {name!r}.", hint=f"costgpu knows {names}.")
    return found


def specs() -> tuple[ProviderSpec, ...]:
    """Return every provider that can be loaded: clouds first, by name, then this computer."""
    found = {name: _built_in(name) for name in BUILT_IN} | _plugins()[0] | _registered
    return tuple(sorted(found.values(), key=lambda one: (not one.over_ssh, one.name)))


def is_here(name: str) -> bool:
    """Return whether this provider's only machine is this computer as it is; False for a provider that is not known."""
    return (found := _known(name)) is not None and found.own_offer is not None


def label(name: str) -> str:
    """Return what machines of this provider are called instead of their type; empty for the type."""
    return found.label if (found := _known(name)) is not None else ""


def this_computer() -> ProviderSpec:
    """Return the provider whose only machine is this computer as it is."""
    return _built_in("local")


def _known(name: str) -> ProviderSpec | None:
    try:
        return find(name)
    except ConfigError:
        return None


def load_failures() -> dict[str, str]:
    """Return providers of other packages that cannot be loaded -> why.

    Machines there are seen by nobody: whoever asks says so.
    """
    return _plugins()[1]


def has_credentials(spec: ProviderSpec) -> bool:
    """Return whether it makes sense to ask this provider.

    Raises:
        ConfigError: It fails to say; the code of another package must not keep anybody from asking the others.
    """
    try:
        return spec.has_credentials()
    except CostGpuError:
        raise
    except Exception as error:
        raise ConfigError(f"The provider {spec.name} fails: {type(error).__name__}: {error}.") from error


def names() -> tuple[str, ...]:
    """Their names, in the same order."""
    return tuple(one.name for one in specs())


def settings() -> dict[str, ProviderSetting]:
    """Return the settings of all providers by their full names, such as ``aws_subnet``."""
    return {f"{one.name}_{key}": setting for one in specs() for key, setting in one.settings.items()}


def settings_of_option(option: str, value: object) -> dict[str, object]:
    """Return the value of an option of `costgpu run` for each setting that it sets; None is not given."""
    return {name: value for name, setting in settings().items() if setting.option == option}


def needs_own_image(offer: Offer) -> bool:
    """Return whether no public image boots the offer's machine: see `ProviderSpec.needs_own_image`."""
    found = find(offer.provider)
    return found is not None and found.needs_own_image(offer)


def image_setting(name: str) -> str:
    """Name of the provider's setting for an image of the user's own."""
    return f"{name}_image"


def costs(name: str) -> ProviderCosts:
    """Return what a disk and an address cost there.

    Raises:
        PriceNotFound: Nobody knows.
    """
    found = find(name)
    if found is None or found.costs is None:
        raise PriceNotFound(
            f"What the disk of a machine on {name} costs is not known.", hint="Its ProviderSpec must say so (costs)."
        )
    return found.costs


def bucket(url: str) -> Bucket:
    """Return the bucket of that URL.

    Raises:
        InvalidRequest: No provider has such buckets.
    """
    scheme, sign, _ = url.partition("://")
    known = {one.bucket_scheme: one.bucket for one in specs() if one.bucket is not None}
    if sign and scheme in known:
        return known[scheme](url)
    forms = " or ".join(f"{name}://name/prefix" for name in known)
    raise InvalidRequest(f"{url} is not a bucket that costgpu knows.", hint=f"Write {forms}.")


@cache
def _built_in(name: str) -> ProviderSpec:
    return _load(name, BUILT_IN[name])


def _load(name: str, place: str) -> ProviderSpec:
    module, _, attribute = place.partition(":")
    try:
        found = getattr(import_module(module), attribute)
    except Exception as error:
        raise ConfigError(
            f"The provider {name} ({place}) cannot be loaded: {type(error).__name__}: {error}.",
            hint="Upgrade or uninstall the package that it comes from.",
        ) from error
    if not isinstance(found, ProviderSpec) or found.name != name:
        raise ConfigError(f"The provider {name} ({place}) is not the ProviderSpec of that name.")
    return found


def _plugins() -> tuple[dict[str, ProviderSpec], dict[str, str]]:
    """Return providers of other packages, and why others of them cannot be loaded."""
    found: dict[str, ProviderSpec] = {}
    failed: dict[str, str] = {}
    for name, place in _entry_points().items():
        try:
            found[name] = _load(name, place)
        except ConfigError as error:
            failed[name] = error.message
    return found, failed


@cache
def _entry_points() -> dict[str, str]:
    """Name -> place of what other packages register."""
    if not any(map(_registers_a_provider, sys.path)):
        return {}
    from importlib.metadata import entry_points  # noqa: PLC0415 - 40 ms, for those who have such a package

    return {point.name: point.value for point in entry_points(group=GROUP) if point.name not in BUILT_IN}


def _registers_a_provider(folder: str) -> bool:
    """Return whether a package in that folder has entry points of our group.

    `importlib.metadata` takes ten times as long.
    """
    for listed in Path(folder).glob("*.dist-info/entry_points.txt"):
        with contextlib.suppress(OSError):
            if f"[{GROUP}]".encode() in listed.read_bytes():
                return True
    return False
