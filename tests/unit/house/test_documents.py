"""README and docs tell the truth: every command, flag, link and exit code in them exists."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

GROUPS = {
    "budget": ("set", "show", "remove", "check", "test-alert", "cron"),
    "prices": ("refresh",),
    "ledger": ("export", "accuracy", "billed", "report"),
}
COMMANDS = (
    "estimate",
    "offers",
    "speedups",
    "run",
    "jobs",
    "logs",
    "attach",
    "cancel",
    "fetch",
    "reap",
    "doctor",
    *(name for group, subs in GROUPS.items() for name in (group, *(f"{group} {sub}" for sub in subs))),
)
BLOCK = re.compile(r"^```(?:console|sh|bash)\n(.*?)^```", re.MULTILINE | re.DOTALL)


@cache
def help_of(command: str) -> str:
    arguments = [sys.executable, "-m", "costgpu", *command.split(), "--help"]
    return subprocess.run(arguments, capture_output=True, text=True, check=True).stdout


def documents(root: Path) -> list[Path]:
    return [root / "README.md", *sorted((root / "docs").glob("*.md"))]


def text_of(root: Path) -> str:
    return "\n\n".join(path.read_text() for path in documents(root))


def lines_of(readme: str) -> list[list[str]]:
    """The costgpu command lines in the code blocks and in inline code."""
    found = []
    for block in BLOCK.findall(readme):
        for line in block.replace("\\\n", " ").splitlines():
            words = shlex.split(line.removeprefix("$ "), comments=True) if "costgpu" in line[:12] else []
            if words[:1] == ["costgpu"]:
                found.append(words[1:])
    return found + [shlex.split(inline) for inline in re.findall(r"`costgpu ([^`]+)`", readme)]


def test_every_command_and_flag_of_the_documents_exists(root: Path) -> None:
    lines = lines_of(text_of(root))
    assert len(lines) >= 40
    for words in lines:
        command = next((c for c in (" ".join(words[:2]), words[0]) if c in COMMANDS), "")
        assert command or words[0] in ("--help", "--version"), words
        for word in words[1:]:
            if word.endswith(".py") or word == "--":
                break  # what follows a script is the script's own
            if word.startswith("-"):
                assert re.search(rf"(?<![\w-]){re.escape(word.split('=')[0])}(?![\w-])", help_of(command)), (
                    words,
                    word,
                )


def test_every_flag_named_in_the_text_exists(root: Path) -> None:
    text = text_of(root)
    everything = "".join(help_of(command) for command in ("", *COMMANDS))
    for flag in set(re.findall(r"`(--[a-z-]+)", text)):
        assert flag in everything, flag


@pytest.mark.parametrize("command", ["", *COMMANDS])
def test_help_fits_80_columns(command: str) -> None:
    assert max(map(len, help_of(command).splitlines())) <= 80


def test_every_command_is_in_the_documents(root: Path) -> None:
    text = text_of(root)
    for command in COMMANDS:
        assert f"costgpu {command}" in text
        group, _, sub = command.rpartition(" ")
        assert sub in help_of(group)


def test_the_exit_codes_of_the_documents_are_the_real_ones(root: Path) -> None:
    from costgpu import errors

    def tree(kind: type[errors.CostGpuError]) -> list[type[errors.CostGpuError]]:
        return [kind, *(k for sub in kind.__subclasses__() for k in tree(sub))]

    rows = dict(re.findall(r"^\| (\d+) \| (.+) \|$", (root / "docs" / "exit-codes.md").read_text(), re.MULTILINE))
    assert {str(kind.exit_code) for kind in tree(errors.CostGpuError)} | {"0", "130"} == set(rows)


def test_links_lead_somewhere(root: Path) -> None:
    for path in documents(root):
        for target in re.findall(r"\]\((?!https?:)([^)#]+)", path.read_text()):
            assert (path.parent / target).exists(), (path.name, target)


def test_the_readme_is_short_and_says_where_it_was_run(root: Path) -> None:
    lines = (root / "README.md").read_text().splitlines()
    assert len(lines) <= 150
    assert "has not been run against a real AWS or Google account" in " ".join(lines[:20])
