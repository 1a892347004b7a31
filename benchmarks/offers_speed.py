"""How long `costgpu offers` takes: a query in process, and the whole command beside ``import pydantic``.

    python benchmarks/offers_speed.py [RUNS]

Medians of paired runs: what is compared runs in turn, so that a busy machine slows both. Nothing is asserted.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from dataclasses import replace
from typing import TYPE_CHECKING

from costgpu.models.offer import PurchaseOption
from costgpu.pricing import snapshot
from costgpu.pricing.catalog import Catalog, OfferQuery, SortKey
from costgpu.units import NumberRange, parse_accelerator, parse_usd

if TYPE_CHECKING:
    from collections.abc import Callable

OFFERS = 100_000
QUERIES = {
    "A100": OfferQuery(accelerator=parse_accelerator("A100")),
    "A100:1, spot": OfferQuery(accelerator=parse_accelerator("A100:1"), purchase_options=(PurchaseOption.SPOT,)),
    "24GB:1..2": OfferQuery(accelerator=parse_accelerator("24GB:1..2")),
    "none, 8+ vCPUs, 16..64 GiB, $2": OfferQuery(
        accelerator=parse_accelerator("none"),
        cpus=NumberRange(8, None),
        memory=NumberRange(16, 64),
        max_price_usd_per_hour=parse_usd("2"),
    ),
    "aws": OfferQuery(infra=("aws",)),
    "everything": OfferQuery(),
    "everything by $/GPU": OfferQuery(sort=SortKey.GPU_PRICE),
}
PROCESSES = {
    "python": [sys.executable, "-c", ""],
    "import pydantic": [sys.executable, "-c", "import pydantic"],
    "import typer": [sys.executable, "-c", "import typer"],
    "costgpu offers --gpus A100": [sys.executable, "-m", "costgpu", "offers", "--gpus", "A100"],
    "costgpu offers": [sys.executable, "-m", "costgpu", "offers"],
}


def main(runs: int) -> None:
    shipped = snapshot.read_offers(snapshot.newest())
    many = [
        replace(offer, region=f"{offer.region}-{copy}")
        for copy in range(OFFERS // len(shipped) + 1)
        for offer in shipped
    ][:OFFERS]
    started = time.perf_counter()
    catalog = Catalog(many)
    print(f"catalog of {len(many)} offers made in {1e3 * (time.perf_counter() - started):.0f} ms")
    for name, query in QUERIES.items():
        times = [seconds(lambda query=query: catalog.query(query)) for _ in range(runs)]  # type: ignore[misc]
        print(f"{1e3 * statistics.median(times):8.1f} ms  query {name}")

    taken: dict[str, list[float]] = {name: [] for name in PROCESSES}
    for _ in range(runs):
        for name, command in PROCESSES.items():
            taken[name].append(
                seconds(lambda command=command: subprocess.run(command, check=True, capture_output=True))  # type: ignore[misc]
            )
    for name, times in taken.items():
        ratio = statistics.median(a / b for a, b in zip(times, taken["import pydantic"], strict=True))
        print(f"{1e3 * statistics.median(times):8.1f} ms  {ratio:5.2f} x import pydantic  {name}")


def seconds(function: Callable[[], object]) -> float:
    started = time.perf_counter()
    function()
    return time.perf_counter() - started


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 15)
