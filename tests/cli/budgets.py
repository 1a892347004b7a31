"""What tests of `costgpu budget` plant and read."""

import json
from datetime import UTC, datetime, timedelta

from costgpu.ledger import Ledger
from tests.cli.here import Here, Result
from tests.unit.providers.planted import closed


def plant(here: Here, cost: str, run_id: str = "a1", **more: object) -> None:
    """A run of an hour that has just ended."""
    with Ledger.open(folder=here.data) as ledger:
        closed(ledger, run_id, datetime.now(UTC) - timedelta(hours=1, seconds=5), 1, cost, **more)  # type: ignore[arg-type]


def words(result: Result) -> str:
    """Its stdout without line ends: what is said, however it is wrapped."""
    return " ".join(result.stdout.split())


def shown(here: Here, name: str = "") -> dict[str, object]:
    document = json.loads(here.told("budget", "show", *([name] if name else []), "--json").stdout)
    assert (document["schema"], document["version"]) == ("costgpu.budgets", 1)
    found: dict[str, object] = document["budgets"][0]
    return found


def answer(result: Result) -> tuple[int, str, str]:
    return result.returncode, result.stdout, result.stderr
