"""The probe's own files, and those of the script where nothing has to lead its writes away."""

import io
import json
import os
import sys

ASKING = ("uname", "ldconfig", "/sbin/ldconfig", "lscpu")  # what libraries start to know the machine


class Files:
    """In a copy-on-write world: every path is what it says. The functions are those from before anybody replaced them."""

    def __init__(self, scratch):
        self.scratch = os.path.realpath(scratch)
        self.journal_path = os.path.join(self.scratch, "journal.jsonl")
        self.real_open, self.real_os_open, self.raw_rename = io.open, os.open, os.replace

    def write_path(self, path, keep, always=False):
        """Return where a write to `path` goes; `keep` when the old content must be there first."""
        if not keep:
            sys.audit("costgpu.overwrites", path)  # native code opens it, and Python tells nobody
        return path

    def read_path(self, path, follow=True):
        """Return what to read instead of `path`."""
        return path

    def note(self, kind, path, other=""):
        """Add a JSON line to the journal, so that it survives any end of this process."""
        line = json.dumps({"kind": kind, "path": path, "other": other}) + "\n"
        fd = self.real_os_open(self.journal_path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        try:
            os.write(fd, line.encode())
        finally:
            os.close(fd)

    def audit(self, event, args):
        """Note the programs that the script starts."""
        if event in ("subprocess.Popen", "os.system", "os.exec", "os.posix_spawn"):
            command = args[1] if event == "subprocess.Popen" else args[0]
            parts = [os.fsdecode(p) for p in (command if isinstance(command, (list, tuple)) else [command])]
            text = " ".join(parts)
            if not text.startswith(ASKING):
                self.note("program", text[:200])
