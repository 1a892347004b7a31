"""What every transport does: the same tests over a real sshd and over this machine."""

import hashlib
import os
import sys
import time
from collections.abc import Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from costgpu.errors import HostUnreachable, OutputsMissing, RunError
from costgpu.job.files.download import RemoteFile
from costgpu.job.machine.host import Transport
from costgpu.job.machine.transport import event_loop
from costgpu.portable.processes import process
from tests.until import until

MIB = 1 << 20


def python(code: str, *args: str) -> list[str]:
    return [sys.executable, "-c", code, *args]


def wait_until_gone(pid: int) -> None:
    until(lambda: process(pid) is None)


def test_output_and_return_code(transport: Transport) -> None:
    ended = transport.run(["/bin/sh", "-c", "echo out; echo err >&2; exit 3"])
    assert (ended.returncode, ended.stdout, ended.stderr) == (3, b"out\n", b"err\n")


def test_arguments_arrive_as_they_are(transport: Transport) -> None:
    texts = ["", " ", "a b", "$HOME", "`id`", "'", '"', "\\", "a\nb", "*", "~", "-n", "é ü 漢", ";true", "!x", "\t"]
    ended = transport.run(python("import sys; sys.stdout.write(ascii(sys.argv[1:]))", *texts))
    assert ended.stdout.decode() == ascii(texts)


def test_a_missing_command_is_127(transport: Transport) -> None:
    ended = transport.run(["costgpu-no-such-command"])
    assert ended.returncode == 127
    assert b"costgpu-no-such-command" in ended.stderr


def test_a_command_that_may_not_be_run_is_126(transport: Transport, tmp_path: Path) -> None:
    (tmp_path / "plain").write_text("no program")
    (tmp_path / "plain").chmod(0o644)
    assert transport.run([str(tmp_path / "plain")]).returncode == 126


def test_a_signal_is_negative(transport: Transport) -> None:
    assert transport.run(["/bin/sh", "-c", "kill -9 $$"]).returncode == -9


def test_stdin_is_whole_and_ends(transport: Transport) -> None:
    data = os.urandom(3 * MIB + 17)
    assert transport.run(["cat"], stdin=data).stdout == data
    pieces = [data[i : i + 1000] for i in range(0, len(data), 1000)]
    assert transport.run(["cat"], stdin=iter(pieces)).stdout == data
    assert transport.run(["cat"]).stdout == b""


def test_stdin_is_taken_only_as_fast_as_it_is_read(transport: Transport) -> None:
    taken = 0

    def pieces() -> Iterator[bytes]:
        nonlocal taken
        for _ in range(64):
            taken += 1
            yield bytes(MIB)

    with pytest.raises(HostUnreachable):
        transport.run(["sleep", "60"], stdin=pieces(), timeout_seconds=1)
    assert taken < 16, "at most what pipes, windows and buffers hold"


@pytest.mark.slow
def test_silence_is_counted_anew_with_each_piece(transport: Transport) -> None:
    def slow() -> Iterator[bytes]:
        for _ in range(2):
            time.sleep(5.5)
            yield b"x" * 300_000

    assert transport.run(["wc", "-c"], stdin=slow(), timeout_seconds=5).stdout.strip() == b"600000"


def test_a_command_that_leaves_its_input_is_no_error(transport: Transport) -> None:
    ended = transport.run(["/bin/sh", "-c", "head -c 10 >/dev/null; exit 4"], stdin=(bytes(MIB) for _ in range(64)))
    assert ended.returncode == 4


def test_input_that_cannot_be_read_ends_the_command(transport: Transport, tmp_path: Path) -> None:
    def broken() -> Iterator[bytes]:
        yield b"x" * MIB
        until((tmp_path / "pid").exists)
        raise FileNotFoundError("vanished")

    script = f"echo $$ >{tmp_path}/new; mv {tmp_path}/new {tmp_path}/pid; cat >/dev/null; sleep 60"
    with pytest.raises(FileNotFoundError, match="vanished"):
        transport.run(["/bin/sh", "-c", script], stdin=broken())
    wait_until_gone(int((tmp_path / "pid").read_text()))


def test_a_timeout_ends_the_command(transport: Transport, tmp_path: Path) -> None:
    began: list[float] = []

    def once_it_runs() -> Iterator[bytes]:
        until((tmp_path / "pid").exists)
        began.append(time.monotonic())
        yield b"x"

    script = f"echo $$ >{tmp_path}/new; mv {tmp_path}/new {tmp_path}/pid; sleep 60"
    with pytest.raises(HostUnreachable, match=r"has not answered .*for 1 s"):
        transport.run(["/bin/sh", "-c", script], stdin=once_it_runs(), timeout_seconds=1)
    assert time.monotonic() - began[0] < 10
    wait_until_gone(int((tmp_path / "pid").read_text()))
    assert time.monotonic() - began[0] < 15  # long before it would have ended by itself


def test_a_stream_comes_as_it_is_written(transport: Transport, tmp_path: Path) -> None:
    script = f"echo one; until [ -e {tmp_path}/go ]; do sleep 0.05; done; echo two; sleep 60"
    with transport.stream(["/bin/sh", "-c", script], silence_seconds=60) as pieces:
        started = time.monotonic()
        assert next(pieces) == b"one\n"
        (tmp_path / "go").touch()
        assert next(pieces) == b"two\n"
        assert time.monotonic() - started < 10


def test_a_stream_ends_with_its_command(transport: Transport) -> None:
    data = 5 * MIB
    with transport.stream(
        ["/bin/sh", "-c", f"head -c {data} /dev/zero; echo bye >&2; exit 1"], silence_seconds=60
    ) as pieces:
        assert sum(len(piece) for piece in pieces) == data


def test_a_stream_without_a_command_is_empty(transport: Transport) -> None:
    with transport.stream(["costgpu-no-such-command"], silence_seconds=60) as pieces:
        assert list(pieces) == []


def test_a_silent_stream_is_given_up(transport: Transport) -> None:
    with (
        transport.stream(["sleep", "60"], silence_seconds=0.1) as pieces,
        pytest.raises(HostUnreachable, match="no sign of life"),
    ):
        next(pieces)


def test_a_stream_is_read_only_as_fast_as_its_reader(transport: Transport, tmp_path: Path) -> None:
    code = (
        "import sys\nfor i in range(64):\n sys.stdout.buffer.write(bytes(1 << 20)); sys.stdout.flush()\n"
        " open(sys.argv[1], 'a').write('x')"
    )
    (tmp_path / "count").touch()
    with transport.stream(python(code, str(tmp_path / "count")), silence_seconds=60) as pieces:
        next(pieces)
        time.sleep(1.5)
        assert len((tmp_path / "count").read_text()) < 16


def test_leaving_a_stream_ends_its_command_and_what_it_started(transport: Transport) -> None:
    script = "sleep 60 & echo $$ $!; wait"
    started = time.monotonic()
    with transport.stream(["/bin/sh", "-c", script], silence_seconds=60) as pieces:
        pids = [int(word) for word in next(pieces).split()]
    assert time.monotonic() - started < 10
    for pid in pids:
        wait_until_gone(pid)
    assert time.monotonic() - started < 15  # long before they would have ended by themselves


def test_ctrl_c_before_a_piece_is_waited_for_ends_the_command(
    transport: Transport, monkeypatch: pytest.MonkeyPatch
) -> None:
    submit = event_loop.shared().submit

    def interrupted(coroutine: Coroutine[Any, Any, Any]) -> None:
        submit(coroutine)
        monkeypatch.undo()
        raise KeyboardInterrupt

    with transport.stream(["/bin/sh", "-c", "echo $$; exec sleep 60"], silence_seconds=30) as pieces:
        pid = int(next(pieces))
        monkeypatch.setattr(event_loop.shared(), "submit", interrupted)
        with pytest.raises(KeyboardInterrupt):
            next(pieces)
    wait_until_gone(pid)


def test_a_command_that_ignores_sigterm_is_killed(transport: Transport) -> None:
    code = "import os, signal, time; signal.signal(15, signal.SIG_IGN); print(os.getpid(), flush=True); time.sleep(60)"
    with transport.stream(python(code), silence_seconds=60) as pieces:
        pid = int(next(pieces))
    wait_until_gone(pid)


def test_much_on_stderr_does_not_block(transport: Transport) -> None:
    script = "head -c 20000000 /dev/zero >&2; echo done"
    with transport.stream(["/bin/sh", "-c", script], silence_seconds=60) as pieces:
        assert b"".join(pieces) == b"done\n"
    assert transport.run(["/bin/sh", "-c", script]).stdout == b"done\n"


def test_downloads_are_exact(transport: Transport, tmp_path: Path) -> None:
    there, here = tmp_path / "there", tmp_path / "here"
    there.mkdir()
    here.mkdir()
    sizes = [0, 1, 32768, 32769, 5 * MIB + 3, *[100] * 50]
    for index, size in enumerate(sizes):
        (there / f"f {index}\n").write_bytes(os.urandom(size))
    transport.download([RemoteFile(str(path), here / path.name, path.stat().st_size) for path in there.iterdir()])
    for path in there.iterdir():
        assert hashlib.sha256(path.read_bytes()).digest() == hashlib.sha256((here / path.name).read_bytes()).digest()
    transport.download([])


def test_a_download_of_what_is_not_there(transport: Transport, tmp_path: Path) -> None:
    (tmp_path / "there").write_text("x")
    with pytest.raises(OutputsMissing, match="missing"):
        transport.download(
            [
                RemoteFile(str(tmp_path / "there"), tmp_path / "a", 1),
                RemoteFile(str(tmp_path / "missing"), tmp_path / "b", 1),
            ]
        )


def test_a_download_that_cannot_be_written(transport: Transport, tmp_path: Path) -> None:
    (tmp_path / "there").write_text("x")
    with pytest.raises(RunError, match="no-folder/a cannot be written"):
        transport.download([RemoteFile(str(tmp_path / "there"), tmp_path / "no-folder" / "a", 1)])


def test_several_threads_share_a_transport(transport: Transport) -> None:
    with ThreadPoolExecutor(8) as pool:
        results = list(pool.map(lambda number: transport.run(["echo", str(number)]).stdout, range(8)))
    assert results == [f"{number}\n".encode() for number in range(8)]


def test_close_is_idempotent(transport: Transport) -> None:
    transport.run(["true"])
    transport.close()
    transport.close()
