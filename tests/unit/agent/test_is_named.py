"""What a pattern names, whatever is there."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from costgpu.job.agent.outputs.find_outputs import find_outputs, is_named
from costgpu.job.agent.state_files import Home
from tests.properties import examples

NAMES = ["a", "b.pt", "a[1]", "c"]
PATHS = st.lists(st.sampled_from(NAMES), min_size=1, max_size=3).map("/".join)
PATTERNS = st.lists(st.sampled_from([*NAMES, "*", "**", "?", "*.pt", ".", ".."]), min_size=1, max_size=3)


@examples(200)
@given(path=PATHS, pattern=PATTERNS.map("/".join))
def test_a_file_is_named_where_it_is_found(tmp_path_factory: pytest.TempPathFactory, path: str, pattern: str) -> None:
    home = Home(str(tmp_path_factory.mktemp("home")))
    file = Path(home.work, path)
    file.parent.mkdir(parents=True)
    file.touch()
    assert is_named(path, [pattern]) == (path in {each.path for each in find_outputs(home, [pattern]).outputs})
