"""Names that costgpu knows without supporting them, and zones, which nobody needs to name: why a name is not taken.

May import `snapshot`, `providers` and `errors`. Only a name that is not found pays for it.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Collection, Mapping

from costgpu.errors import UsageError
from costgpu.pricing.snapshot import DATA
from costgpu.providers import registry

FILE = DATA / "not_supported.toml"
_ZONE = re.compile(r"-?[a-z]")


def accelerator_error(name: str) -> UsageError | None:
    """Return the error for an accelerator that is known and that costgpu does not support; None for any other name."""
    key = _key(name)
    what = next((what for pattern, what in _names("accelerators").items() if re.fullmatch(pattern, key)), None)
    if what is None:
        return None
    return UsageError(
        f"--gpus {name}: {what} is known, and not supported.",
        hint="costgpu measures, estimates and rents NVIDIA GPUs and CPUs; costgpu offers lists them.",
    )


def place_error(place: str, regions: Mapping[str, Collection[str]]) -> UsageError | None:
    """Return the error for a zone, or for a provider that costgpu does not support; None for any other place.

    Args:
        regions: The regions of each provider that there is.
    """
    provider, slash, rest = place.lower().partition("/")
    name = rest.rpartition("/")[2] if slash else provider
    for owner, known in regions.items():
        if slash and owner != provider:
            continue
        for region in known:
            if name.startswith(region) and _ZONE.fullmatch(name.removeprefix(region)):
                return UsageError(
                    f"--infra {place} names a zone. Zones are chosen by costgpu, where a machine is free.",
                    hint=f"Name the region: --infra {owner}/{region}.",
                )
    if provider in regions or (what := _names("infra").get(_key(provider).removesuffix("cloud"))) is None:
        return None
    return UsageError(
        f"--infra {place}: {what} is known, and not supported.",
        hint=f"costgpu knows {', '.join(registry.names())}; a package can add another provider.",
    )


def _key(name: str) -> str:
    return re.sub(r"[\s_.-]", "", name.lower()).removeprefix("amd").removeprefix("intel").removeprefix("google")


def _names(kind: str) -> Mapping[str, str]:
    found: Mapping[str, str] = tomllib.loads(FILE.read_text(encoding="utf-8"))[kind]
    return found
