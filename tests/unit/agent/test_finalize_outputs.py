"""What a job has left, made ready: what is uploaded, and what is remembered of it."""

import errno
import os
from pathlib import Path
from typing import Any

import pytest

from costgpu.job.agent.outputs import find_outputs, upload
from costgpu.job.agent.outputs.upload import finalize_outputs
from costgpu.job.agent.state_files import Home
from tests.unit.agent.simulation import SimulatedClock
from tests.unit.agent.test_workdir import refuse

CLOCK = SimulatedClock()
ORDER: dict[str, Any] = {"outputs": []}
URLS = {"outputs": "https://b/outputs", "logs": "https://b/logs"}


@pytest.fixture
def home(tmp_path: Path) -> Home:
    folder = tmp_path / "home"
    (folder / "work").mkdir(parents=True)
    for name in ("stdout.log", "stderr.log", "work/model", "work/locked"):
        (folder / name).write_text("x")
    return Home(str(folder))


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> dict[str, list[str]]:
    """Address -> names that were uploaded there."""
    found: dict[str, list[str]] = {}
    monkeypatch.setattr(
        upload, "upload_archive", lambda url, files, *_: found.update({url: [each[0] for each in files]})
    )
    return found


def test_outputs_and_logs_go_to_the_bucket(home: Home, sent: dict[str, list[str]]) -> None:
    changes = finalize_outputs(home, ORDER, URLS, lambda: False, CLOCK)
    assert sent == {
        "https://b/outputs": ["locked", "model"],
        "https://b/logs": ["stdout.log", "stderr.log", "status.json"],
    }
    assert (changes["settled"], changes["uploaded"]) == (True, True)
    assert "trouble" not in changes
    assert set((home.read("outputs.json") or {})["files"]) == {home.work + "/model", home.work + "/locked"}


def test_what_cannot_be_read_does_not_keep_the_others_here(
    home: Home, sent: dict[str, list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    refuse(monkeypatch, os, "open", {"locked": errno.EACCES})
    changes = finalize_outputs(home, ORDER, URLS, lambda: False, CLOCK)
    assert sent["https://b/outputs"] == ["model"]
    assert "locked (Permission denied)" in (home.read("status.json") or {})["detail"]
    assert changes == {"settled": True, "trouble": "Not all outputs can be read: locked (Permission denied)."}


@pytest.mark.parametrize("refused", [False, True])
def test_what_lies_outside_is_sent_last_and_held_if_that_fails(
    home: Home, monkeypatch: pytest.MonkeyPatch, refused: bool
) -> None:
    home.remote, home.root = True, str(Path(home.path).parent)
    home.write("progress.json", {"job_started_epoch": 0.0})
    (Path(home.root) / "scratch").mkdir()
    (Path(home.root) / "scratch/weights").write_text("x")
    sent: list[str] = []

    def upload_archive(url: str, files: list[tuple[str, str, int, int]], *_: object) -> None:
        sent.append(url)
        if url.endswith("outside"):
            assert [each[0] for each in files] == ["outside/scratch/weights"]
            if refused:
                raise upload.UploadFailed("6.0 GiB are more than one upload may have")

    monkeypatch.setattr(upload, "upload_archive", upload_archive)
    changes = finalize_outputs(home, ORDER, {**URLS, "outside": "https://b/outside"}, lambda: False, CLOCK)
    assert sent == ["https://b/outputs", "https://b/logs", "https://b/outside"]
    assert changes.get("uploaded", False) is not refused
    assert ("trouble" in changes) is refused


def test_a_job_that_made_nothing_waits_though_there_is_a_bucket(home: Home, sent: dict[str, list[str]]) -> None:
    home.remote, home.root = True, home.path
    for name in ("model", "locked"):
        (Path(home.work) / name).unlink()
    home.write("progress.json", {"job_started_epoch": 1000.0})
    home.write("exit.json", {"exit_code": 0, "finished_epoch": 1061.0})
    changes = finalize_outputs(home, ORDER, URLS, lambda: False, CLOCK)
    assert "uploaded" not in changes
    assert "61 s and has left no outputs" in changes["trouble"]
    assert set(sent) == {"https://b/outputs", "https://b/logs"}


def test_without_a_bucket_nothing_is_sent(home: Home, sent: dict[str, list[str]]) -> None:
    assert finalize_outputs(home, ORDER, {}, lambda: False, CLOCK) == {"settled": True}
    assert sent == {}


def test_a_failed_upload_is_told(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse_upload(*_: object) -> None:
        raise upload.UploadFailed("HTTP 403 AccessDenied")

    monkeypatch.setattr(upload, "upload_archive", refuse_upload)
    changes = finalize_outputs(home, ORDER, URLS, lambda: False, CLOCK)
    assert changes == {
        "settled": True,
        "trouble": "The upload failed (HTTP 403 AccessDenied): the outputs wait on the machine.",
    }


def test_it_never_raises(home: Home, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(find_outputs, "find_outputs", lambda *_: 1 / 0)
    changes = finalize_outputs(home, ORDER, {}, lambda: False, CLOCK)
    assert changes == {"settled": True, "trouble": "The outputs could not be prepared: ZeroDivisionError."}
    assert "ZeroDivisionError" in capfd.readouterr().err
