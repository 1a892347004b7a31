"""SSH alone: who is believed, what is used, and what happens when the network goes."""

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import asyncssh
import pytest

from costgpu.errors import HostKeyMismatch, HostUnreachable, RunError
from costgpu.job.files.download import RemoteFile
from costgpu.job.machine.keys import make_keys
from costgpu.job.machine.transport import ssh_connect
from costgpu.job.machine.transport.ssh import SshTransport
from costgpu.models.instance import Endpoint
from tests.transport.sshd import Server, Wire, free_port, serve
from tests.until import until


@pytest.fixture
def wire(server: Server) -> Iterator[Wire]:
    wire = Wire(server.endpoint.port)
    yield wire
    wire.close()


def through(wire: Wire, server: Server, **more: float) -> SshTransport:
    return SshTransport(replace(server.endpoint, port=wire.port), server.keys, **more)


def fingerprint(public: str) -> str:
    return asyncssh.import_public_key(public).get_fingerprint()


def test_another_host_key_is_not_believed(server: Server, tmp_path: Path) -> None:
    other = make_keys(tmp_path / "other")
    expecting = replace(server.keys, host_public=other.host_public)
    with pytest.raises(HostKeyMismatch) as caught:
        SshTransport(server.endpoint, expecting).open()
    prints = fingerprint(other.host_public), fingerprint(server.keys.host_public)
    for part in (f"127.0.0.1:{server.endpoint.port}", *prints):
        assert part in caught.value.message
    assert caught.value.hint


@pytest.mark.parametrize("algorithm", ["ssh-rsa", "ecdsa-sha2-nistp256"])
def test_another_kind_of_host_key_is_not_believed(server: Server, tmp_path: Path, algorithm: str) -> None:
    key = asyncssh.generate_private_key(algorithm)
    key.write_private_key(tmp_path / "host")
    (tmp_path / "host").chmod(0o600)
    with serve(tmp_path / "s", keys=server.keys, host_key=tmp_path / "host") as impostor:
        transport = SshTransport(impostor.endpoint, server.keys)
        with pytest.raises(HostKeyMismatch) as caught:
            transport.open()
        assert key.get_fingerprint() in caught.value.message
        assert "Accepted" not in impostor.log


def test_our_key_is_found_among_others(server: Server, tmp_path: Path) -> None:
    asyncssh.generate_private_key("ssh-rsa").write_private_key(tmp_path / "rsa")
    (tmp_path / "rsa").chmod(0o600)
    with serve(tmp_path / "s", keys=server.keys, extra=f"HostKey {tmp_path}/rsa") as both:
        transport = SshTransport(both.endpoint, server.keys)
        assert transport.run(["echo", "hello"]).stdout == b"hello\n"
        transport.close()


def test_nothing_of_the_users_own_ssh_is_used(
    server: Server, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    folder = Path(os.environ["HOME"]) / ".ssh"
    folder.mkdir(mode=0o700)
    (folder / "config").write_text(
        "Host *\n  ProxyCommand false\n  User nobody\n  Port 1\n  IdentityFile /nonexistent\n"
    )
    (folder / "known_hosts").write_text(f"[127.0.0.1]:{server.endpoint.port} {make_keys(tmp_path / 'k').host_public}\n")
    stranger = make_keys(tmp_path / "stranger")
    (folder / "id_ed25519").write_bytes(server.keys.user_private.read_bytes())
    agent = subprocess.Popen(["ssh-agent", "-D", "-a", tmp_path / "agent"], stdout=subprocess.DEVNULL)
    request.addfinalizer(lambda: agent.wait(10))
    request.addfinalizer(agent.terminate)
    monkeypatch.setenv("SSH_AUTH_SOCK", str(tmp_path / "agent"))
    until((tmp_path / "agent").exists)
    subprocess.run(["ssh-add", "-q", server.keys.user_private], check=True)
    transport = SshTransport(server.endpoint, server.keys)
    transport.open()
    transport.close()
    with pytest.raises(HostUnreachable, match="does not let the run's key in"):
        SshTransport(server.endpoint, replace(server.keys, user_private=stranger.user_private)).open()


def test_a_machine_that_lets_us_in_later(server: Server, tmp_path: Path) -> None:
    with serve(tmp_path / "s") as booting:
        authorized = booting.folder / "authorized_keys"
        content = authorized.read_text()
        authorized.unlink()
        transport = SshTransport(booting.endpoint, booting.keys)
        with pytest.raises(HostUnreachable):
            transport.open()
        authorized.write_text(content)
        transport.open()
        transport.close()


def test_nobody_listens(server: Server) -> None:
    endpoint = replace(server.endpoint, port=free_port())
    with pytest.raises(HostUnreachable, match="refuses the connection"):
        SshTransport(endpoint, server.keys).open()


def test_no_such_name(server: Server) -> None:
    with pytest.raises(HostUnreachable):
        SshTransport(replace(server.endpoint, host="no-such-host.invalid"), server.keys).open()


@pytest.mark.parametrize("banner", [b"", b"SSH-2.0-OpenSSH_9.2\r\n"])
def test_a_listener_that_says_nothing_more(server: Server, banner: bytes) -> None:
    held: list[socket.socket] = []

    def accept() -> None:
        connection, _ = listener.accept()
        held.append(connection)
        connection.sendall(banner)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=accept, daemon=True).start()
        endpoint = replace(server.endpoint, port=listener.getsockname()[1])
        started = time.monotonic()
        with pytest.raises(HostUnreachable, match=r"does not answer within 0\.3 s"):
            SshTransport(endpoint, server.keys, connect_timeout_seconds=0.3).open()
        assert time.monotonic() - started < 5
    held[0].close()


@pytest.mark.parametrize(
    "answer", [b"", b"HTTP/1.1 400 Bad Request\r\n\r\n", b"SSH-1.5-old\r\n", bytes(range(256)) * 9]
)
def test_what_is_no_ssh_server(server: Server, answer: bytes) -> None:
    def accept() -> None:
        connection, _ = listener.accept()
        connection.sendall(answer)
        connection.close()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=accept, daemon=True).start()
        endpoint = replace(server.endpoint, port=listener.getsockname()[1])
        with pytest.raises(HostUnreachable):
            SshTransport(endpoint, server.keys, connect_timeout_seconds=3).open()


def test_keys_that_are_gone(server: Server, tmp_path: Path) -> None:
    with pytest.raises(RunError, match="keys of the run"):
        SshTransport(server.endpoint, replace(server.keys, user_private=tmp_path / "gone")).open()


def test_banners_and_start_up_files_do_not_confuse(server: Server, tmp_path: Path) -> None:
    (tmp_path / "banner").write_text("AUTHORISED USERS ONLY\n" * 50)
    (tmp_path / "noise").write_text("echo Welcome to your instance; echo noise >&2\n")
    extra = f"Banner {tmp_path}/banner\nPrintMotd yes\nSetEnv BASH_ENV={tmp_path}/noise ENV={tmp_path}/noise"
    with serve(tmp_path / "s", keys=server.keys, extra=extra) as noisy:
        transport = SshTransport(noisy.endpoint, server.keys)
        assert transport.run(["printf", "exactly\\nthis"]).stdout == b"exactly\nthis"
        with transport.stream(["echo", "-n", "and this"], silence_seconds=60) as pieces:
            assert b"".join(pieces) == b"and this"
        transport.close()


def test_a_machine_that_runs_another_command(server: Server, tmp_path: Path) -> None:
    extra = 'ForceCommand echo "Please login as the user ubuntu rather than root."; exit 142'
    with serve(tmp_path / "s", keys=server.keys, extra=extra) as forced:
        transport = SshTransport(forced.endpoint, server.keys)
        with pytest.raises(HostUnreachable, match="Please login as the user ubuntu"):
            transport.run(["true"])
        with (
            pytest.raises(HostUnreachable, match="runs no command"),
            transport.stream(["true"], silence_seconds=60) as pieces,
        ):
            next(pieces)
        transport.close()


def test_a_reset_is_an_error_and_the_next_command_connects_again(server: Server, wire: Wire) -> None:
    transport = through(wire, server)
    with transport.stream(["/bin/sh", "-c", "echo one; sleep 60"], silence_seconds=60) as pieces:
        assert next(pieces) == b"one\n"
        wire.reset()
        with pytest.raises(HostUnreachable):
            next(pieces)
    assert transport.run(["echo", "again"]).stdout == b"again\n"
    transport.close()


def test_a_stream_that_was_cut_does_not_look_finished(server: Server, wire: Wire) -> None:
    """Neither by a reset nor by an orderly end of the connection."""
    transport = through(wire, server)
    with transport.stream(["/bin/sh", "-c", "echo $PPID; sleep 60"], silence_seconds=60) as pieces:
        os.kill(int(next(pieces)), signal.SIGKILL)
        with pytest.raises(HostUnreachable):
            list(pieces)
    transport.close()


@pytest.mark.slow
def test_a_network_that_is_gone_is_noticed(server: Server, wire: Wire, monkeypatch: pytest.MonkeyPatch) -> None:
    assert ssh_connect.KEEPALIVE_SECONDS * (ssh_connect.KEEPALIVE_COUNT + 1) == 30
    monkeypatch.setattr(ssh_connect, "KEEPALIVE_SECONDS", 1.0)
    transport = through(wire, server, connect_timeout_seconds=5)
    with transport.stream(["/bin/sh", "-c", "echo one; sleep 60"], silence_seconds=60) as pieces:
        assert next(pieces) == b"one\n"
        wire.cut = True
        started = time.monotonic()
        with pytest.raises(HostUnreachable):
            next(pieces)
        assert 0.5 < time.monotonic() - started < 8
    with pytest.raises(HostUnreachable, match="does not answer within 5 s"):
        transport.run(["true"])
    wire.cut = False
    assert transport.run(["echo", "back"]).stdout == b"back\n"
    transport.close()


@pytest.mark.slow
def test_a_download_that_is_cut(server: Server, wire: Wire, tmp_path: Path) -> None:
    (tmp_path / "large").write_bytes(os.urandom(64 << 20))
    transport = through(wire, server)
    transport.open()

    def cut() -> None:
        until(lambda: wire.bytes >= 8 << 20)
        wire.reset()

    threading.Thread(target=cut, daemon=True).start()
    with pytest.raises(HostUnreachable):
        transport.download([RemoteFile(str(tmp_path / "large"), tmp_path / "copy", 64 << 20)])
    transport.download([RemoteFile(str(tmp_path / "large"), tmp_path / "copy", 64 << 20)])
    assert (tmp_path / "copy").read_bytes() == (tmp_path / "large").read_bytes()
    transport.close()


def test_a_closed_transport_stays_closed(server: Server) -> None:
    transport = SshTransport(server.endpoint, server.keys)
    transport.open()
    transport.close()
    with pytest.raises(HostUnreachable, match="was closed"):
        transport.run(["true"])


def test_closing_ends_a_stream_in_another_thread(server: Server) -> None:
    transport = SshTransport(server.endpoint, server.keys)
    caught: list[BaseException] = []
    started = threading.Event()

    def follow() -> None:
        try:
            with transport.stream(["/bin/sh", "-c", "echo one; sleep 60"], silence_seconds=60) as pieces:
                next(pieces)
                started.set()
                next(pieces)
        except HostUnreachable as exc:
            caught.append(exc)

    thread = threading.Thread(target=follow)
    thread.start()
    assert started.wait(10)
    transport.close()
    thread.join(10)
    assert caught


CONNECTED = """
import sys
from pathlib import Path
from costgpu.models.instance import Endpoint
from costgpu.job.machine.keys import load_keys
from costgpu.job.machine.transport.ssh import SshTransport
transport = SshTransport(
    Endpoint(kind="ssh", host="127.0.0.1", port=int(sys.argv[1]), user=sys.argv[2]), load_keys(Path(sys.argv[3]))
)
"""
INTERRUPTED = """
try:
    if sys.argv[4] == "stream":
        with transport.stream(["/bin/sh", "-c", sys.argv[5]], silence_seconds=60) as pieces:
            list(pieces)
    else:
        transport.run(["/bin/sh", "-c", sys.argv[5]])
except KeyboardInterrupt:
    print("interrupted")
"""


def program(server: Server, root: Path, code: str, *arguments: str, dev: bool = False) -> subprocess.Popen[str]:
    """Another process with a transport."""
    where = [str(server.endpoint.port), server.endpoint.user, str(server.keys.user_private.parent)]
    strict = ["-W", "error", "-X", "dev"] if dev else ["-W", "error"]
    command = [sys.executable, *strict, "-c", CONNECTED + code, *where, *arguments]
    return subprocess.Popen(command, cwd=root, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@pytest.mark.parametrize("what", ["stream", "run"])
def test_ctrl_c_ends_a_wait(server: Server, root: Path, tmp_path: Path, what: str) -> None:
    process = program(server, root, INTERRUPTED, what, f"touch {tmp_path}/runs; exec sleep 600")
    until((tmp_path / "runs").exists)
    started = time.monotonic()
    process.send_signal(signal.SIGINT)
    stdout, stderr = process.communicate(timeout=20)
    assert (process.returncode, stdout, stderr) == (0, "interrupted\n", "")
    assert time.monotonic() - started < 6


@pytest.mark.parametrize(
    ("code", "printed"),
    [
        ("transport.open()\nprint(transport.run(['echo', 'x']).stdout)", "b'x\\n'\n"),
        ("import atexit\natexit.register(lambda: (transport.close(), print('closed')))\ntransport.open()", "closed\n"),
    ],
    ids=["never closed", "closed at exit"],
)
def test_a_process_ends_quietly_however_it_closes(server: Server, root: Path, code: str, printed: str) -> None:
    process = program(server, root, code, dev=True)
    stdout, stderr = process.communicate(timeout=20)
    assert (process.returncode, stdout, stderr) == (0, printed, "")


def test_a_child_after_fork_has_a_connection_of_its_own(server: Server, ssh: SshTransport) -> None:
    ssh.open()
    child = os.fork()
    if child == 0:
        code = 1
        try:
            own = SshTransport(server.endpoint, server.keys)
            code = 0 if own.run(["echo", "child"]).stdout == b"child\n" else 2
        finally:
            os._exit(code)
    ended: list[int] = []

    def has_ended() -> bool:
        pid, status = os.waitpid(child, os.WNOHANG)
        if pid:
            ended.append(os.waitstatus_to_exitcode(status))
        return bool(pid)

    try:
        until(has_ended)
    finally:
        if not ended:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
    assert ended == [0]
    assert ssh.run(["echo", "parent"]).stdout == b"parent\n"


def test_an_address_in_messages() -> None:
    assert ssh_connect.address(Endpoint(kind="ssh", host="2001:db8::1", port=22)) == "root@[2001:db8::1]:22"
