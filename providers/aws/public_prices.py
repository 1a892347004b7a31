"""AWS's prices without credentials: its bulk price list of a region, and what its page of spot prices shows.

The bulk list is a CSV file of about 300 MB a region, read line by line: nothing of it is kept but plain Linux machines.
Source: AWS Price List, "Getting price list files" (2026-11), and such files as their users quote them (2026-09).

The page of spot prices, https://aws.amazon.com/ec2/spot/pricing/, reads a JSON file of about 3 MB that nothing documents.
An earlier one stood still for two years (alexei-led/spotinfo): so prices of this one are as old as its server says that the
file is, and none are taken that have no day. Both are fetched over https by anybody: the servers learn the address that
asks, and nothing else.
"""

from __future__ import annotations

import csv
import http.client
import urllib.error
import urllib.request
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time
from email.utils import parsedate_to_datetime
from functools import cached_property
from typing import Any

from costgpu.clock import Clock
from costgpu.errors import InvalidRequest, ProviderError, Unreachable
from costgpu.files import parse_json
from costgpu.models.offer import Offer
from costgpu.models.price_update import PriceUpdate
from costgpu.providers.aws.prices import LINUX, price_update
from costgpu.providers.common import another_address, number_in, part

ENDPOINT = "COSTGPU_AWS_PUBLIC_PRICES_ENDPOINT"
"""Another address for both files."""
LIST, SPOT = "https://pricing.us-east-1.amazonaws.com", "https://website.spot.ec2.aws.a2z.com"
SPOT_SOURCE = "AWS spot price page"
SECONDS = 30.0  # without a byte
TRIES, WAIT_SECONDS = 4, 1.0  # to go on after a broken connection; each byte that comes allows as many again
CHUNK = 2**18
MOST_LINE, MOST_SPOT_BYTES = 2**20, 2**25
COLUMNS = {
    "Instance Type": "instanceType",
    "vCPU": "vcpu",
    "Memory": "memory",
    "Operating System": "operatingSystem",
    "Tenancy": "tenancy",
    "CapacityStatus": "capacitystatus",
    "Pre Installed S/W": "preInstalledSw",
    "operation": "operation",
    "MarketOption": "marketoption",
    "Region Code": "regionCode",
}
"""Columns of the list, and what the API for single products calls them."""
TERM = ("SKU", "TermType", "Unit", "PricePerUnit", "Currency")
WORDS = ("OnDemand", "Shared", "RunInstances")
"""In every line of interest: taking the others apart would take most of the time."""
OLD_REGIONS = {
    "us-east": "us-east-1",
    "us-west": "us-west-1",
    "eu-ireland": "eu-west-1",
    "apac-sin": "ap-southeast-1",
    "apac-syd": "ap-southeast-2",
    "apac-tokyo": "ap-northeast-1",
}
"""What the page of spot prices has called its first regions."""


class PublicPrices:
    """The `PriceSource` of AWS without credentials."""

    by_region = True
    note = (
        "about 300 MB from pricing.us-east-1.amazonaws.com, and spot prices, 3 MB, from website.spot.ec2.aws.a2z.com; "
        "they learn your IP address and nothing else"
    )

    def __init__(self, *, clock: Clock) -> None:
        self._clock = clock
        self._other = another_address(ENDPOINT)

    def read(self, regions: Sequence[str], known: Sequence[Offer], now: datetime) -> PriceUpdate:
        """Return new prices in one region: all that its list has, and spot prices where they can be had."""
        (region,) = regions
        page = self._spot_page
        url = f"{self._other or LIST}/offers/v1.0/aws/AmazonEC2/current/{region}/index.csv"
        return price_update(
            products(_lines(url, self._clock), url),
            spot_rows(page.document, region, page.day),
            known,
            region,
            today=now.date(),
            spot_source=SPOT_SOURCE,
            spot_day=page.day,
            no_spot=page.trouble,
        )

    @cached_property
    def _spot_page(self) -> _SpotPage:
        """Return the spot prices of all regions; without them the list prices are still worth having."""
        url = f"{self._other or SPOT}/spot.json"
        try:
            with _open(url) as reply:
                raw, modified = reply.read(MOST_SPOT_BYTES + 1), reply.headers.get("Last-Modified", "")
            if len(raw) > MOST_SPOT_BYTES:
                raise ValueError("it is too long")
            return _SpotPage(parse_json(raw), parsedate_to_datetime(modified).date())
        except (OSError, http.client.HTTPException, ValueError, TypeError) as error:
            return _SpotPage(trouble=f"{url} cannot be used: {error}".rstrip("."))


@dataclass(frozen=True, slots=True)
class _SpotPage:
    """What the page of spot prices reads."""

    document: Any = None
    day: date | None = None  # on which it was written
    trouble: str = ""  # why there is nothing of it


def products(lines: Iterable[str], url: str) -> Iterator[Mapping[str, Any]]:
    """Yield the lines of a bulk list that may be plain machines, as documents of the kind that ``GetProducts`` gives.

    Raises:
        ProviderError: It is not such a list.
    """
    rows = _rows(
        (line for line in lines if line.startswith(('"SKU"', "SKU,")) or all(word in line for word in WORDS)), url
    )
    header = next(rows, [])
    place = {name: header.index(name) for name in (*COLUMNS, *TERM) if name in header}
    missing = [name for name in (*COLUMNS, *TERM) if name not in place]
    if missing:
        raise ProviderError(f"{url} is not the price list that was expected: it lacks the column {', '.join(missing)}.")
    for row in rows:
        if len(row) != len(header):
            raise ProviderError(f"{url} is damaged: a line has {len(row)} cells instead of {len(header)}.")
        if row[place["TermType"]] != "OnDemand":
            continue
        price = {"unit": row[place["Unit"]], "pricePerUnit": {row[place["Currency"]]: row[place["PricePerUnit"]]}}
        yield {
            "product": {
                "sku": row[place["SKU"]],
                "attributes": {ours: row[place[theirs]] for theirs, ours in COLUMNS.items() if row[place[theirs]]},
            },
            "terms": {"OnDemand": {"": {"priceDimensions": {"": price}}}},
        }


def _rows(lines: Iterable[str], url: str) -> Iterator[list[str]]:
    try:
        yield from csv.reader(lines)
    except csv.Error as error:
        raise ProviderError(f"{url} is damaged: {error}.") from error


def spot_rows(document: Any, region: str, day: date | None) -> Iterator[Mapping[str, Any]]:
    """Yield the prices of one region, as rows of the kind that ``DescribeSpotPriceHistory`` gives; none without a day.

    The page shows one price for a region, the lowest: it is taken for that of a zone. What has no price is 0 or no number.
    """
    if day is None or not isinstance(document, Mapping):
        return
    written = datetime.combine(day, time(), UTC)
    for place in _listed(part(document, "config"), "regions"):
        if OLD_REGIONS.get(str(place.get("region")), place.get("region")) != region:
            continue
        for size in (size for group in _listed(place, "instanceTypes") for size in _listed(group, "sizes")):
            for column in _listed(size, "valueColumns"):
                usd = str(part(column, "prices").get("USD", ""))
                if column.get("name") == "linux" and number_in(usd):
                    yield {
                        "InstanceType": size.get("size"),
                        "AvailabilityZone": f"{region}a",
                        "ProductDescription": LINUX[0],
                        "SpotPrice": usd,
                        "Timestamp": written,
                    }


def _listed(document: Mapping[str, Any], name: str) -> list[Mapping[str, Any]]:
    found = document.get(name, ())
    return [one for one in found if isinstance(one, Mapping)] if isinstance(found, list) else []


def _open(url: str, headers: Mapping[str, str] | None = None) -> Any:
    request = urllib.request.Request(url, headers={"Accept-Encoding": "identity", **(headers or {})})  # noqa: S310
    try:
        return urllib.request.urlopen(request, timeout=SECONDS)  # noqa: S310 - https, or this machine: `another_address`
    except urllib.error.HTTPError as error:
        error.close()
        raise


def _lines(url: str, clock: Clock) -> Iterator[str]:
    """Yield the lines of a file as they come; after a broken connection it goes on at the byte where it was.

    Raises:
        InvalidRequest: There is no such file.
        Unreachable: There is no answer several times, or the file has become another one in between.
    """
    position, whole, version, rest, tries = 0, -1, "", b"", 0
    while position != whole:
        try:
            with _open(url, {"Range": f"bytes={position}-", "If-Range": version} if position else None) as reply:
                if position and reply.status != http.client.PARTIAL_CONTENT:
                    raise Unreachable(f"{url} has changed while it was being read.", hint="Try again.")
                if not position:
                    length = reply.headers.get("Content-Length") or ""
                    whole = int(length) if length.isdecimal() else -1
                    version = reply.headers.get("ETag") or ""
                while chunk := reply.read(CHUNK):
                    position, tries = position + len(chunk), 0
                    *lines, rest = (rest + chunk).split(b"\n")
                    if len(rest) > MOST_LINE:
                        raise ProviderError(f"{url} is no price list: a line has no end.")
                    yield from (line.decode("utf-8", "replace") for line in lines)
            if position == whole or whole < 0:
                break
            raise ConnectionError("the connection has ended early")
        except urllib.error.HTTPError as error:
            if error.code < http.client.INTERNAL_SERVER_ERROR and error.code != http.client.TOO_MANY_REQUESTS:
                raise InvalidRequest(f"{url} is refused: {error}.") from error
            tries = _again(url, error, tries, clock)
        except (OSError, http.client.HTTPException) as error:
            if position and not version:
                raise Unreachable(f"{url} has broken off: {error}.", hint="Try again later.") from error
            tries = _again(url, error, tries, clock)
    if rest:
        yield rest.decode("utf-8", "replace")


def _again(url: str, error: Exception, tries: int, clock: Clock) -> int:
    """Wait before another try; the number of tries so far."""
    if tries + 1 >= TRIES:
        raise Unreachable(f"{url} does not answer: {error}.", hint="Try again later.") from error
    clock.sleep(WAIT_SECONDS * 2**tries)
    return tries + 1
