"""Google Compute Engine. Importing this package imports nothing of Google's, which takes 2-3 s."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from costgpu.providers.gcp.facts import COSTS, ROLE_FILE, end_by_hand, is_sold, needs_own_image
from costgpu.providers.spec import ProviderConfig, ProviderSetting, ProviderSpec, Trust

if TYPE_CHECKING:
    from costgpu.providers.base import Billing, Diagnosable, PriceSource, Provider


def _adapter(config: ProviderConfig) -> Provider:
    from costgpu.providers.gcp.provider import GcpProvider  # noqa: PLC0415

    return GcpProvider(clock=config.clock, **_of_machines(config))


def _diagnostics(config: ProviderConfig) -> Diagnosable:
    from costgpu.providers.gcp.diagnostics import GcpDiagnostics  # noqa: PLC0415

    return GcpDiagnostics(clock=config.clock, **_of_machines(config))


def _of_machines(config: ProviderConfig) -> dict[str, str]:
    return {key: value for key, value in config.settings.items() if key != "billing_table"}


def _billing(config: ProviderConfig) -> Billing | None:
    table = config.settings.get("billing_table")
    if table is None:
        return None
    from costgpu.providers.gcp.billing import BillingExport  # noqa: PLC0415

    return BillingExport(clock=config.clock, table=table, project=config.settings.get("project"))


def _price_source(config: ProviderConfig) -> PriceSource:
    from costgpu.providers.gcp.sku_catalog import SkuCatalog  # noqa: PLC0415

    return SkuCatalog(clock=config.clock)


def has_credentials() -> bool:
    """Return whether ``google.auth`` would find some, without importing it.

    Source: Google Cloud, "How Application Default Credentials works" (2026-11).
    """
    if os.environ.get("GOOGLE_APPLICATION_CREDENTIALS") or os.environ.get("COSTGPU_GCP_ENDPOINT"):
        return True
    folder = os.environ.get("CLOUDSDK_CONFIG") or "~/.config/gcloud"
    if (Path(folder).expanduser() / "application_default_credentials.json").is_file():
        return True
    if os.environ.get("NO_GCE_CHECK", "").lower() == "true":
        return False
    try:
        return Path("/sys/class/dmi/id/product_name").read_text(encoding="ascii").startswith("Google")
    except (OSError, UnicodeDecodeError):
        return False


SPEC = ProviderSpec(
    name="gcp",
    display_name="Google Cloud",
    publisher="Google Cloud",
    service="Compute Engine",
    account_word="project",
    adapter=_adapter,
    has_credentials=has_credentials,
    login_hint="gcloud auth application-default login, or GOOGLE_APPLICATION_CREDENTIALS",
    settings={
        "project": ProviderSetting(
            pattern=r"([a-z0-9.-]+:)?[a-z][a-z0-9-]{4,28}[a-z0-9]",
            form="the id of a project (such as research-42)",
            trust=Trust.OWN_PROJECT,  # whose bill it is
            names_account=True,
        ),
        "network": ProviderSetting(
            pattern=r"[a-z][a-z0-9-]{0,62}(/[a-z][a-z0-9-]{0,62})?",
            form="of the form NETWORK or NETWORK/SUBNET",
            trust=Trust.OWN_PROJECT,
        ),
        "billing_table": ProviderSetting(
            pattern=r"[a-z][a-z0-9-]{4,28}[a-z0-9](\.\w{1,1024}){2}",
            form="of the form PROJECT.DATASET.TABLE",
            trust=Trust.USER,  # is queried at the user's cost
        ),
        "image": ProviderSetting(
            pattern=r"projects/[a-z0-9.:-]+/global/images/(family/)?[a-z][a-z0-9-]*",
            form="an image (projects/PROJECT/global/images/NAME, or .../images/family/FAMILY)",
            trust=Trust.USER,  # runs with the user's code and secrets
        ),
    },
    needs_own_image=needs_own_image,
    costs=COSTS,
    diagnostics=_diagnostics,
    policy_file=ROLE_FILE,
    billing=_billing,
    price_source=_price_source,
    is_sold=is_sold,
    end_by_hand=end_by_hand,
    account_in_end_command=True,
    # Google deletes a running machine with its disk at the deadline, up to 30 s late; one that has powered itself off
    # before is only stopped, keeps its disk and loses its time limit. So the watchdog comes after it.
    # Source: Compute Engine, "Limit the run time of a VM" (2026-11).
    watchdog_delay_seconds=60.0,
    # Where an image has no cloud-init, Google's own unit runs the script, on Ubuntu as the last of all: as long as booting.
    # Source: Canonical's google-startup-scripts.service, After=cloud-final.service snapd.seeded.service (2020).
    host_key_seconds=600.0,
    spot_notice="computemetadata",
    environment=(
        "GOOGLE_APPLICATION_CREDENTIALS",
        "GOOGLE_CLOUD_PROJECT",
        "CLOUDSDK_CONFIG",
        "CLOUDSDK_ACTIVE_CONFIG_NAME",
    ),
    programs=("gcloud",),
)
