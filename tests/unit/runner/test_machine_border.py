"""Whatever JSON an agent or a local record is made of, it becomes a typed value within its bounds, or is refused.

The fuzz of mutated true answers is in tests/fuzz.
"""

import contextlib
import json
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from costgpu.clock import ManualClock
from costgpu.errors import HostUnreachable, MachineUnusable
from costgpu.models.job import JobStatus, LogStream
from costgpu.providers.local import records
from costgpu.runner.files.paths import is_inside
from costgpu.runner.machine import agent_reply
from costgpu.runner.machine.host import LogPosition
from costgpu.runner.machine.log_frames import LogData, SignOfLife, read_frames
from tests.fuzz.planted_agent import OUTPUTS, SHA, STATUS, PlantedAgent, frame, log, reply, whole_stream
from tests.properties import examples

scalars = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20) | st.just(10**400)
anything = st.recursive(
    scalars,
    lambda below: st.lists(below, max_size=4) | st.dictionaries(st.text(max_size=9), below, max_size=4),
    max_leaves=12,
)


@examples(1000)
@given(st.sampled_from(sorted(STATUS)), anything)
@example("started_epoch", 10**400)
@example("phase", ["finished"])
def test_a_status_with_any_field(name: str, value: Any) -> None:
    try:
        status = agent_reply.status(agent_reply.Fields(STATUS | {name: value}))
    except agent_reply.Unfit:
        return
    assert isinstance(status, JobStatus)
    assert status.exit_code is None or 0 <= status.exit_code <= 255


row = st.tuples(
    st.text(max_size=9), st.integers(-2, 1 << 70), st.just(SHA) | st.text(max_size=5), st.integers(-2, 1 << 20)
)


@examples(1000)
@given(st.lists(row.map(list) | anything, max_size=4) | anything)
@example([["a\\b", 0, SHA, 0o104755]])
def test_outputs_with_any_rows(rows: Any) -> None:
    try:
        found = agent_reply.outputs(agent_reply.Fields(OUTPUTS | {"files": rows}))
    except agent_reply.Unfit:
        return
    assert all(is_inside(entry.path) and 0 <= entry.mode <= 0o777 and entry.size >= 0 for entry in found.files)


def test_a_lone_surrogate_is_no_name_of_a_file_and_a_byte_that_is_no_text_is() -> None:
    for path, known in (("a\udcff", True), ("a\ud800", False), ("\udfff/b", False)):
        rows = agent_reply.decode(json.dumps(OUTPUTS | {"files": [[path, 1, SHA, 0o644]]}))
        with contextlib.nullcontext() if known else pytest.raises(agent_reply.Unfit, match="not inside its folder"):
            assert agent_reply.outputs(agent_reply.Fields(rows)).files[0].path == path


@examples(500)
@given(anything, st.sampled_from([records.facts, records.host_record, records.ending, records.noted]))
def test_a_local_record_of_anything(value: Any, parse: Any) -> None:
    document = value if isinstance(value, dict) else {"tags": value, "at": value, "pid": value, "processes": value}
    with contextlib.suppress(records.Damaged):
        assert isinstance(parse(document), tuple | list)


@examples(500)
@given(
    st.binary(max_size=300) | st.binary(max_size=40).map(lambda data: whole_stream()[:60] + data), st.integers(1, 50)
)
def test_frames_of_any_bytes(data: bytes, size: int) -> None:
    pieces = [data[at : at + size] for at in range(0, len(data), size)]
    try:
        found = list(read_frames(iter(pieces), 25.0, ManualClock().monotonic))
    except (MachineUnusable, HostUnreachable):
        return
    assert all(isinstance(one, LogData | SignOfLife | JobStatus) for one in found)


@given(st.integers(1, 60))
def test_a_true_stream_is_the_same_however_it_is_cut(size: int) -> None:
    data, seen = whole_stream(), {LogStream.STDOUT: b"", LogStream.STDERR: b""}

    def sink(stream: LogStream, new: bytes) -> None:
        seen[stream] += new

    agent = PlantedAgent(sends=lambda: [data[at : at + size] for at in range(0, len(data), size)])
    assert agent.host.follow(LogPosition(), sink).exit_code == 3
    assert seen == {LogStream.STDOUT: b"epoch 1\nepoch 2\n", LogStream.STDERR: b"warning\n"}


@pytest.mark.parametrize(
    "text", ["[" * 100_000, "9" * 10_000, "NaN", '{"a": Infinity}', "", "\0", '{"a": ' * 50 + "1" + "}" * 50]
)
def test_json_beyond_its_bounds(text: str) -> None:
    with pytest.raises(agent_reply.Unfit):
        agent_reply.Fields(agent_reply.decode(text))


def test_the_error_names_the_border_and_what_is_wrong() -> None:
    with pytest.raises(MachineUnusable) as raised:
        PlantedAgent(lambda _: reply(STATUS | {"exit_code": 300})).host.status()
    assert "(status)" in raised.value.message
    assert "`exit_code` is not between 0 and 255" in raised.value.message
    assert "end of its lease" in raised.value.hint


@pytest.mark.parametrize("bad", [frame(b"x", b""), frame(b"o", b"123"), frame(b"s", b"[]"), log(7, b"x")])
def test_a_frame_that_is_none(bad: bytes) -> None:
    agent = PlantedAgent(sends=lambda: [whole_stream()[:23], bad])
    with pytest.raises((MachineUnusable, HostUnreachable)):
        agent.host.follow(LogPosition(), lambda *_: None)
