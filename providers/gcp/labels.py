"""Our tags on Google's things: labels, which can be searched for but hold little, and the exact values beside them.

A label's value is at most 63 lower-case letters, digits, ``-`` and ``_``. So owner, name and the user's own tags, as they
were written, are in a metadata item; labels are what is searched, and what counts where the two do not agree.
Source: Compute Engine, "Organize resources using labels", requirements for labels (2026-11).
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from datetime import UTC, datetime

from costgpu.models.instance import CreateRequest
from costgpu.providers.base import OUR_TAGS, TAG_LEASE, TAG_NAME, TAG_OWNER, TAG_RUN

METADATA_KEY = "costgpu-tags"
VALUE_CHARACTERS = 63
MOST_LABELS = 64
_KEY = re.compile(r"[a-z][a-z0-9_-]{0,62}")
_VALUE = re.compile(r"[a-z0-9_-]{0,63}")
_OTHER = re.compile(r"[^a-z0-9_-]+")
_FACT = re.compile(r"(costgpu-[a-z-]+)=(\S+)")


def label_value(text: str) -> str:
    """A text as a label can hold it: ``ann@laptop`` becomes ``ann-laptop``."""
    return _OTHER.sub("-", text.lower())[:VALUE_CHARACTERS]


def ours_of(request: CreateRequest) -> dict[str, str]:
    """Our four tags, exactly."""
    return {
        TAG_RUN: request.run_id,
        TAG_NAME: request.name,
        TAG_OWNER: request.owner,
        TAG_LEASE: str(int(request.lease_until.timestamp())),
    }


def labels_of(request: CreateRequest) -> dict[str, str]:
    """The labels of a machine and its disk: ours, and of the user's tags those that can be labels."""
    ours = {key: label_value(value) for key, value in ours_of(request).items()}
    theirs = {
        key: value
        for key, value in sorted(request.tags.items())
        if _KEY.fullmatch(key) and _VALUE.fullmatch(value) and key not in ours and not key.startswith("goog")
    }
    return {**dict(list(theirs.items())[: MOST_LABELS - len(ours)]), **ours}


def metadata_value(request: CreateRequest) -> str:
    """The exact tags, as JSON in ASCII."""
    return json.dumps({**request.tags, **ours_of(request)}, sort_keys=True)


def tags_from(labels: Mapping[str, str], kept: str = "") -> dict[str, str]:
    """All tags of a machine.

    Args:
        labels: Its labels.
        kept: Its metadata item; empty if it has none.
    """
    try:
        loaded = json.loads(kept) if kept else {}
    except ValueError:
        loaded = {}
    exact = (
        {str(key): value for key, value in loaded.items() if isinstance(value, str)} if isinstance(loaded, dict) else {}
    )
    tags = {**{key: value for key, value in exact.items() if key not in OUR_TAGS}, **labels}
    for key in OUR_TAGS:
        if key in labels and key in exact and label_value(exact[key]) == labels[key]:
            tags[key] = exact[key]
    return tags


def facts_of(request: CreateRequest) -> str:
    """What stands in the description of things that have no labels."""
    facts = {
        **{key: label_value(value) for key, value in ours_of(request).items()},
        "costgpu-region": request.offer.region,
    }
    return " ".join(f"{key}={value}" for key, value in facts.items() if value)


def facts_from(description: str) -> dict[str, str]:
    """The tags in such a description; empty for what is not ours."""
    return dict(_FACT.findall(description))


def lease_in(tags: Mapping[str, str]) -> datetime | None:
    """The end of the lease; None if the tag is missing or no Unix time."""
    try:
        return datetime.fromtimestamp(int(tags.get(TAG_LEASE, "")), UTC)
    except (ValueError, OverflowError, OSError):
        return None
