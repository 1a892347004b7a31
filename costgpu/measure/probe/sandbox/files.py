"""The probe's own files, and what it notes of those of the script."""

import io
import json
import os
import sys

ASKING = ("uname", "ldconfig", "/sbin/ldconfig", "lscpu")  # what libraries start to know the machine


def note_overwritten(path):
    """Tell audit hooks of a file that native code is about to write anew: Python tells nobody."""
    if isinstance(path, (str, bytes, os.PathLike)):
        sys.audit("costgpu.overwrites", path)


class Files:
    """The functions are those from before anybody replaced them."""

    def __init__(self, scratch):
        self.scratch = os.path.realpath(scratch)
        self.journal_path = os.path.join(self.scratch, "journal.jsonl")
        self.real_open, self.real_os_open, self.raw_rename = io.open, os.open, os.replace

    def audit(self, event, args):
        """Note the programs that the script starts, each as a line, so that it survives any end of this process."""
        if event in ("subprocess.Popen", "os.system", "os.exec", "os.posix_spawn"):
            command = args[1] if event == "subprocess.Popen" else args[0]
            parts = [os.fsdecode(p) for p in (command if isinstance(command, (list, tuple)) else [command])]
            text = " ".join(parts)
            if not text.startswith(ASKING):
                fd = self.real_os_open(self.journal_path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
                try:
                    os.write(fd, (json.dumps({"program": text[:200]}) + "\n").encode())
                finally:
                    os.close(fd)
