"""What the probe writes down at the end of a measurement, as JSON-ready values."""

from __future__ import annotations

import json
import os
import sys
from collections import UserDict

from .activity import peak_memory
from .frameworks.one_rank import ONE_RANK
from .frameworks.registry import FRAMEWORKS
from .frameworks.torch_hooks import GPU_REQUESTS
from .loops.progress_series import MOST_EVENTS, MOST_TIMES
from .loops.time_budgets import time_budget
from .patching import FAILURES, attribute, harmless, known
from .ranks.data_parts import describe_data
from .ranks.world import WORLD
from .record import Batch, Loader, Optimizer, PhaseRecord, RanksRecord, TorchFacts
from .schedstat import clock

RESULT_VERSION = 1


def write_result(recorder, status, detail):
    """Write the result file whole, or not at all."""
    times = os.times()
    fit = recorder.fits.going
    result = {
        "version": RESULT_VERSION,
        "status": status,
        "python": sys.version.split()[0],
        "wall_seconds": clock() - recorder.started,
        "peak_rss_bytes": peak_memory(),
        "cpu_seconds": times.user + times.system + times.children_user + times.children_system,
        "children_cpu_seconds": times.children_user + times.children_system,
        "children": ONE_RANK.started,
        "activity": recorder.activity.record(),
        "before": recorder.before,
        "series": recorder.progress.record(),
        "loops": harmless(recorder.loops.progress)() if not recorder.phases else None,
        "awaits_training": recorder.progress.awaits_training(),
        "versions": {
            one.name: str(getattr(sys.modules[one.name], "__version__", ""))
            for one in FRAMEWORKS
            if one.computes and one.name in sys.modules
        },
        "importing": list(recorder.importing),
        "budget": harmless(time_budget)(recorder.thread, recorder.progress.own_loops_around),
        "fit_going": {"estimator": type(fit[0]).__name__, "label": fit[1]} if fit is not None else None,
    }
    result["ranks"] = ranks_record(recorder)
    result.update(recorder.detail)
    result.update(detail)
    if FAILURES:
        result["probe_errors"] = result.get("probe_errors", []) + FAILURES
    if recorder.without_weights is not None:
        result["memory"] = recorder.without_weights.record()
        result["changed"] = recorder.changes.how
    result["model_bytes"] = recorder.trip_wires.largest
    if recorder.torch is not None:
        result["torch"] = torch_facts(recorder.torch, recorder.autocast, recorder.compiled)
        # the figures of the fetches but for each worker's first one; of those where there were no others
        fetch = recorder.fetch if recorder.fetch and recorder.fetch[1] else recorder.first_fetch
        result["phases"] = [phase_record(phase, recorder.torch, fetch) for phase in recorder.phases]
        for phase, facts in zip(recorder.phases, result["phases"]):
            if facts["loader"] is not None:
                facts["loader"]["start_seconds"] = recorder.loaders.starts.get(id(phase.loader))
        result["optimizers_made"] = recorder.optimizers_made
        result["manual"] = recorder.manual
    path = recorder.config["result"]
    with recorder.files.real_open(path + ".part", "w") as stream:
        json.dump(result, stream, default=str)
    recorder.files.raw_rename(path + ".part", path)


def torch_facts(torch, autocast, compiled) -> TorchFacts:
    """Return what torch says of itself and was told about precision."""
    matmul = getattr(torch.backends.cuda, "matmul", None)
    devices = []
    if not GPU_REQUESTS.fake_cuda:  # a broken driver is no device
        devices = known(lambda: [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())], default=[])
    return {
        "version": str(torch.__version__),
        "threads": torch.get_num_threads(),
        "cuda_build": getattr(torch.version, "cuda", None),
        "cuda_devices": devices,
        "float32_matmul_precision": getattr(torch, "get_float32_matmul_precision", lambda: "highest")(),
        "conv_tf32": bool(getattr(torch.backends.cudnn, "allow_tf32", True)),
        "matmul_tf32": bool(getattr(matmul, "allow_tf32", False)),
        "autocast": [{"device": d, "dtype": t, "enabled": e} for d, t, e in autocast],
        "compiled": compiled,
        "fake_cuda": GPU_REQUESTS.fake_cuda,
        "fake_cuda_devices": len(GPU_REQUESTS.devices),
        "fake_cuda_failures": GPU_REQUESTS.failures[:5],
        "attention": GPU_REQUESTS.attention_kernels(),
        "cudnn_benchmark": bool(getattr(getattr(torch.backends, "cudnn", None), "benchmark", False)),
        "processes_for_no_gpu": ONE_RANK.for_no_gpu,
        "processes": max(ONE_RANK.processes, WORLD.asked_processes),
    }


def ranks_record(recorder) -> RanksRecord:
    """Return how it trains in several processes; of the first training phase."""
    phase = next((one for one in recorder.phases if one.trains), None)
    schemes, parts, collectives = recorder.schemes, recorder.data_parts, WORLD.collectives
    return {
        "asked": max(ONE_RANK.processes, WORLD.asked_processes),
        "assumed": recorder.config["gpus"],
        "needs_launcher": recorder.config["launched"],
        "nodes": WORLD.nodes,
        "measured": WORLD.ranks,
        "why_alone": WORLD.why_alone,
        "gpu_backend": WORLD.gpu_backend,
        "fixed": ONE_RANK.fixed or WORLD.fixed,
        "sightings": schemes.found,
        "meshes": schemes.meshes,
        "comm_hooks": schemes.comm_hooks,
        "collectives": collectives.per_step(phase.anchors) if phase is not None else [],
        "answer_seconds": collectives.seconds if collectives is not None else 0.0,
        "data": describe_data(phase.loader) if phase is not None else None,
        "rank_batch": phase.batch["size"] if phase is not None and phase.batch else None,
        "batch_divided": parts.batch_divided,
        "data_divided": parts.data_divided,
        "global_batch": schemes.global_batch,
        "sampler_inserted": schemes.sampler_inserted,
    }


def phase_record(phase, torch, fetch) -> PhaseRecord:
    """Return a phase as JSON-ready values."""
    trace, tracer = phase.trace, phase.trace.tracer if phase.trace is not None else None
    path, line = phase.own or (phase.anchor[0].co_filename, phase.anchor[1]) if phase.anchor else ("", 0)
    counts: dict[int, int] = {}
    seconds, waits, blocked, run_delay = phase.whole_intervals(MOST_TIMES)
    for (_, optimizer), number in phase.sites.items():
        counts[optimizer] = counts.get(optimizer, 0) + number
    record: PhaseRecord = {
        "line": line,
        "file": os.path.basename(path),
        "told": phase.told,
        "steps": phase.anchors,
        # of the anchor's optimizer at other places: what is left of an epoch after its loop, for example
        "elsewhere": sum(
            number for (site, one), number in phase.sites.items() if one == phase.anchor_key and site != phase.anchor
        ),
        "seconds": seconds,
        "waits": waits,
        "blocked": blocked,
        "run_delay": run_delay,
        "own_seconds": [round(value, 7) for value in phase.own_seconds[:MOST_TIMES]],
        "special": {str(k): v for k, v in list(phase.special.items())[:MOST_EVENTS]},
        "snapshots": phase.counted_snapshots(),
        "upcoming": {"later": phase.upcoming[0], "periodic": phase.upcoming[1], "applied": phase.upcoming[2]},
        "gap_seconds": phase.gap_seconds,
        "first": phase.first,
        "saved_tensor_bytes": trace.saved_tensor_bytes if trace is not None else 0,
        "model": trace.model if trace is not None else {},
        "micro_batches": trace.micro_batches if trace is not None else 0,
        "device": device_type(phase, torch),
        "batch": phase.batch,
        "trace_steps": phase.trace_steps,
        "growth": phase.growth,
        "followed": phase.followed,
        "ops": list(tracer.rows.values()) if tracer is not None else [],
        "op_seconds": tracer.op_seconds if tracer is not None else 0.0,
        "calls": tracer.calls if tracer is not None else 0,
        "host_seconds": tracer.host_seconds if tracer is not None else 0.0,
        "host_calls": tracer.host_calls if tracer is not None else 0,
        "optimizers": [describe_optimizer(value, counts.get(key, 0), torch) for key, value in phase.optimizers.items()],
        "loader": describe_loader(phase.loader, fetch) if phase.loader is not None else None,
        "call": phase.call,
        "trains": phase.trains,
        "warm_seconds": phase.warm_seconds,
        "tail_seconds": phase.tail_seconds,
    }
    record.update(phase.own_facts())
    return record


def describe_loader(loader, fetch) -> Loader:
    """Return a DataLoader; `fetch` holds CPU seconds, number, waits and run delay of fetches; None if untimed."""
    return {
        "workers": attribute(loader, "num_workers", 0),
        "batch_size": attribute(loader, "batch_size"),
        "pin_memory": bool(attribute(loader, "pin_memory")),
        "length": known(len, loader),
        "fetch_seconds": fetch[0] if fetch else None,
        "fetches": int(fetch[1]) if fetch else 0,
        "fetch_waits": fetch[2] if fetch else 0.0,
        "fetch_run_delay": fetch[3] if fetch else 0.0,
    }


def device_type(phase, torch):
    """Return where the parameters of the phase's optimizers live: ``cpu``, ``cuda``, ..."""
    for optimizer in phase.optimizers.values():
        for group in optimizer.param_groups:
            for value in group["params"]:
                return value.device.type
    # updated by hand; a broken driver is no device
    return "cuda" if not GPU_REQUESTS.fake_cuda and known(torch.cuda.memory_allocated) else "cpu"


def describe_batch(batch, torch) -> Batch:
    """Return samples and bytes of a batch in any nesting."""
    sizes, total, stack = [], 0, [batch]
    while stack:
        value = stack.pop()
        if isinstance(value, torch.Tensor):
            total += value.numel() * value.element_size()
            sizes.append(value.shape[0] if value.dim() else 1)
        elif isinstance(value, dict):
            stack.extend(dict.values(value))
        elif isinstance(value, UserDict):  # what tokenizers make
            stack.append((attribute(value, "__dict__") or {}).get("data"))
        elif isinstance(value, (list, tuple)):
            stack.extend(value)
        elif len(sizes) < 64:
            held = attribute(value, "__dict__")
            stack.extend(v for v in (held or {}).values() if isinstance(v, torch.Tensor))
    return {"size": max(sizes) if sizes else None, "bytes": total}


def own_part(value):
    """Return what this rank holds of a sharded tensor."""
    return attribute(value, "_local_tensor", value)


def describe_optimizer(optimizer, steps, torch) -> Optimizer:
    parameters = [own_part(value) for group in optimizer.param_groups for value in group["params"]]
    by_dtype: dict[str, int] = {}
    state = 0
    for value in parameters:
        name = str(value.dtype).replace("torch.", "")
        by_dtype[name] = by_dtype.get(name, 0) + value.numel()
    try:
        for entry in optimizer.state.values():
            for value in map(own_part, entry.values() if isinstance(entry, dict) else ()):
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
        "parameters": sum(by_dtype.values()),
        "tensors": len(parameters),
        "dtypes": by_dtype,
        "state_bytes": state,
        "steps": steps,
    }
