"""Whether NVIDIA's driver knows the machine's GPUs, and what it says if it does not."""

from __future__ import annotations

import shutil
import subprocess

from ..run_quietly import run_quietly

_LONGEST = 2000  # characters of what the driver says
_KERNEL_LINES = 5
_KERNEL_SECONDS = 5.0


def driver_trouble(gpus: int, seconds: float) -> str:
    """Return what is wrong with the driver, in its own words; empty if it names so many GPUs within this time."""
    tool = shutil.which("nvidia-smi")
    if tool is None:
        return "The machine has no nvidia-smi: its image is without NVIDIA's driver."
    try:
        asked = subprocess.Popen(
            [tool, "-L"], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )
        said = asked.communicate(timeout=seconds)[0].decode("utf-8", "replace").strip()
    except subprocess.TimeoutExpired:
        asked.kill()  # and not waited for: what hangs in a driver cannot be ended
        return "nvidia-smi had not answered after %g s.%s" % (seconds, _kernel_words())
    except OSError as error:
        return "nvidia-smi cannot be run: %s." % error
    found = sum(line.startswith("GPU ") for line in said.splitlines())
    if asked.returncode == 0 and found >= gpus:
        return ""
    what = "names %d of %d GPUs" % (found, gpus) if asked.returncode == 0 else "failed (%d)" % asked.returncode
    return "nvidia-smi %s: %s%s" % (what, said[-_LONGEST:] or "it said nothing.", _kernel_words())


def _kernel_words() -> str:
    """Return the last words of the driver in the kernel's log; empty without any, or where it cannot be read."""
    log = run_quietly(["dmesg"], _KERNEL_SECONDS)
    if log is None:
        return ""
    lines = [line.strip() for line in log.stdout.decode("utf-8", "replace").splitlines() if "NVRM" in line]
    said = "\n".join(lines[-_KERNEL_LINES:])[-_LONGEST:]
    return "\nThe kernel's log says:\n" + said if said else ""
