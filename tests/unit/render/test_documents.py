"""Every document of a job is as it was, to the byte: whoever changes one rewrites its file, and shows what changes."""

import pytest

from tests.unit.render.documents import FOLDER, STORIES, told_of


@pytest.mark.parametrize("name", STORIES)
def test_the_documents_of_a_job(name: str) -> None:
    assert told_of(STORIES[name]) == (FOLDER / f"{name}.txt").read_text()
