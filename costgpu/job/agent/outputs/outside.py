"""All that a job has left: in its working folder, and outside of it, where nothing of it would outlive the machine.

What is outside comes home below a folder of its own, by its absolute path; what lies beside the working folder below
``parent`` in there. On somebody's own computer only that is looked for: the rest stays where it is.
"""

from __future__ import annotations

import os
import stat
from collections import Counter
from collections.abc import Mapping
from typing import Any

from ..state_files import Home
from ..status import job_status
from . import find_outputs
from .find_outputs import FoundOutputs, Output, walk
from .kept_away import SHARED, WITHIN_SYSTEM, is_secret_entry, job_began, other_file_systems, stays_outside

OUTSIDE, PARENT = "outside", "parent"
MOST_BYTES = 20 << 30  # outside the working folder; and files: more may be a dataset that was unpacked there
MOST_FILES = 50_000
MOST_FILES_IN_ALL = 100_000  # a client takes no more than twice as many
WORK_SECONDS = 60.0  # a job that has worked longer has made something


def find_all(home: Home, order: Mapping[str, Any]) -> FoundOutputs:
    """Return what comes home of a job: also what it wrote outside its folder, unless outputs are named and all there."""
    patterns = order.get("outputs", [])
    found = find_outputs.find_outputs(home, patterns)
    if patterns and not found.missing:
        return found
    found = found._replace(outputs=[*found.outputs, *_find_outside(home, found)])
    is_nothing = not (patterns or found.outputs or found.unreadable)
    return found._replace(trouble=_why_nothing_is_strange(home, order)) if is_nothing else found


def _why_nothing_is_strange(home: Home, order: Mapping[str, Any]) -> str:
    """Return a sentence on a rented machine's job that has worked, ended well and made nothing; else nothing."""
    status = job_status(home)
    began, ended = status["job_started_epoch"], status["finished_epoch"]
    is_first = (order.get("rendezvous") or {}).get("node", 0) == 0  # often it alone saves something
    if not (home.remote and is_first and order.get("keep_outputs", True) and status["reason"] == "succeeded"):
        return ""
    if began is None or ended is None or ended - began <= WORK_SECONDS:
        return ""
    return (
        "The job ran for %d s and has left no outputs. Looked for in its working folder, and for what was written since"
        " its start in %s, and everywhere else but in the system's folders, caches and mounted network file systems."
        % (ended - began, ", ".join(sorted({os.path.expanduser("~"), *("/" + each for each in SHARED)})))
    )


def _find_outside(home: Home, inside: FoundOutputs) -> list[Output]:
    """Return files that were made or changed since the job began, wherever the machine's end would take them along.

    Secrets, and more than is brought home, are noted with what was found inside.
    """
    began = job_began(home)
    if began is None:
        return []
    top, others, outputs = _free_name(home), other_file_systems() if home.root == "/" else frozenset(), []
    secrets: dict[str, str] = {}
    own, known = os.path.relpath(home.path, home.root), {each.full for each in inside.outputs}

    def skips(path: str, entry: os.DirEntry[str]) -> bool:
        return stays_outside(home, path, entry, others) or is_secret_entry(entry, began, secrets, entry.path)

    for start in ("", *WITHIN_SYSTEM) if home.remote else (own,):
        for path, entry in walk(home.root, start, skips=skips):
            try:
                found = entry.stat(follow_symlinks=False)
            except OSError:
                continue  # it has gone
            if not stat.S_ISREG(found.st_mode) or found.st_ctime < began or entry.path in known:
                continue
            name = PARENT + path[len(own) :] if path.startswith(own + "/") else path
            mode = stat.S_IMODE(found.st_mode) & 0o777
            outputs.append(Output(top + "/" + name, entry.path, found.st_size, found.st_mtime_ns, mode, True))
    told = set(inside.elsewhere.values())  # where links lead
    inside.elsewhere.update({at: why for at, why in secrets.items() if "a link to %s: %s" % (at, why) not in told})
    total = sum(each.size for each in outputs)
    if total <= MOST_BYTES and len(outputs) <= min(MOST_FILES, MOST_FILES_IN_ALL - len(known)):
        return sorted(outputs)
    why = "more outside the working folder than is brought home: %d files, %.1f GiB" % (len(outputs), total / 2**30)
    folders = Counter("/".join(os.path.dirname(each.full).split("/")[:4]) for each in outputs)
    inside.unreadable.update((folder + "/", why) for folder, _ in folders.most_common())
    return []


def _free_name(home: Home) -> str:
    """Return what the folder is called at home: something that the job has nothing of the same name as.

    The folder that an earlier run left at home travels without what is in it.
    """
    name, number = OUTSIDE, 1
    while _is_taken(os.path.join(home.work, name)):
        number += 1
        name = "%s-%d" % (OUTSIDE, number)
    return name


def _is_taken(path: str) -> bool:
    try:
        return bool(os.listdir(path))
    except OSError:
        return os.path.lexists(path)
