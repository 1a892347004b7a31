"""Variables for the job: from ``-e`` and from files, as people write them."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from costgpu.config import config_file
from costgpu.errors import ConfigError, UsageError
from costgpu.workflows.context import AppContext
from costgpu.workflows.environment import job_environment
from tests.unit.workflows.reporter import ListReporter

NAMES = st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,20}", fullmatch=True)
VALUES = st.text(
    st.characters(codec="utf-8", exclude_characters="\r\n\0"), max_size=40
)  # one line each; quotes, spaces, # and = included
QUIET = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)


def write(folder: Path, text: str) -> str:
    path = folder / "job.env"
    path.write_text(text, encoding="utf-8", newline="")
    return str(path)


@QUIET
@given(st.dictionaries(NAMES, VALUES))
def test_what_was_quoted_arrives_unchanged(tmp_path: Path, wanted: dict[str, str]) -> None:
    lines = [f'{key}="{value}"' for key, value in wanted.items()]
    assert job_environment([], write(tmp_path, "\n".join(lines))) == wanted


@QUIET
@given(st.dictionaries(NAMES, VALUES))
def test_values_on_the_command_line_are_taken_as_they_are(wanted: dict[str, str]) -> None:
    assert job_environment([f"{key}={value}" for key, value in wanted.items()], None) == wanted


@QUIET
@given(st.text(max_size=200) | st.from_regex(r"([A-Z=\"' \0\n#]{0,30}\n)*"))
def test_any_text_is_either_variables_or_a_usage_error(tmp_path: Path, text: str) -> None:
    try:
        path = write(tmp_path, text)
    except UnicodeEncodeError:
        return
    try:
        found = job_environment([], path)
    except UsageError:
        return
    assert all(key.isidentifier() and key.isascii() for key in found)
    assert not any("\n" in value or "\0" in value for value in found.values())


def test_the_usual_ways_of_writing_it(tmp_path: Path) -> None:
    text = """\
# a comment
PLAIN=value
export EXPORTED=1

QUOTED="with spaces # and a sign"
SINGLE='it is "so"'
EMPTY=
URL=https://user:pa=ss@example.org/?a=b
 INDENTED = spaces around\t
TWICE=first
TWICE=last
"""
    assert job_environment([], write(tmp_path, text.replace("\n", "\r\n"))) == {
        "PLAIN": "value",
        "EXPORTED": "1",
        "QUOTED": "with spaces # and a sign",
        "SINGLE": 'it is "so"',
        "EMPTY": "",
        "URL": "https://user:pa=ss@example.org/?a=b",
        "INDENTED": "spaces around",
        "TWICE": "last",
    }


def test_a_byte_order_mark_is_no_part_of_a_name(tmp_path: Path) -> None:
    assert job_environment([], write(tmp_path, "\ufeffKEY=1\n")) == {"KEY": "1"}


def test_the_command_line_counts_more_than_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOKEN", "from here")
    path = write(tmp_path, "TOKEN=file\nOTHER=file\n")
    assert job_environment(["TOKEN", "OTHER=line"], path) == {"TOKEN": "from here", "OTHER": "line"}


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ("NOT_SET_ANYWHERE", "no such variable"),
        ("1A=2", "'1A' is not the name"),
        ("=2", "'' is not the name"),
        ("A B=2", "'A B' is not the name"),
        ("Ä=2", "not the name"),
        ("A=\0", "zero byte"),
        (b"A=\0\n", "zero byte"),
        (b"SECRET s3cr3t-value\n", "line 1"),
        (b"A=1\nB\n", "line 2"),
        (b"A=\xff\n", "UTF-8"),
        (b"1A=2\n", "not the name"),
    ],
)
def test_what_cannot_be_meant_on_the_command_line_or_in_a_file(tmp_path: Path, given: str | bytes, words: str) -> None:
    path = tmp_path / "job.env"
    if isinstance(given, bytes):
        path.write_bytes(given)
    with pytest.raises(UsageError, match=words) as caught:
        job_environment([] if isinstance(given, bytes) else [given], str(path) if isinstance(given, bytes) else None)
    assert caught.value.hint or isinstance(given, bytes)
    assert "s3cr3t" not in caught.value.message + caught.value.hint


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    for path, words in ((tmp_path / "nope.env", "No such file"), (tmp_path, "Is a directory")):
        with pytest.raises(UsageError, match=words) as caught:
            job_environment([], str(path))
        assert "Errno" not in caught.value.message


@pytest.mark.parametrize(
    ("flags", "option"),
    [({"sync_limit_mib": 0.0}, "--sync-limit"), ({"bucket": "b"}, "--bucket"), ({"aws_subnet": "s"}, "--subnet")],
)
def test_options_are_called_as_they_are_on_the_command_line(tmp_path: Path, flags: dict[str, Any], option: str) -> None:
    with pytest.raises(UsageError, match=f"^{option} is ") as caught:
        _ = AppContext(ListReporter(), tmp_path, **flags).settings
    assert "aws" not in caught.value.message


def test_a_file_of_settings_is_another_matter(tmp_path: Path) -> None:
    (tmp_path / "costgpu.toml").write_text("sync_limit_mib = 0\n")
    with pytest.raises(ConfigError):
        _ = AppContext(ListReporter(), tmp_path, strict=True).settings


def test_wrong_settings_are_said_once_and_keep_nobody_from_ending_a_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config_file().parent.mkdir(parents=True)
    config_file().write_text('alert_url = ["json://x"]\nledger_url = "postgresql://db/team"\n')
    reporter = ListReporter()
    parts = AppContext(reporter, tmp_path)
    assert parts.settings.sync_limit_mib == 500
    assert parts.ledger.place == "postgresql+psycopg://db/team"
    assert "local" in [provider.name for provider in parts.providers()]
    assert str(reporter.notes).count("nothing is called 'alert_url'") == 1
    with pytest.raises(ConfigError):
        parts.checked_settings()


def test_a_ledger_whose_place_nobody_can_tell_is_not_taken_for_another_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config_file().parent.mkdir(parents=True)
    config_file().write_text('ledger_url = "postgresql://db/team')
    with AppContext(ListReporter(), tmp_path) as parts, pytest.raises(ConfigError, match="line 1"):
        parts.ledger.open_runs()
    monkeypatch.setenv("COSTGPU_LEDGER_URL", "sqlite:////elsewhere")
    assert AppContext(ListReporter(), tmp_path).ledger.place == "/elsewhere"
