"""Takes out of texts of providers what tells whose account it is: first what is known of this one, then by its form."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

LEAST_LENGTH = 4  # of a known value: a shorter one would be taken out of ordinary words
FORMS = (
    ("key", r"-----BEGIN [A-Z ]+-----.*?(?:-----END [A-Z ]+-----|$)|\b(?:AKIA|ASIA)[A-Z0-9]{8,}\b|\bssh-\w+ [\w+/=]+"),
    ("arn", r"\barn:[a-z-]+:[^\s,;'\"()]+"),
    ("url", r"\b(?:https?|s3|gs)://[^\s,;'\"()]+"),
    ("email", r"\b[\w.+-]+@[\w-]+(?:\.[\w-]+)*"),
    ("project", r"(?<=\bprojects/)[\w.:-]+|(?<=\bproject=)[\w.:-]+|(?<=\bproject )(?=\S*[\d-])[\w.:-]+"),
    ("key", r"\balias/(?!aws/)[\w/-]+|\bmrk-[0-9a-f]{32}\b"),
    ("address", r"\bip-\d{1,3}(?:-\d{1,3}){3}[\w.-]*"),
    ("uuid", r"\b[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}\b"),
    ("id", r"\b(?:i|vol|ami|snap|eni|eipalloc|sg|sgr|subnet|vpc|sir|r|pg|lt)-(?:[0-9a-f]{17}|[0-9a-f]{8})\b"),
    ("run", r"\bcostgpu-[\w-]*\d[\w-]*"),
    ("address", r"\b\d{1,3}(?:\.\d{1,3}){3}(?:/\d{1,2})?\b"),
    ("address", r"(?<![\w:])(?:[0-9a-fA-F]{1,4}:){2,7}:?[0-9a-fA-F]{0,4}(?::[0-9a-fA-F]{1,4})*(?![\w:])"),
    ("address", r"(?<![\w:])::[0-9a-fA-F]{1,4}(?::[0-9a-fA-F]{1,4})*(?![\w:])"),
    ("number", r"\b\d{10,}\b|\b\d{4}-\d{4}-\d{4}\b"),
)
"""Kind -> what such a thing looks like, in the order in which they are taken out."""
_FORMS = tuple((kind, re.compile(form, re.DOTALL)) for kind, form in FORMS)
_TIME = re.compile(r"\d{1,2}:\d{2}(?::\d{2})?")


class Redactor:
    """Replaces private things by their kind in angle brackets.

    Args:
        known: Values that are private, such as the project's id: taken out wherever they stand.
    """

    def __init__(self, known: Iterable[str]) -> None:
        found = sorted({value for value in known if len(value) >= LEAST_LENGTH}, key=len, reverse=True)
        self._known = re.compile("|".join(map(re.escape, found)), re.IGNORECASE) if found else None

    def text(self, text: str) -> str:
        """One text without them."""
        if self._known is not None:
            text = self._known.sub("<private>", text)
        for kind, form in _FORMS:
            text = form.sub(lambda found, kind=kind: _replaced(found[0], kind), text)  # type: ignore[misc]
        return text

    def value(self, value: Any) -> Any:
        """Return a JSON value whose texts are without them; keys are the program's own."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, dict):
            return {key: self.value(item) for key, item in value.items()}
        return [self.value(item) for item in value] if isinstance(value, list) else value


def _replaced(found: str, kind: str) -> str:
    """Return a time of day looks like a short IPv6 address."""
    return found if kind == "address" and _TIME.fullmatch(found) else f"<{kind}>"
