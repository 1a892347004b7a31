"""Commands that take somebody else's command line: what follows the script, or ``-m module``, is the script's own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from typer.core import TyperCommand

if TYPE_CHECKING:
    from collections.abc import Sequence


class ScriptCommand(TyperCommand):
    """Our options stand before the script. A script ends them by itself; ``-m module`` does it as in python's own line."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Puts an end to our options after a module."""
        end = _after_module(args, self._takes_value)
        if end is not None and args[end : end + 1] != ["--"]:
            args = [*args[:end], "--", *args[end:]]
        return super().parse_args(ctx, args)

    def _takes_value(self, option: str) -> bool:
        for param in self.params:
            if option in (*param.opts, *param.secondary_opts):
                return not getattr(param, "is_flag", False) and not getattr(param, "count", False)
        return False


def _after_module(args: Sequence[str], takes_value: Any) -> int | None:
    """Index behind ``-m module``, if that comes before the first word that is no option of ours."""
    at = 0
    while at < len(args):
        word = args[at]
        if word == "--" or not word.startswith("-") or word == "-":
            return None
        if word.startswith("--"):
            at += 2 if "=" not in word and takes_value(word) else 1
            continue
        letters = word[1:]
        for index, letter in enumerate(letters):
            if not takes_value(f"-{letter}"):
                continue
            attached = index + 1 < len(letters)
            if letter == "m":
                return at + (1 if attached else 2)
            at += 0 if attached else 1
            break
        at += 1
    return None
