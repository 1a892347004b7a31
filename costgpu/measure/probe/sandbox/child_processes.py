"""What the probe's hooks on files need beyond this process: Python processes of the script, and native writers."""

import io
import os

from ..patching import observe
from .files import note_overwritten

SITE = """# Goes on with costgpu's measurement in the Python processes that a script starts, then with the site's own file.
import atexit, os, sys
here = os.path.dirname(os.path.abspath(__file__))
sys.path[:] = [p for p in sys.path if os.path.abspath(p or ".") != here]
try:
    sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(here)), "probe.pyz"))
    from _costgpu.measure.probe.sandbox.reads import Reads
    reads = Reads(os.path.dirname(here))
    sys.addaudithook(reads.audit)
    atexit.register(reads.tell_modules)
except Exception:
    pass
finally:
    sys.path.pop(0)
this = sys.modules.pop("sitecustomize", None)
try:
    import sitecustomize
except ImportError:
    sys.modules["sitecustomize"] = this
"""


def follow_child_processes(scratch):
    """Have every Python that the script starts note what it reads."""
    folder = os.path.join(scratch, "site")
    os.makedirs(folder, exist_ok=True)
    with io.open(os.path.join(folder, "sitecustomize.py"), "w") as stream:
        stream.write(SITE)
    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = folder + (os.pathsep + before if before else "")


def follow_safetensors(module):
    """Note what ``safetensors.torch`` writes, in native code."""

    def save(*args, **kwargs):
        note_overwritten(args[1] if len(args) > 1 else kwargs.get("filename"))

    for name in ("save_file", "save_model"):
        observe(module, name, save, before=True)


def follow_hdf5(module):
    """Note what ``h5py._hl.files`` makes, in native code."""

    def make(name, mode, *_, **__):
        if mode in ("w", "w-", "x"):
            note_overwritten(name)

    observe(module, "make_fid", make, before=True)
