"""Every document of a job is as it was, to the byte: whoever changes one rewrites its file, and shows what changes."""

import pytest

from tests.unit.render.documents import DOCUMENTS, FOLDER
from tests.unit.render.documents.texts import TEXTS


@pytest.mark.parametrize("name", DOCUMENTS)
def test_the_documents_of_a_job(name: str) -> None:
    assert DOCUMENTS[name]() == (FOLDER / f"{name}.txt").read_text()


@pytest.mark.parametrize("name", [name for name in TEXTS if not name.endswith("JSON")])
def test_80_columns(name: str) -> None:
    assert max(map(len, TEXTS[name]().splitlines()), default=0) <= 80
