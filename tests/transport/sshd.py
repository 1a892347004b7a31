"""A real sshd on a loopback port, and a wire to it that can be cut."""

import contextlib
import getpass
import shutil
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from costgpu.job.machine.host import Keys
from costgpu.job.machine.keys import make_keys
from costgpu.models.instance import Endpoint


def find_sshd() -> str | None:
    return shutil.which("sshd") or shutil.which("sshd", path="/usr/sbin:/usr/local/sbin")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@dataclass(frozen=True)
class Server:
    folder: Path
    keys: Keys
    endpoint: Endpoint
    process: subprocess.Popen[bytes]

    @property
    def log(self) -> str:
        return (self.folder / "sshd.log").read_text()


@contextlib.contextmanager
def serve(folder: Path, *, keys: Keys | None = None, extra: str = "", host_key: Path | None = None) -> Iterator[Server]:
    """Starts sshd with the run's host key; `extra` goes into its configuration."""
    folder.mkdir(parents=True, exist_ok=True)
    keys = keys or make_keys(folder / "keys")
    if host_key is None:
        host_key = folder / "host_key"
        host_key.write_text(keys.host_private)
        host_key.chmod(0o600)
    (folder / "authorized_keys").write_text(f"{keys.user_public}\n")
    Path("/run/sshd").mkdir(exist_ok=True) if getpass.getuser() == "root" else None
    port = free_port()
    config = folder / "sshd_config"
    config.write_text(
        f"{extra}\nListenAddress 127.0.0.1:{port}\nHostKey {host_key}\nPidFile none\nUsePAM no\nStrictModes no\n"
        f"AuthorizedKeysFile {folder}/authorized_keys\nPasswordAuthentication no\nPermitRootLogin prohibit-password\n"
        "MaxStartups 200\nSubsystem sftp internal-sftp\n"
    )
    process = subprocess.Popen([find_sshd() or "", "-D", "-f", config, "-E", folder / "sshd.log"])
    try:
        deadline = time.monotonic() + 60
        while True:
            assert process.poll() is None, (folder / "sshd.log").read_text()
            assert time.monotonic() < deadline, "sshd does not answer"
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
                break
            time.sleep(0.02)
        endpoint = Endpoint(kind="ssh", host="127.0.0.1", port=port, user=getpass.getuser())
        yield Server(folder, keys, endpoint, process)
    finally:
        process.terminate()
        process.wait(10)


class Wire:
    """Forwards TCP connections to a port until it is cut: bytes vanish, as in a network that is gone; or reset."""

    def __init__(self, port: int) -> None:
        self.cut = False
        self.bytes = 0
        self._target = port
        self._pairs: list[tuple[socket.socket, socket.socket]] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        self._accepting = threading.Thread(target=self._accept, daemon=True)
        self._accepting.start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                near, _ = self._listener.accept()
                far = socket.create_connection(("127.0.0.1", self._target))
                self._pairs.append((near, far))
                for one, other in ((near, far), (far, near)):
                    threading.Thread(target=self._forward, args=(one, other), daemon=True).start()

    def _forward(self, source: socket.socket, target: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                if not self.cut:
                    self.bytes += len(data)
                    target.sendall(data)
            if not self.cut:
                target.shutdown(socket.SHUT_WR)

    def reset(self) -> None:
        for pair in self._pairs:
            for one in pair:
                one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")
                with contextlib.suppress(OSError):
                    one.shutdown(socket.SHUT_RDWR)
                one.close()
        self._pairs.clear()

    def close(self) -> None:
        # A number that is closed while a thread accepts at it may be another socket's when the thread looks again.
        self._listener.shutdown(socket.SHUT_RDWR)
        self._accepting.join()
        self._listener.close()
        self.reset()
