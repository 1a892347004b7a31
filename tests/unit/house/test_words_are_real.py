"""Whatever the program or its documentation names exists: commands, options, settings, variables.

Looked at are the text constants of the program (messages, hints, help texts), README.md and docs/.
"""

import ast
import re
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import typer

from costgpu.cli.app import app
from costgpu.cli.lazy_group import COMMANDS, load_command
from costgpu.config.settings_files import known_settings

SETTINGS = set(known_settings())
WORDS = {
    kind: set(words.split())
    for kind, words in tomllib.loads((Path(__file__).parent / "words.toml").read_text()).items()
}
ADVICE = "correct these names; what is real, but not costgpu's, belongs into words.toml"
COMMAND = re.compile(r"(?<![\w/.#-])(?<!# )costgpu ([a-z][a-z-]*)((?: [^\s`\"';:,)]+)*)")
OPTION = re.compile(r"(?<![\w-])--[a-z][a-z-]+")
NAME = re.compile(r"(?<![\w./{\"'=*-])[a-z]+(?:_[a-z]+)+(?![\w(=\"'.*])")  # not of a file, a field or an argument
DATA_MODULES = ("op_costs.py",)
VARIABLE = re.compile(r"\bCOSTGPU_([A-Z_]+)")


@cache
def tree() -> dict[str, Any]:
    """Every command, by its full name; the program itself under the empty name."""
    found: dict[str, Any] = {"": typer.main.get_command(app)}
    for name in COMMANDS:
        found[name] = load_command(name)
        below = getattr(found[name], "commands", {})
        found.update({f"{name} {word}": command for word, command in below.items()})
    return found


@cache
def commands() -> dict[str, set[str]]:
    """The options of every command."""
    return {
        name: {"--help", "-h", *(option for each in command.params for option in (*each.opts, *each.secondary_opts))}
        for name, command in tree().items()
    }


def unreal(text: str) -> list[str]:
    """What a text names that does not exist."""
    return [
        *_unreal_commands(text),
        *(set(OPTION.findall(text)) - set().union(*commands().values()) - WORDS["foreign_options"]),
        *(set(NAME.findall(text)) - SETTINGS - WORDS["other_names"]),
        *(
            name
            for name in VARIABLE.findall(text)
            if name.lower() not in SETTINGS and name not in WORDS["other_variables"]
        ),
    ]


def _unreal_commands(text: str) -> Iterator[str]:
    groups = {name.partition(" ")[0] for name in commands() if " " in name}
    for first, rest in COMMAND.findall(text):
        if first in WORDS["prose"]:
            continue
        if first not in commands():
            yield f"costgpu {first}"
            continue
        words, name = rest.split(), first
        if first in groups and words and re.fullmatch(r"[a-z][a-z-]*", words[0]):
            name = f"{first} {words.pop(0)}"
            if name not in commands():
                if name.partition(" ")[2] not in WORDS["prose_after_group"]:
                    yield f"costgpu {name}"
                continue
        for word in words:
            if word in ("--", "-m", "torchrun", "accelerate", "deepspeed") or word.endswith(".py"):
                break  # what follows is of the script, or of its launcher
            option = word.partition("=")[0]
            if OPTION.fullmatch(option) and option not in commands()[name]:
                yield f"costgpu {name} {option}"


def constants(source: Path) -> Iterator[str]:
    """The texts in a module that are neither docstrings nor lists of words, which are split."""
    tree = ast.parse(source.read_text())
    parts: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            parts.update(map(id, node.values))
            yield "".join(str(part.value) if isinstance(part, ast.Constant) else "{}" for part in node.values)
        if isinstance(node, ast.Attribute) and node.attr == "split":
            parts.add(id(node.value))
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if isinstance(body, list) and body and isinstance(body[0], ast.Expr):
            parts.add(id(body[0].value))
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in parts:
            yield node.value


def product(root: Path) -> list[Path]:
    """Every module but tables of names that are data: ops of ATen, columns of files."""
    found = [each for folder in ("costgpu", "providers", "pricing") for each in (root / folder).rglob("*.py")]
    return [each for each in found if each.name not in DATA_MODULES]


def documents(root: Path) -> list[Path]:
    return [root / "README.md", *(root / "docs").glob("*.md")]


def test_whatever_a_message_names_exists(root: Path) -> None:
    sources = product(root)
    assert len(sources) > 200
    found = {
        f"{source.relative_to(root)}: {text[:80]!r}": names
        for source in sources
        for text in constants(source)
        if " " in text and (names := unreal(text))
    }
    assert found == {}, ADVICE


def test_whatever_a_help_text_names_exists() -> None:
    found = {name: unreal(f"{command.help}") for name, command in tree().items()}
    assert [name for name, names in found.items() if names] == []
    assert len(found) > 20


def test_whatever_a_document_names_exists(root: Path) -> None:
    found = {path.name: names for path in documents(root) if (names := unreal(path.read_text().replace("\\\n", " ")))}
    assert found == {}, ADVICE


def test_the_table_of_settings_is_complete(root: Path) -> None:
    rows = re.findall(r"^\| `(\w+)` \|", (root / "docs" / "settings.md").read_text(), re.MULTILINE)
    assert sorted(rows) == sorted(SETTINGS)


def test_every_command_is_in_some_document(root: Path) -> None:
    text = "".join(path.read_text() for path in documents(root))
    assert [name for name in commands() if f"costgpu {name}" not in text] == []


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("costgpu finish r1 ends it", ["costgpu finish"]),
        ("`costgpu budget list` shows them", ["costgpu budget list"]),
        ("costgpu jobs --tagged asks the providers", ["costgpu jobs --tagged", "--tagged"]),
        ("costgpu jobs --yes", ["costgpu jobs --yes"]),  # an option of another command
        ("name a subnet with --aws-subnet", ["--aws-subnet"]),
        ("no role is configured (scheduler_role_arn)", ["scheduler_role_arn"]),
        ("set COSTGPU_LEDGER_URI", ["LEDGER_URI"]),
        (
            "costgpu run --max-cost 5 train.py --epochs-of-mine 3 (bucket, aws_image, COSTGPU_OWNER)",
            ["--epochs-of-mine"],
        ),
        ("costgpu ledger --by month, costgpu ledger export --format focus, costgpu reap --yes", []),
    ],
)
def test_a_planted_wrong_name_is_seen(text: str, names: list[str]) -> None:
    assert unreal(text) == names
