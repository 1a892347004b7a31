"""Tags of runs and budgets: ``key=value``."""

from __future__ import annotations

from collections.abc import Iterable

from costgpu.errors import UsageError

LONGEST_TAG = 60
MOST_TAGS = 30
RESERVED_TAGS = ("costgpu", "aws:")


def split_tag(word: str) -> tuple[str, str]:
    """Key and value of ``key=value``."""
    key, sign, value = word.partition("=")
    if not sign or not key:
        raise UsageError(f"--tag {word!r} is not key=value.", hint="Such as --tag team=vision.")
    return key, value


def parse_tags(words: Iterable[str]) -> dict[str, str]:
    """Return the user's tags.

    Raises:
        UsageError: No provider would take them.
    """
    tags = dict(split_tag(word) for word in words)
    for key, value in tags.items():
        if key.lower().startswith(RESERVED_TAGS):
            raise UsageError(f"The tag {key} is reserved.", hint="Tags of costgpu begin with costgpu-.")
        if len(key) > LONGEST_TAG or len(value) > LONGEST_TAG:
            raise UsageError(
                f"The tag {key} is too long.", hint=f"Key and value have at most {LONGEST_TAG} characters."
            )
    if len(tags) > MOST_TAGS:
        raise UsageError(f"{len(tags)} tags are too many.", hint=f"Providers allow about {MOST_TAGS} besides ours.")
    return tags
