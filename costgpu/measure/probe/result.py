"""What the probe writes down at the end of a measurement."""

import json
import os
import sys

from .loops.progress_series import TRAINERS
from .op_tracer import clock
from .patching import FAILURES
from .phase_record import phase_record, torch_facts

RESULT_VERSION = 1


def write_result(recorder, status, detail):
    """Writes the result file whole, or not at all."""
    result = {
        "version": RESULT_VERSION,
        "status": status,
        "python": sys.version.split()[0],
        "wall_seconds": clock() - recorder.started,
    }
    result.update(recorder.detail)
    result.update(detail)
    if FAILURES:
        result["probe_errors"] = result.get("probe_errors", []) + FAILURES
    try:
        import resource

        scale = 1 if sys.platform == "darwin" else 1024
        result["peak_rss_bytes"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * scale
    except ImportError:
        result["peak_rss_bytes"] = None
    result["before"] = recorder.before
    result["series"] = recorder.progress.record()
    result["loops"] = recorder.loops.progress() if not recorder.phases else None
    result["versions"] = {
        name: str(getattr(sys.modules[name], "__version__", "")) for name in TRAINERS if name in sys.modules
    }
    going = recorder.fits.going if recorder.fits is not None else None
    result["fit_going"] = {"estimator": type(going[0]).__name__, "label": going[1]} if going is not None else None
    times = os.times()
    result["cpu_seconds"] = times.user + times.system + times.children_user + times.children_system
    if recorder.torch is not None:
        result["torch"] = torch_facts(recorder.torch, recorder.autocast, recorder.compiled)
        result["phases"] = [phase_record(phase, recorder.torch, recorder.fetch) for phase in recorder.phases]
        result["optimizers_made"] = recorder.optimizers_made
        result["manual"] = recorder.manual
    path = recorder.config["result"]
    with recorder.guard.real_open(path + ".part", "w") as stream:
        json.dump(result, stream, default=str)
    recorder.guard.raw_rename(path + ".part", path)
