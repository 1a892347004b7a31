"""Many processes at once, in seconds: one process imports everything, and forks the others, each with a ledger of its own.

They wait until all of them are there, and begin at the same moment. What they say goes to files, so that it is there
when they are killed.
"""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

ROOT = Path(__file__).resolve().parents[2]


class Crowd:
    """Processes that are ready; a context manager that leaves none.

    Args:
        each: Arguments of `processes.work` for each of them; `again` makes others.
        folder: For what they say.
    """

    def __init__(self, each: Sequence[Sequence[object]], folder: Path) -> None:
        self._parent = subprocess.Popen(
            [sys.executable, "-m", "tests.ledger.crowd"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
        )
        self.pids: list[int] = []
        self.again(each, folder)

    def again(self, each: Sequence[Sequence[object]], folder: Path) -> None:
        """Others, once those before have been waited for."""
        self._folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self.pids = self._ask({"folder": str(folder), "each": [[str(word) for word in words] for words in each]})

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for number in range(len(self.pids)):
            self.kill(number)
        self._parent.kill()
        self._parent.communicate()

    def go(self) -> None:
        """All begin."""
        self._ask("go")

    def kill(self, number: int) -> None:
        """SIGKILL for one of them."""
        try:
            os.kill(self.pids[number], signal.SIGKILL)
        except ProcessLookupError:
            return

    def wait(self) -> list[int]:
        """Waits for all of them; how each ended: an exit code, or minus the number of a signal."""
        codes: list[int] = self._ask("wait")
        return codes

    def running(self) -> bool:
        """Whether any of them still is."""
        return bool(self._ask("running"))

    def said(self, number: int) -> list[str]:
        """Lines; none before it has begun."""
        path = self._folder / f"{number}"
        return path.read_text().splitlines() if path.exists() else []

    def until_said(self, count: int, seconds: float = 120.0) -> None:
        """Waits until all of them together have said so many lines: who writes next is the database's choice."""
        deadline = time.monotonic() + seconds
        while sum(len(self.said(number)) for number in range(len(self.pids))) < count:
            assert time.monotonic() < deadline, f"they have not said {count} lines in {seconds:g} s"
            time.sleep(0.002)

    def _ask(self, what: object) -> Any:
        assert self._parent.stdin is not None
        assert self._parent.stdout is not None
        self._parent.stdin.write(json.dumps(what) + "\n")
        self._parent.stdin.flush()
        line = self._parent.stdout.readline()
        assert line, "the first of the crowd has ended"
        return json.loads(line)


def _fork(number: int, words: list[str], folder: Path, gate: tuple[int, int]) -> int:
    from tests.ledger import processes

    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        os.close(gate[1])
        os.dup2(os.open(folder / f"{number}", os.O_CREAT | os.O_WRONLY | os.O_TRUNC, 0o644), 1)
        os.read(gate[0], 1)  # until the gate is opened
        processes.work(*words)
        code = 0
    except BaseException as error:  # noqa: BLE001 - nothing of the parent's may go on in here
        os.write(2, f"{words}: {error!r}\n".encode())
    os._exit(code)


def main() -> None:
    """The first of them: forks the others and tells what becomes of them."""
    from tests.ledger import processes  # noqa: F401  imported once, for all

    pids: list[int] = []
    codes: dict[int, int] = {}
    gate = (-1, -1)
    for line in sys.stdin:
        asked = json.loads(line)
        answer: object = None
        if isinstance(asked, dict):
            gate, codes = os.pipe(), {}
            pids = [_fork(number, words, Path(asked["folder"]), gate) for number, words in enumerate(asked["each"])]
            os.close(gate[0])
            answer = pids
        elif asked == "go":
            os.close(gate[1])
        else:
            for pid in pids:
                if pid not in codes:
                    ended, status = os.waitpid(pid, 0 if asked == "wait" else os.WNOHANG)
                    if ended:
                        codes[pid] = os.waitstatus_to_exitcode(status)
            answer = [codes[pid] for pid in pids] if asked == "wait" else len(codes) < len(pids)
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
