"""Lists over all zones or regions of the project, of which some may not answer."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from costgpu.errors import ProviderError, Unreachable
from costgpu.providers.gcp import sdk
from costgpu.providers.gcp.session import Clients, last_part

PARALLEL = 8
Places = dict[str, str]
"""Zone or region -> why it could not be asked."""


def rows_in(page: Any, field: str) -> Sequence[tuple[str, Any]]:
    """Place and row of one page of an aggregated list; places are ``us-central1-a``, ``us-central1`` or ``global``."""
    return [(last_part(scope), row) for scope, scoped in page.items.items() for row in getattr(scoped, field)]


def everywhere(
    clients: Clients, kind: str, field: str, scope: str, expression: str
) -> tuple[list[tuple[str, Any]], Places]:
    """Place and row of everything of one kind that a filter leaves; and the places that do not answer.

    One question for all places. If Google fails it, as it can when a single zone is out, each place is asked by itself.

    Args:
        clients: To ask with.
        kind: Of the client.
        field: Of the rows in an aggregated list.
        scope: ``zone`` or ``region``: what a place is.
        expression: The filter.
    """
    doing = f"list {field} ({expression})"
    question: dict[str, Any] = {"filter": expression}
    fields = getattr(sdk.compute(), f"AggregatedList{kind}Request").meta.fields
    if "return_partial_success" in fields:  # not in every version of the client
        question["return_partial_success"] = True
    try:
        pages = clients.pages(doing, kind, "aggregated_list", **question)
    except Unreachable as error:
        if sdk.status_of(error.__cause__) < 500:
            raise
        return _one_by_one(clients, kind, scope, expression)
    silent: Places = {}
    for page in pages:
        silent |= {last_part(str(place)): "no answer" for place in page.unreachables}
        for place, scoped in page.items.items():
            if str(scoped.warning.code) == "UNREACHABLE":
                silent[last_part(place)] = str(scoped.warning.message) or "no answer"
    return [pair for page in pages for pair in rows_in(page, field)], silent


def _one_by_one(clients: Clients, kind: str, scope: str, expression: str) -> tuple[list[tuple[str, Any]], Places]:
    lists = clients.pages(f"list the {scope}s of the project", f"{scope.title()}s", "list")
    places = [str(row.name) for page in lists for row in page.items]

    def ask(place: str) -> tuple[str, list[Any], str]:
        doing = f"list {kind.lower()} in {place}"
        try:
            pages = clients.pages(doing, kind, "list", **{scope: place, "filter": expression})
        except ProviderError as error:
            return place, [], error.message
        return place, [row for page in pages for row in page.items], ""

    with ThreadPoolExecutor(max_workers=PARALLEL, thread_name_prefix="costgpu-gcp") as pool:
        answers = list(pool.map(ask, places))
    return [(place, row) for place, rows, _ in answers for row in rows], {
        place: why for place, _, why in answers if why
    }
