"""The text of the profile; there is no Mac to try it on."""

from pathlib import Path

import pytest

from costgpu.measure.isolation import seatbelt


def balanced(text: str) -> bool:
    """Whether its parentheses close, outside strings."""
    depth, inside, escaped = 0, False, False
    for letter in text:
        if inside:
            inside = letter != '"' or escaped
            escaped = letter == "\\" and not escaped
        else:
            depth += (letter == "(") - (letter == ")")
            inside, escaped = letter == '"', False
        if depth < 0:
            return False
    return depth == 0 and not inside


def test_the_last_rule_that_matches_decides(tmp_path: Path) -> None:
    lines = seatbelt.profile([str(tmp_path)]).splitlines()
    assert lines[:3] == ["(version 1)", "(allow default)", "(deny file-write*)"]
    assert lines[3] == f'(allow file-write* (subpath "{tmp_path.resolve()}"))'
    assert '(literal "/dev/null")' in lines[4]
    assert not [line for line in lines[5:] if "allow file-write" in line]


def test_links_in_the_paths_are_followed(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    assert f'(subpath "{tmp_path.resolve()}/real")' in seatbelt.profile([str(tmp_path / "link")])


@pytest.mark.parametrize(
    "name", ["it's", 'a"b', "back\\slash", 'end\\"', "(version 2)", '") (allow file-write*) ("', "sp ace", "ü"]
)
def test_no_name_gets_out_of_its_string(name: str) -> None:
    text = seatbelt.profile([f"/scratch/{name}"])
    assert balanced(text)
    assert len(text.splitlines()) == 8
    inner = seatbelt.quoted(f"/scratch/{name}")[1:-1]
    assert inner.replace('\\"', '"').replace("\\\\", "\\") == f"/scratch/{name}"


@pytest.mark.parametrize("name", ["a\nb", "a\0b", "\x1b"])
def test_a_name_that_no_string_can_hold_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="no profile can name"):
        seatbelt.quoted(name)


def test_the_command_line() -> None:
    command = seatbelt.start_command(["/scratch"], ["python", "-c", "x"])
    assert command[:2] == ["/usr/bin/sandbox-exec", "-p"]
    assert command[3:] == ["python", "-c", "x"]
