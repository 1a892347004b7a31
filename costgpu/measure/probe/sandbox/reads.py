"""Notes which files the Python code of a measurement opens for what is in them, and which modules it has imported."""

import json
import os
import sys

MOST_FILES = 100_000  # of one process; beyond, only that there were more is noted
ALL, MORE, CUT = "opened.jsonl", "more", "cut"  # the journal; keys of its lines, which are paths or objects
open_raw, getcwd, write, fstat, stdlib = os.open, os.getcwd, os.write, os.fstat, os.path.dirname(os.__file__)
INSTALLED = (os.sep + "site-packages" + os.sep, os.sep + "dist-packages" + os.sep)
OWN = ("_distutils_hack", "__main__", "__mp_main__", "sitecustomize", "usercustomize", __name__.partition(".")[0])


class Reads:
    """An audit hook for each Python process; children that are forked go on with what their parent has noted."""

    def __init__(self, scratch):
        self.scratch = os.path.realpath(scratch)
        self.path = os.path.join(self.scratch, ALL)
        self.seen, self.file = set(), None
        roots = [path for path in sys.path if path.endswith(("site-packages", "dist-packages"))]
        places = [self.scratch, "/proc", "/dev", "/sys", stdlib, *roots]
        self.skipped = tuple(place + os.sep for place in places)

    def opened(self, path, flags):
        """Notes a file once; never raises."""
        try:
            if isinstance(path, int):
                return
            path = os.fsdecode(path)
            if path[:1] != os.sep:
                path = getcwd() + os.sep + path
            if path in self.seen or path.startswith(self.skipped) or len(self.seen) > MOST_FILES:
                return
            self.seen.add(path)
            if len(self.seen) > MOST_FILES:
                self.tell({MORE: True})
            elif flags & (os.O_TRUNC | os.O_EXCL):  # what was in it is lost, and what it holds later is the script's
                self.tell({CUT: path})
            else:
                self.tell(path)
        except Exception:  # noqa: BLE001 - the script goes on as if nobody looked
            pass

    def tell(self, value):
        """Adds a line. The descriptor may have been closed by the script, and its number be another file's."""
        found = self.file and self.is_open()
        if not found:
            descriptor = open_raw(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
            self.file = (descriptor, fstat(descriptor).st_ino)
        write(self.file[0], (json.dumps(value) + "\n").encode())

    def is_open(self):
        try:
            return fstat(self.file[0]).st_ino == self.file[1]
        except OSError:
            return False

    def audit(self, event, args):
        if event == "open":
            self.opened(args[0], args[2])
        elif event == "sqlite3.connect":
            self.opened(args[0], 0)
        elif event == "os.rename":
            self.opened(args[1], os.O_TRUNC)

    def tell_modules(self):
        """Notes what is imported by now; the files of modules that are not installed are files that were read."""
        modules, sources = {}, []
        for name, module in list(sys.modules.items()):
            file, top = origin_of(module), name.partition(".")[0]
            if file and not in_library(file) and name.partition(".")[0] != OWN[-1]:
                sources += [file] if not installed(file) else []
                if top not in OWN:
                    modules.setdefault(top, file)
        for top in list(modules):
            modules[top] = origin_of(sys.modules.get(top)) or modules[top]
        sites = [path for path in sys.path if path.endswith(("site-packages", "dist-packages"))]
        prefixes = sorted({sys.prefix, sys.base_prefix, sys.exec_prefix})
        self.tell({"modules": modules, "sources": sources, "sites": sites, "prefixes": prefixes})


def origin_of(module):
    """The file of a module; None if it has none, as built-in modules and namespaces."""
    try:
        file = vars(module).get("__file__")
    except TypeError:
        return None
    return os.path.abspath(file) if isinstance(file, str) and file else None


def installed(file):
    return any(part in file for part in INSTALLED)


def in_library(file):
    return file.startswith(stdlib + os.sep) and not installed(file)
