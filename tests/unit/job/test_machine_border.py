"""Whatever JSON an agent or a local record is made of, it becomes a typed value, or is refused."""

import contextlib
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from costgpu.errors import HostUnreachable, MachineUnusable, OutputsDamaged
from costgpu.job.files import agent_report
from costgpu.job.machine.host import LogPosition
from costgpu.models.job import LogStream
from tests.fuzz.planted_agent import OUTPUTS, SHA, STATUS, PlantedAgent, frame, log, reply, whole_stream


@pytest.mark.parametrize("path", ["../x", "/etc/x", "a/../../x", "", ".", "..", "a//b", "a/", "./a", "a\0b"])
def test_paths_that_lead_out_of_the_folder(path: str) -> None:
    for answer in (OUTPUTS | {"files": [[path, 1, SHA, 0o644]]}, OUTPUTS | {"folders": [path]}):
        with pytest.raises(ValueError, match="not inside"):
            agent_report.outputs(answer)


def test_a_lone_surrogate_is_no_name_of_a_file_and_a_byte_that_is_no_text_is() -> None:
    for path, known in (("a\udcff", True), ("a\ud800", False), ("\udfff/b", False)):
        rows = json.loads(json.dumps(OUTPUTS | {"files": [[path, 1, SHA, 0o644]]}))
        with contextlib.nullcontext() if known else pytest.raises(ValueError, match="not inside its folder"):
            assert agent_report.outputs(rows).files[0].path == path


@given(st.integers(1, 60))
def test_a_true_stream_is_the_same_however_it_is_cut(size: int) -> None:
    data, seen = whole_stream(), {LogStream.STDOUT: b"", LogStream.STDERR: b""}

    def sink(stream: LogStream, new: bytes) -> None:
        seen[stream] += new

    agent = PlantedAgent(sends=lambda: [data[at : at + size] for at in range(0, len(data), size)])
    assert agent.host.follow(LogPosition(), sink).exit_code == 3
    assert seen == {LogStream.STDOUT: b"epoch 1\nepoch 2\n", LogStream.STDERR: b"warning\n"}


def test_the_error_names_the_border_and_what_is_wrong() -> None:
    with pytest.raises(MachineUnusable) as raised:
        PlantedAgent(lambda _: reply(STATUS | {"exit_code": "3"})).host.status()
    assert "(status)" in raised.value.message
    assert "exit_code: Input should be a valid integer" in raised.value.message
    assert "end of its lease" in raised.value.hint


@pytest.mark.parametrize("bad", [frame(b"x", b""), frame(b"o", b"123"), frame(b"s", b"[]"), log(7, b"x")])
def test_a_frame_that_is_none(bad: bytes) -> None:
    agent = PlantedAgent(sends=lambda: [whole_stream()[:23], bad])
    with pytest.raises((MachineUnusable, HostUnreachable)):
        agent.host.follow(LogPosition(), lambda *_: None)


def test_no_file_but_the_two_logs_comes_into_the_folder_with_the_runs_keys(tmp_path: Path) -> None:
    row = ["user_private", 4, SHA, 0o644]
    with pytest.raises(OutputsDamaged, match="other logs"):
        PlantedAgent(lambda _: reply({"files": [row]})).host.fetch_logs(tmp_path)
    assert list(tmp_path.iterdir()) == []
