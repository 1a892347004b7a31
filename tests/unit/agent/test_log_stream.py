"""The stream of a job's logs tells that its guard lives, and not only that somebody sends it."""

import time
from pathlib import Path

import pytest

from costgpu.job.agent import log_stream
from costgpu.job.agent.rpc import is_answering
from costgpu.job.agent.state_files import Home


@pytest.mark.parametrize("answers", [True, False])
def test_a_sign_of_life_is_the_daemons(answers: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home, sent, looks = Home(str(tmp_path)), bytearray(), iter(range(100))

    def sleep(_seconds: float) -> None:
        if next(looks) == 3:
            record = {"exit_code": 0, "reason": None, "detail": "", "finished_epoch": time.time(), "signalled": False}
            home.write("exit.json", record)

    monkeypatch.setenv("COSTGPU_AGENT_KEEPALIVE_SECONDS", "0")
    monkeypatch.setattr("costgpu.job.agent.log_stream.time.sleep", sleep)
    monkeypatch.setattr("costgpu.job.agent.log_stream.is_answering", lambda *_: answers)
    monkeypatch.setattr(log_stream, "_write", lambda _descriptor, data: sent.extend(data))
    log_stream.stream_logs(home, [0, 0])
    assert (log_stream.HEADER.pack(b"k", 0) in sent) is answers
    assert b'"phase": "finished"' in sent


def test_nobody_answers_where_there_is_no_daemon(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert not is_answering(Home(str(tmp_path)), 0.1)
