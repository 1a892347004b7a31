"""Notes which files the Python code of a measurement opens for what is in them, and which modules it has imported."""

import json
import os
import sys

MOST_FILES = 100_000  # of one process; beyond, only that there were more is noted
open_raw, getcwd, write, fstat, stdlib = os.open, os.getcwd, os.write, os.fstat, os.path.dirname(os.__file__) + os.sep
INSTALLED = (os.sep + "site-packages" + os.sep, os.sep + "dist-packages" + os.sep)
NOBODYS = ("_distutils_hack", "__main__", "__mp_main__", "sitecustomize", "usercustomize")


class Reads:
    """An audit hook for each Python process; children that are forked go on with what their parent has noted."""

    def __init__(self, scratch):
        self.scratch = os.path.realpath(scratch)
        self.path, self.file, self.seen = os.path.join(self.scratch, "opened.jsonl"), None, set()
        libraries = [path + os.sep for path in sys.path if (path + os.sep).endswith(INSTALLED)]
        self.skipped = (self.scratch + os.sep, "/proc/", "/dev/", "/sys/", stdlib, *libraries)

    def audit(self, event, args):
        """Note a file once; never raises."""
        try:
            if event == "open" and not isinstance(args[0], int):
                self.opened(os.fsdecode(args[0]), args[2])
            elif event == "sqlite3.connect":
                self.opened(os.fsdecode(args[0]), 0)
            elif event == "costgpu.overwrites":
                self.opened(os.fsdecode(args[0]), os.O_TRUNC)
            elif event == "os.rename":
                self.opened(os.fsdecode(args[1]), os.O_TRUNC)
        except Exception:  # noqa: BLE001 - the script goes on as if nobody looked
            pass

    def opened(self, path, flags):
        if path[:1] != os.sep:
            path = getcwd() + os.sep + path
        if path in self.seen or path.startswith(self.skipped) or len(self.seen) > MOST_FILES:
            return
        lost = flags & (os.O_TRUNC | os.O_EXCL)  # what was in it; what it holds later is the script's own
        if flags & os.O_WRONLY and not lost:
            return  # a log that goes on: what was in it is not looked at
        self.seen.add(path)
        self.tell("more" if len(self.seen) > MOST_FILES else "cut" if lost else "opened", path)

    def tell(self, kind, *values):
        """Add a line. The script may have closed the descriptor, and opened a file of its own with the same number."""
        try:
            same = fstat(self.file[0]).st_ino == self.file[1]
        except (OSError, TypeError):
            same = False
        if not same:
            descriptor = open_raw(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
            self.file = descriptor, fstat(descriptor).st_ino
        write(self.file[0], (json.dumps({kind: values}) + "\n").encode())

    def tell_modules(self):
        """Note what is imported by now, and which of it is source code that is not installed; never raises."""
        modules, sources = {}, []
        try:
            for name, module in list(sys.modules.items()):
                file, top = origin_of(module), name.partition(".")[0]
                inside = any(part in file for part in INSTALLED)
                if file and (inside or not file.startswith(stdlib)) and top != __name__.partition(".")[0]:
                    if not inside:
                        sources.append(file)
                    if top not in NOBODYS:
                        modules.setdefault(top, origin_of(sys.modules.get(top)) or file)  # of a namespace, one within
            self.tell("sources", *sources)
            self.tell("modules", *("{} {}".format(*found) for found in modules.items()))
            self.tell("prefixes", sys.prefix, sys.base_prefix, sys.exec_prefix)
        except Exception:  # noqa: BLE001 - as above
            pass


def origin_of(module):
    """Return the file of a module; empty if it has none, as built-in modules and namespaces."""
    file = getattr(module, "__dict__", {}).get("__file__")
    return os.path.abspath(file) if isinstance(file, str) and file else ""
