"""Answers commands and options of other tools with what they are in costgpu."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager

from costgpu.errors import UsageError

WITH_COMMANDS = ("jobs",)  # of costgpu's own, which in other tools have commands below them


def peer_words(kind: str) -> Mapping[str, str]:
    """Return the ``commands`` or ``options`` of other tools, with what each is in costgpu."""
    import tomllib
    from pathlib import Path

    return dict(tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))[kind])


def refuse_peers_command(args: Sequence[str], ours: Collection[str]) -> None:
    """Refuse a command line that begins with a command of another tool.

    Raises:
        UsageError: With what it is in costgpu.
    """
    words = " ".join(args[:2]) if args[0] in WITH_COMMANDS else args[0]
    if words not in ours and (hint := peer_words("commands").get(words)) is not None:
        raise UsageError(f"There is no command {words}.", hint=hint)


@contextmanager
def peers_options() -> Iterator[None]:
    """Answer an option of another tool, or one that lacks its value, with what it is in costgpu."""
    try:
        yield
    except Exception as error:
        name = getattr(error, "option_name", None)  # the parser's own errors have one
        if name is None or (hint := peer_words("options").get(name)) is None:
            raise
        raise UsageError(f"{str(error).rstrip('.')}.", hint=hint) from None
