"""How a program of ours travels: as one file that any Python runs, with all that it imports of costgpu."""

from __future__ import annotations

import io
import zipfile
from functools import lru_cache
from pathlib import Path

SOURCE = Path(__file__).parents[1]
PACKAGE = "_costgpu"  # what costgpu is called there: a name that no script of the user's has
_WHEN = (1980, 1, 1, 0, 0, 0)  # the same bytes every time: their hash tells whether a machine has them


@lru_cache
def bundle(package: str, main: str) -> bytes:
    """Return a zip archive that Python runs: a package, and `portable`, which is all that it may import of ours.

    Args:
        package: Without ``costgpu`` in front, such as ``job.agent``.
        main: The module in it whose `main` is called.
    """
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w") as archive:
        folders = package.split(".")
        for depth in range(len(folders)):
            archive.writestr(zipfile.ZipInfo("/".join([PACKAGE, *folders[:depth], "__init__.py"]), _WHEN), "")
        for folder in (SOURCE.joinpath(*folders), SOURCE / "portable"):
            for source in sorted(folder.rglob("*.py")):
                name = "%s/%s" % (PACKAGE, source.relative_to(SOURCE).as_posix())
                archive.writestr(zipfile.ZipInfo(name, _WHEN), source.read_bytes())
        start = "from %s.%s.%s import main\n\nmain()\n" % (PACKAGE, package, main)
        archive.writestr(zipfile.ZipInfo("__main__.py", _WHEN), start)
    return target.getvalue()
