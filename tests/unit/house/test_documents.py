"""README and docs: links lead somewhere, lines are short. That names in them exist is `test_words_are_real`."""

import re
from pathlib import Path

from tests.unit.house.test_words_are_real import documents


def test_links_lead_somewhere(root: Path) -> None:
    for path in documents(root):
        for target in re.findall(r"\]\((?!https?:)([^)#]+)", path.read_text()):
            assert (path.parent / target).exists(), (path.name, target)


def test_the_readme_is_short_and_says_where_it_was_run(root: Path) -> None:
    lines = (root / "README.md").read_text().splitlines()
    assert len(lines) <= 150
    assert "has not been run against a real AWS or Google account" in " ".join(lines[:20])
