"""A tree deeper than a path can be long, which shutil.rmtree, and so pytest's own cleaning, cannot remove."""

import contextlib
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path


@contextlib.contextmanager
def deep_folders(top: Path, levels: int) -> Iterator[None]:
    """Makes that many folders in each other, with a file in the last one; removes them at the end."""
    here = Path.cwd()
    try:
        os.chdir(top)
        for _ in range(levels):
            Path("d").mkdir()
            os.chdir("d")
        Path("deepest").write_text("x")
        os.chdir(here)
        yield
    finally:
        os.chdir(here)
        subprocess.run(["rm", "-rf", "--", top / "d"], check=True)
