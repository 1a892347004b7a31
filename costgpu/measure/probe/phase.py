"""One training phase as it is recorded, and its JSON form."""

import os
from array import array

from .frameworks.gpu_requests import ASKED


class Phase:
    """One training phase: the steps inside one outermost loop of the script."""

    def __init__(self, frame, top_lines, start):
        self.frame, self.top_lines = frame, top_lines
        self.started = start
        self.anchors = 0
        self.seconds = array("d")  # per iteration, without the probe's own time
        self.waits = array("d")  # of which inside next(loader)
        self.special = {}  # iteration -> {"save": s, "validation": s, "loader_start": n, "traced": True, ...}
        self.snapshots = []
        self.sites = {}
        self.anchor = None
        self.anchor_optimizer = None
        self.companions = set()
        self.strangers = 0
        self.optimizers = {}
        self.backwards = 0
        self.trace = None
        self.trace_steps = 0
        self.untraceable = ""
        self.loader = None
        self.ahead = ([], [])
        self.saved_bytes = 0
        self.batch = None
        self.model = {}
        self.micro_batches = 0
        self.hooks = array("d")  # the probe's own time between steps; not part of `seconds`
        self.outer = None  # (frame, names): the outer loops' variables, to see an epoch end
        self.outer_values = None
        self.told = None  # what a trainer says of its own length
        self.own = None  # (file, line) of the script's code that led here, where the step is in a library


def torch_facts(torch, autocast, compiled):
    """What torch says of itself and was told about precision."""
    facts = {"version": str(torch.__version__), "threads": torch.get_num_threads()}
    facts["cuda_build"] = getattr(torch.version, "cuda", None)
    facts["hip_build"] = getattr(torch.version, "hip", None)
    try:
        facts["cuda_devices"] = (
            [] if ASKED.pretended else [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
        )
    except Exception:  # noqa: BLE001 - a broken driver is no device
        facts["cuda_devices"] = []
    precision = getattr(torch, "get_float32_matmul_precision", lambda: "highest")()
    facts["float32_matmul_precision"] = precision
    facts["conv_tf32"] = bool(getattr(torch.backends.cudnn, "allow_tf32", True))
    facts["matmul_tf32"] = bool(getattr(getattr(torch.backends.cuda, "matmul", None), "allow_tf32", False))
    facts["autocast"] = [{"device": d, "dtype": t, "enabled": e} for d, t, e in autocast]
    facts["compiled"] = compiled
    facts.update(ASKED.facts(torch))
    return facts


def phase_record(phase, torch, fetch):
    """A phase as JSON-ready values."""
    record = {
        "line": phase.own[1] if phase.own else phase.anchor[1] if phase.anchor else 0,
        "file": os.path.basename(phase.own[0] if phase.own else phase.anchor[0].co_filename) if phase.anchor else "",
        "told": phase.told,
        "top_line": phase.top_lines[0],
        "steps": phase.anchors,
        "seconds": [round(value, 7) for value in phase.seconds[:20000]],
        "waits": [round(value, 7) for value in phase.waits[:20000]],
        "iterations": len(phase.seconds),
        "hooks": [round(value, 7) for value in phase.hooks[:20000]],
        "total_seconds": sum(phase.seconds),
        "special": {str(k): v for k, v in list(phase.special.items())[:5000]},
        "snapshots": phase.snapshots,
        "ahead": {"later": phase.ahead[0], "periodic": phase.ahead[1]},
        "gap": getattr(phase, "gap", None),
        "manual": phase.anchor_optimizer == id(None),
        "saved_tensor_bytes": phase.saved_bytes,
        "model": phase.model,
        "micro_batches": phase.micro_batches,
        "device": device_type(phase, torch),
        "batch": phase.batch,
        "trace_steps": phase.trace_steps,
        "ops": list(phase.trace.rows.values()) if phase.trace is not None else [],
        "op_seconds": phase.trace.op_seconds if phase.trace is not None else 0.0,
        "calls": phase.trace.calls if phase.trace is not None else 0,
        "host_seconds": phase.trace.host_seconds if phase.trace is not None else 0.0,
        "host_calls": phase.trace.host_calls if phase.trace is not None else 0,
    }
    counts = {}
    for (_, optimizer), number in phase.sites.items():
        counts[optimizer] = counts.get(optimizer, 0) + number
    record["optimizers"] = [
        dict(describe_optimizer(value, torch), steps=counts.get(key, 0)) for key, value in phase.optimizers.items()
    ]
    loader = phase.loader
    record["loader"] = None
    if loader is not None:
        record["loader"] = {
            "workers": getattr(loader, "num_workers", 0),
            "batch_size": getattr(loader, "batch_size", None),
            "pin_memory": bool(getattr(loader, "pin_memory", False)),
            "length": safe_length(loader),
            "fetch_seconds": fetch[0].value if fetch else None,
            "fetches": fetch[1].value if fetch else 0,
            "fetch_waits": fetch[2].value if fetch else 0.0,
        }
    return record


def device_type(phase, torch):
    """Where the parameters of the phase's optimizers live: ``cpu``, ``cuda``, ..."""
    for optimizer in phase.optimizers.values():
        for group in optimizer.param_groups:
            for value in group["params"]:
                return value.device.type
    try:  # updated by hand
        return "cuda" if not ASKED.pretended and torch.cuda.memory_allocated() else "cpu"
    except Exception:  # noqa: BLE001 - a broken driver is no device
        return "cpu"


def safe_length(value):
    try:
        return len(value)
    except Exception:  # noqa: BLE001 - an iterable dataset has none
        return None


def storage_key(value):
    try:
        storage = value.untyped_storage() if hasattr(value, "untyped_storage") else value.storage()
        size = storage.nbytes() if hasattr(storage, "nbytes") else storage.size() * value.element_size()
        return storage.data_ptr(), int(size)
    except Exception:  # noqa: BLE001 - sparse, nested and fake tensors
        return None, 0


def describe_batch(batch, torch):
    sizes, total, stack = [], 0, [batch]
    while stack:
        value = stack.pop()
        if isinstance(value, torch.Tensor):
            total += value.numel() * value.element_size()
            sizes.append(value.shape[0] if value.dim() else 1)
        elif isinstance(value, dict):
            stack.extend(value.values())
        elif isinstance(value, (list, tuple)):
            stack.extend(value)
        elif hasattr(value, "__dict__") and len(sizes) < 64:
            stack.extend(v for v in vars(value).values() if isinstance(v, torch.Tensor))
    return {"size": max(sizes) if sizes else None, "bytes": total}


def describe_optimizer(optimizer, torch):
    parameters, numel, by_dtype, state = 0, 0, {}, 0
    for group in optimizer.param_groups:
        for value in group["params"]:
            parameters += 1
            numel += value.numel()
            name = str(value.dtype).replace("torch.", "")
            by_dtype[name] = by_dtype.get(name, 0) + value.numel()
    try:
        for entry in optimizer.state.values():
            for value in entry.values() if isinstance(entry, dict) else ():
                if isinstance(value, torch.Tensor):
                    state += value.numel() * value.element_size()
    except Exception:  # noqa: BLE001 - an optimizer with its own idea of state
        state = 0
    defaults = getattr(optimizer, "defaults", {})
    return {
        "name": type(optimizer).__name__,
        "foreach": defaults.get("foreach"),
        "fused": defaults.get("fused"),
        "momentum": bool(defaults.get("momentum", 0)),
        "parameters": numel,
        "tensors": parameters,
        "dtypes": by_dtype,
        "state_bytes": state,
    }
