"""Nothing that a machine, a job or a name says is a command to the terminal that shows it."""

import io
import re
import sys
import unicodedata
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from costgpu.clock import ManualClock
from costgpu.models.job import LogStream
from costgpu.render.safe_text import LogFilter, escaped, protected, unprotected
from tests.properties import examples

EVIL = [
    "\x1b]0;title\x07",
    "\x1b[2J",
    "\x1b[c",
    "\x9b5n",
    "a\rb",
    "\b\b",
    "\x00",
    "\x7f",
    "\u202egnp",
    "\u2066",
    "\ud800",
]


class Screen(io.TextIOWrapper):
    """A terminal that remembers."""

    def __init__(self) -> None:
        super().__init__(io.BytesIO(), encoding="utf-8", errors="strict", write_through=True)

    def isatty(self) -> bool:
        return True

    @property
    def shown(self) -> bytes:
        return self.buffer.getvalue()  # type: ignore[attr-defined, no-any-return]


@examples(2000)
@given(st.text(max_size=40) | st.lists(st.sampled_from(EVIL)).map("".join))
@example("\ud800\udfff")
def test_escaped_text_is_plain(text: str) -> None:
    shown = escaped(text)
    assert not [c for c in shown.replace("\r\n", "\n") if unicodedata.category(c) in ("Cc", "Cs") and c not in "\n\t"]
    assert not set(shown) & set("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069\u200e\u200f\u061c")
    assert escaped(shown) == shown
    assert all(c in shown for c in text if c.isalnum())


COLOUR = re.compile(rb"\x1b\[[0-9;:]*m|\x1b\[[0-2]?K")


@examples(2000)
@given(
    st.lists(
        st.sampled_from([text.encode("utf-8", "surrogatepass") for text in EVIL])
        | st.sampled_from([b"\x1b[31m", b"\x1b[0m", b"\x1b[K", b"\x1b", b"[", b"31", b"m", b"\xe2", b"\x80", b"\xc2"])
        | st.binary(max_size=4),
        max_size=12,
    )
)
def test_a_log_keeps_its_colours_and_nothing_else(pieces: list[bytes]) -> None:
    log = LogFilter()
    shown = b"".join(log.feed(piece) for piece in pieces)
    rest = COLOUR.sub(b"", shown)
    assert not set(rest) & set(range(32)) - set(b"\n\r\t\b")
    assert b"\x7f" not in rest
    assert not re.search(rb"\xc2[\x80-\x9f]|\xe2\x80[\xaa-\xae]|\xe2\x81[\xa6-\xa9]", shown)
    assert LogFilter().feed(b"".join(pieces)) == shown  # however the stream was cut


def test_what_a_job_usually_writes_is_shown_as_it_is() -> None:
    usual = "\x1b[32mepoch 1\x1b[0m: 100%|████| 3/3\r\n\x1b[Kloss=0.1 é 漢 😀\tdone\b\b\n".encode()
    assert LogFilter().feed(usual) == usual


def test_standard_streams_of_a_terminal_are_protected(monkeypatch: pytest.MonkeyPatch) -> None:
    out, err = Screen(), Screen()
    monkeypatch.setattr(sys, "stdout", out)
    monkeypatch.setattr(sys, "stderr", err)
    with protected():
        import typer

        print("".join(EVIL))
        typer.echo("".join(EVIL), err=True)
        assert unprotected(sys.stderr) is err
    assert sys.stdout is out
    for screen in (out, err):
        assert screen.shown.isascii()
        assert b"\x1b" not in screen.shown
        assert rb"\x1b]0;title\x07" in screen.shown


def test_surrogates_do_not_end_the_program_where_no_terminal_is(monkeypatch: pytest.MonkeyPatch) -> None:
    file = io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True)
    monkeypatch.setattr(sys, "stdout", file)
    with protected():
        print("\ud800\x1b[31m")
    assert file.buffer.getvalue() == b"\\ud800\x1b[31m\n"


def test_a_jobs_output_is_filtered_for_a_terminal_only(monkeypatch: pytest.MonkeyPatch) -> None:
    from costgpu.cli.terminal_observer import Terminal

    def shown(stream: Any) -> bytes:
        monkeypatch.setattr(sys, "stdout", stream)
        terminal = Terminal(ManualClock(), ask=False)
        terminal.output(LogStream.STDOUT, b"\x1b[31mred\x1b")
        terminal.output(LogStream.STDOUT, b"[0m\x1b[2J\n")
        shown: bytes = stream.buffer.getvalue()
        return shown

    raw = b"\x1b[31mred\x1b[0m\x1b[2J\n"
    assert shown(io.TextIOWrapper(io.BytesIO(), write_through=True)) == raw

    class Terminals(io.BytesIO):
        def isatty(self) -> bool:
            return True

    assert shown(io.TextIOWrapper(Terminals(), write_through=True)) == b"\x1b[31mred\x1b[0m^[[2J\n"
