"""AWS's public prices: on demand from the Price List API, spot from EC2. Asking is free of charge.

Source: AWS Price List Query API, ``GetProducts``; EC2 API, ``DescribeSpotPriceHistory`` (2026-11).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

from costgpu.errors import ProviderError
from costgpu.providers.aws.session import Clients

PRICE_LIST_REGION = "us-east-1"  # the API is in three regions only, and each knows the prices of all
PAGE = 100  # the most that GetProducts gives at once


class PriceLists:
    """Reads price lists.

    Args:
        session: A ``boto3.Session``; None for the default one.
    """

    def __init__(self, *, session: Any | None = None) -> None:
        self._clients = Clients(session)

    def on_demand(self, region: str, attributes: Mapping[str, str]) -> Iterator[Mapping[str, Any]]:
        """The products in a region as JSON documents.

        Args:
            region: Where the machines are.
            attributes: That products must have, such as ``operatingSystem``.

        Raises:
            InvalidRequest: There is no such region.
            AuthError: There are no credentials, or not the permission ``pricing:GetProducts``.
            ProviderError: Any other refusal, or an answer that is no price list.
        """
        self._clients.require(region)
        filters = [
            {"Type": "TERM_MATCH", "Field": name, "Value": value}
            for name, value in {**attributes, "regionCode": region}.items()
        ]
        question = {"ServiceCode": "AmazonEC2", "FormatVersion": "aws_v1", "Filters": filters, "MaxResults": PAGE}
        doing = f"read AWS's price list of {region}"
        for text in self._rows(doing, "pricing", PRICE_LIST_REGION, "get_products", "PriceList", question):
            try:
                document: Mapping[str, Any] = json.loads(text)
            except (ValueError, TypeError) as exc:
                raise ProviderError(f"Could not {doing}: an entry is no JSON document: {str(text)[:60]!r}") from exc
            yield document

    def spot(self, region: str, products: Sequence[str], now: datetime) -> Iterator[Mapping[str, Any]]:
        """The spot prices that hold now, by instance type and zone.

        Args:
            region: Where.
            products: Such as ``Linux/UNIX``.
            now: Earlier prices are of no interest.

        Raises:
            AuthError: There are no credentials, or not the permission ``ec2:DescribeSpotPriceHistory``.
            ProviderError: Any other refusal.
        """
        self._clients.require(region)
        question = {"ProductDescriptions": list(products), "StartTime": now, "EndTime": now}
        yield from self._rows(
            f"read the spot prices of {region}",
            "ec2",
            region,
            "describe_spot_price_history",
            "SpotPriceHistory",
            question,
        )

    def _rows(
        self, doing: str, service: str, region: str, method: str, field: str, question: Mapping[str, Any]
    ) -> Iterator[Any]:
        client = self._clients.client(service, region, attempts=5)
        pages = iter(client.get_paginator(method).paginate(**question))
        while True:
            with self._clients.speaking(doing):
                page = next(pages, None)
            if page is None:
                return
            yield from page.get(field, ())
