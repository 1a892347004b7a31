"""Google's public price list: the SKUs of Compute Engine in the Cloud Billing Catalog. Asking is free of charge.

No permission is needed, only credentials, and the API ``cloudbilling.googleapis.com`` enabled in the project that they
count against. Source: Cloud Billing API, ``services.skus.list`` (2026-11).
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

from costgpu.clock import Clock
from costgpu.errors import Throttled, Unreachable
from costgpu.models.offer import Offer
from costgpu.models.price_update import PriceUpdate
from costgpu.providers.common import another_address
from costgpu.providers.gcp import sdk, sku_prices
from costgpu.providers.gcp.sdk import translate
from costgpu.providers.gcp.session import repeated, sign_in

ENDPOINT = "COSTGPU_GCP_BILLING_ENDPOINT"
"""Another address of the Cloud Billing API. Google's Python client has no variable for it."""
PAGE = 5000  # the most that the API gives at once
SECONDS = 60.0  # for one page
TRIES, WAIT_SECONDS = 4, 1.0
DOING = "read Google's price list"


class SkuCatalog:
    """The `PriceSource` of Google Cloud."""

    by_region = False
    note = "the list is long, about half a minute"

    def __init__(self, *, clock: Clock) -> None:
        self._clock = clock
        self._client: Any | None = None

    def read(self, regions: Sequence[str], known: Sequence[Offer], now: datetime) -> PriceUpdate:
        """Return new prices of the known offers in these regions."""
        documents = self.skus(sku_prices.read_mapping().service)
        return sku_prices.price_update(documents, known, regions, today=now.date())

    def skus(self, service: str) -> Iterator[Mapping[str, Any]]:
        """Yield the SKUs of a service as JSON documents, page by page.

        Args:
            service: Such as ``services/6F81-5844-456A``, which is Compute Engine.

        Raises:
            AuthError: There are no credentials, or the API is not enabled.
            Unreachable: There is no answer, several times.
            ProviderError: The list ends before its end, or any other refusal.
        """
        to_document = importlib.import_module("google.protobuf.json_format").MessageToDict
        token, seen = "", {""}
        while True:
            question = {"parent": service, "page_size": PAGE, "page_token": token, "currency_code": "USD"}
            ask = functools.partial(self._ask, question)
            page = repeated(self._clock, ask, (Throttled, Unreachable), tries=TRIES, first_wait=WAIT_SECONDS)
            for sku in page.skus:
                yield to_document(type(sku).pb(sku))
            token = str(page.next_page_token)
            if not token:
                return
            if token in seen:  # it would go on for ever
                raise Unreachable(f"Could not {DOING}: its pages are going round in circles.", hint="Try again later.")
            seen.add(token)

    def _ask(self, request: dict[str, Any]) -> Any:
        try:
            pager = self._catalog().list_skus(request=request, timeout=SECONDS, retry=None)
            return next(iter(pager.pages))
        except sdk.foreign() as exc:
            raise translate(exc, DOING) from exc

    def _catalog(self) -> Any:
        if self._client is None:
            url = another_address(ENDPOINT)
            credentials, options = counted(*sign_in(url)), {"api_endpoint": url} if url else None
            billing = importlib.import_module("google.cloud.billing_v1")
            self._client = billing.CloudCatalogClient(credentials=credentials, client_options=options, transport="rest")
        return self._client


def counted(credentials: Any, project: str | None) -> Any:
    """Return the credentials whose requests count against a project in which the API can be enabled.

    A person's own count against gcloud's project, which nobody can change, unless they say another one: here the one that
    is configured. Those of a service account count against its own project. Source: Google Cloud, "Set the quota project"
    (2026-11).

    Args:
        project: That is configured; None if none is.
    """
    personal = type(credentials).__module__.startswith("google.oauth2.credentials")
    if personal and project and not getattr(credentials, "quota_project_id", None):
        return credentials.with_quota_project(project)
    return credentials
