"""Filter expressions and pages of Compute Engine's lists.

Of both kinds of expression what costgpu asks: AIP-160 (``labels.a:*``, ``name = x``) and the older one with regular
expressions (``name eq "a.*"``). Source: the reference of ``instances.list`` (cloud.google.com/compute/docs, 2026-11).
"""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tests.emulators.compute_engine.wire import invalid

_EXPRESSION = re.compile(
    r"""(?P<field>[\w.-]+)  (?: (?P<any>:\*) | \s*(?P<how>=|\beq\b)\s* (?: "(?P<quoted>[^"]*)" | (?P<bare>[^\s"()]+) ) )""",
    re.VERBOSE,
)
PAGE = 500


def matcher(expression: str) -> Callable[[Mapping[str, Any]], bool]:
    """What decides whether a resource is listed.

    Raises:
        GoogleError: It is no expression, or of a kind that nobody has asked for yet.
    """
    if not expression.strip():
        return lambda _: True
    found = _EXPRESSION.fullmatch(expression.strip())
    if found is None:
        raise invalid("filter", expression, "Invalid list filter expression.")
    wanted = found["bare"] if found["quoted"] is None else found["quoted"]

    def test(row: Mapping[str, Any]) -> bool:
        node: Any = row
        for part in found["field"].split("."):  # label keys hold no dots
            node = node.get(part) if isinstance(node, Mapping) else None
        if found["any"]:
            return node is not None
        return bool(re.fullmatch(wanted, str(node))) if found["how"] == "eq" else str(node) == wanted

    return test


def page(rows: Sequence[Any], params: Mapping[str, Any], limit: int = PAGE) -> tuple[Sequence[Any], str]:
    """One page of rows, and the token of the next one; empty if this is the last."""
    begin = int(params.get("pageToken") or 0)
    end = begin + min(int(params.get("maxResults", PAGE)), limit)
    return rows[begin:end], str(end) if end < len(rows) else ""
