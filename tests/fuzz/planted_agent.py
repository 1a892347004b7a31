"""A machine whose agent says what a test wants, with a clock of its own: a `Transport` without processes."""

import contextlib
import json
from collections.abc import Callable, Iterable, Iterator, Sequence

from costgpu.clock import ManualClock
from costgpu.job.agent.log_stream import HEADER, MAGIC, POSITION
from costgpu.job.agent.main import REPLY
from costgpu.job.files.download import RemoteFile
from costgpu.job.machine.agent_client import AgentHost
from costgpu.job.machine.host import Completed
from costgpu.job.machine.install_agent import agent_sha256

SHA = "0123456789abcdef" * 4
STATUS = {
    "phase": "finished",
    "reason": "job_failed",
    "exit_code": 3,
    "detail": "The job was ended.",
    "started_epoch": 1.7e9,
    "job_started_epoch": 1.7e9 + 5,
    "finished_epoch": 1.7e9 + 60,
    "stdout_bytes": 10,
    "stderr_bytes": 0,
    "uploaded": False,
}
OUTPUTS = {
    "files": [["a/b.pt", 5, SHA, 0o644], ["log\\x", 0, SHA, 0o100755 & 0o777]],
    "missing": ["*.csv"],
    "unreadable": {"c": "Permission denied"},
}
ANSWERS: dict[str, dict[str, object]] = {
    "status": STATUS,
    "outputs": OUTPUTS,
    "logs": {"files": [["stdout.log", 10, "", 0o644], ["stderr.log", 0, SHA, 0o644]]},
    "expect": {"lacking": ["train.py"]},
    "receive": {"files": 1},
    "start": {"already": False},
    "cancel": {},
    "collected": {},
    "hold": {},
    "install": {"pid": 7, "program": f"/m/agent-{agent_sha256()[:16]}.pyz"},
}


def reply(value: object) -> bytes:
    """As the agent prints it."""
    return b"welcome\n" + REPLY.encode() + json.dumps(value).encode() + b"\n"


def frame(kind: bytes, payload: bytes) -> bytes:
    return HEADER.pack(kind, len(payload)) + payload


def log(position: int, data: bytes, kind: bytes = b"o") -> bytes:
    return frame(kind, POSITION.pack(position) + data)


def whole_stream() -> bytes:
    """Both logs, two signs of life, and the end."""
    head = b"motd\n" + MAGIC + frame(b"k", b"") + log(0, b"epoch 1\n") + log(0, b"warning\n", b"e")
    return head + frame(b"k", b"") + log(8, b"epoch 2\n") + frame(b"s", json.dumps(STATUS).encode())


class PlantedAgent:
    """A transport; `says` makes stdout of the request's method, `sends` the chunks of the stream."""

    home = "/m"

    def __init__(
        self,
        says: Callable[[str], bytes | Completed] = lambda method: reply(ANSWERS[method]),
        sends: Callable[[], Iterable[bytes]] = lambda: [whole_stream()],
        clock: ManualClock | None = None,
    ) -> None:
        self.says, self.sends = says, sends
        self.host = AgentHost(self, clock=clock or ManualClock())
        self.taken = 0  # chunks of the stream

    def run(
        self, argv: Sequence[str], *, stdin: bytes | Iterable[bytes] = b"", timeout_seconds: float = 60
    ) -> Completed:
        assert 0 < timeout_seconds < float("inf")
        if argv[-1] == "call":
            assert isinstance(stdin, bytes)
            method = json.loads(stdin)["method"]
        else:
            method = "receive" if argv[-1] == "receive" else "install"
            for _ in stdin if not isinstance(stdin, bytes) else ():
                pass
        said = self.says(method)
        return said if isinstance(said, Completed) else Completed(returncode=0, stdout=said, stderr=b"")

    @contextlib.contextmanager
    def stream(self, argv: Sequence[str], *, silence_seconds: float) -> Iterator[Iterator[bytes]]:
        assert 0 < silence_seconds < float("inf")
        yield self._counted()

    def _counted(self) -> Iterator[bytes]:
        for chunk in self.sends():
            self.taken += 1
            yield chunk

    def download(self, files: Sequence[RemoteFile]) -> None:
        for file in files:
            file.target.write_bytes(bytes(min(file.size, 1000)))

    def close(self) -> None:
        """Nothing is held."""
