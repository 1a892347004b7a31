"""Takes the file guard to where it does not reach by itself: Python processes of the script, and native writers."""

import io
import os

from ..patching import wrap

SITE = """# Goes on with costgpu's measurement in the Python processes that a script starts, then with the site's own file.
import atexit, os, sys
here = os.path.dirname(os.path.abspath(__file__))
sys.path[:] = [p for p in sys.path if os.path.abspath(p or ".") != here]
try:
    sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(here)), "probe.pyz"))
    from _costgpu_probe.sandbox.reads import Reads
    reads = Reads(os.path.dirname(here))
    if {divert}:
        from _costgpu_probe.sandbox.file_guard import FileGuard
        FileGuard(reads.scratch).install()
    sys.addaudithook(reads.audit)
    atexit.register(reads.tell_modules)
except Exception as error:
    {divert} and sys.stderr.write("costgpu: no guard in this process: {{}}\\n".format(error))
finally:
    sys.path.pop(0)
this = sys.modules.pop("sitecustomize", None)
try:
    import sitecustomize
except ImportError:
    sys.modules["sitecustomize"] = this
"""


def follow_child_processes(scratch, divert):
    """Has every Python that the script starts note what it reads, and `divert` what it writes."""
    folder = os.path.join(scratch, "site")
    os.makedirs(folder, exist_ok=True)
    with io.open(os.path.join(folder, "sitecustomize.py"), "w") as stream:
        stream.write(SITE.format(divert=bool(divert)))
    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = folder + (os.pathsep + before if before else "")


def guard_safetensors(guard, module):
    """For ``safetensors.torch``, which reads and writes its files in native code."""

    def save(inner, *args, **kwargs):
        args = list(args)
        if len(args) > 1:
            args[1] = guard.write_path(args[1], keep=False)
        elif "filename" in kwargs:
            kwargs["filename"] = guard.write_path(kwargs["filename"], keep=False)
        return inner(*args, **kwargs)

    for name in ("save_file", "save_model"):
        wrap(module, name, save)
    wrap(module, "safe_open", lambda inner, path, *args, **kwargs: inner(guard.read_path(path), *args, **kwargs))


def guard_hdf5(guard, module):
    """For ``h5py._hl.files``: HDF5 opens its files in native code."""

    def make(inner, name, mode, *args, **kwargs):
        if mode in (None, "r") or (mode in ("w-", "x") and os.path.lexists(name)):
            place = guard.read_path(name)
        else:
            place = guard.write_path(name, keep=mode in ("a", "r+"))
        return inner(os.fsencode(place), mode, *args, **kwargs)

    wrap(module, "make_fid", make)
