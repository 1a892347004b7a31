"""The report of a first run: one JSON file of chosen facts, with no account, project, person, address or key in it."""

from __future__ import annotations

import json
import platform
import sys
from collections.abc import Sequence
from dataclasses import asdict
from datetime import datetime
from decimal import Decimal

from costgpu.models.diagnostics import Check
from costgpu.models.first_run import TrialMachine
from costgpu.render.document import VERSION, json_value, picked
from costgpu.render.text.doctor import PlaceReport
from costgpu.version import __version__
from costgpu.workflows.first_run.redact import Redactor

SCHEMA = "costgpu.first_run"
PERSONAL = frozenset({"credentials"})  # checks whose words are nothing but who somebody is


def report(
    places: Sequence[PlaceReport],
    trials: Sequence[TrialMachine],
    now: datetime,
    most_usd: Decimal | None,
    redactor: Redactor,
) -> str:
    """Return the JSON document.

    Args:
        places: This computer first: of it only names and results of checks are told.
        most_usd: What trials were allowed to cost; None if none were.
    """
    parts = {
        "schema": SCHEMA,
        "version": VERSION,
        "costgpu": __version__,
        "python": platform.python_version(),
        "system": sys.platform,
        "day": now.date().isoformat(),
        "max_cost_usd": most_usd,
        "places": [
            {
                "provider": place.name.partition("/")[0],
                "region": place.offer.region if place.offer is not None else None,
                "instance_type": place.offer.instance_type if place.offer is not None else None,
                "checks": [_check(check, words=number > 0) for check in place.checks],
            }
            for number, place in enumerate(places)
        ],
        "trials": [_trial(trial) for trial in trials],
    }
    return json.dumps(redactor.value(json_value(parts)), indent=2) + "\n"


def _check(check: Check, *, words: bool) -> dict[str, object]:
    told = picked(check, "name", "status", "exit_code")
    return told | picked(check, "detail") if words and check.name not in PERSONAL else told


def _trial(trial: TrialMachine) -> dict[str, object]:
    facts = asdict(trial)
    del facts["run_id"], facts["offer"]
    offer = picked(trial.offer, "provider", "region", "instance_type", "purchase_option", "price_usd_per_hour")
    return {**offer, **facts}
