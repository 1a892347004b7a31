"""The machines of a lab, billed to its members: an example of a provider that lives in a package of its own.

A real one implements every method of `costgpu.providers.base.Provider` for its machines. This one has none: its
machines are processes on this computer, as costgpu's own provider ``local`` makes them, under another name, with
prices, a region and a setting. What a package must bring along is all here: the `ProviderSpec`, which the entry point
in pyproject.toml names; the adapter, imported when it is needed; offers and CPU families as files.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from costgpu.models.provider_costs import ProviderCosts
from costgpu.providers.spec import ProviderConfig, ProviderSetting, ProviderSpec, Trust

if TYPE_CHECKING:
    from collections.abc import Sequence

    from costgpu.models.diagnostics import Check
    from costgpu.models.instance import InstanceRef
    from costgpu.models.offer import Offer
    from costgpu.providers.base import Diagnosable, Provider

HERE = Path(__file__).parent


def _folder(config: ProviderConfig) -> Path:
    return Path(config.settings.get("folder") or config.data_folder() / "lab")


def _adapter(config: ProviderConfig) -> Provider:
    from costgpu.providers.local.provider import LocalProvider

    class LabProvider(LocalProvider):
        """Instances on the lab's machines."""

        name = "lab"
        region = "basement"

    return LabProvider(_folder(config), config.clock)


class LabDiagnostics:
    """What `costgpu doctor --infra lab` asks."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def examine(self, offer: Offer | None) -> Sequence[Check]:
        """See `costgpu.providers.base.Diagnosable`."""
        from costgpu.models.diagnostics import ok

        wanted = f", {offer.instance_type} included" if offer is not None else ""
        return [ok("machines", f"the lab keeps its machines in {self._folder}{wanted}")]


def _diagnostics(config: ProviderConfig) -> Diagnosable:
    return LabDiagnostics(_folder(config))


def _end_by_hand(ref: InstanceRef, account: str) -> str:
    return f"lab-terminate --account {account or 'ACCOUNT'} {ref.instance_id}"


SPEC = ProviderSpec(
    name="lab",
    display_name="the lab",
    publisher="The Lab",
    service="Machines of the Lab",
    adapter=_adapter,
    has_credentials=lambda: True,
    login_hint="ask in room 7",
    settings={
        "folder": ProviderSetting(pattern=r"/.+", form="the full path of a folder", trust=Trust.OWN_PROJECT),
    },
    costs=ProviderCosts(disk_usd_per_gb_month=0.02, address_usd_per_hour=0.0),
    diagnostics=_diagnostics,
    offers_file=HERE / "offers.csv",
    cpus_file=HERE / "cpus.csv",
    over_ssh=False,
    end_by_hand=_end_by_hand,
)
