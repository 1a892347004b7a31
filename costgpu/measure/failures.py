"""From what the probe saw of a failed run to an error that tells the user what to do."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Iterable
from pathlib import Path

from costgpu.errors import (
    KilledBySignal,
    MissingFiles,
    MissingImport,
    NeedsCuda,
    NoStandIn,
    NothingToMeasure,
    NoTrainingStep,
    OutOfMemory,
    ScriptCrashed,
    ScriptError,
    ScriptNotFound,
    WaitsForInput,
    WouldHarmFiles,
)
from costgpu.measure.check_source import not_python
from costgpu.measure.cuda_errors import crashed_for_cuda, lists_gpus, only_on_a_gpu, ran_on_fake_cuda, says_cuda
from costgpu.measure.interpreter import Interpreter
from costgpu.measure.isolation.levels import Isolation
from costgpu.measure.probe.record import ProbeRecord, SeriesRecord
from costgpu.measure.profile.profile_builder import trained_by_torch
from costgpu.measure.profile.progress_series import shows_progress, usable
from costgpu.measure.session import Outcome, Request
from costgpu.units import format_size

QUOTED_LINES, QUOTED_CHARS = 8, 200
LEAST_OWN_SHARE = 0.25  # of a core: a script that computes less beside the programs that it starts only waits for them
LEAST_LARGE_BYTES = 1 << 30  # of a model, a step of which may take minutes on a few cores
MOST_QUOTED = 3  # progress bars in one message
# A script or a module that a Python runs, but for the tools that come with it; or a launcher.
_TRAINS_ELSEWHERE = re.compile(
    r"python[\d.]*(?:\s+-[a-zA-Z]\b)*\s+(?:\S+\.py\b|-m\s+(?!pip\b|venv\b|ensurepip\b))"
    r"|\b(?:torchrun|accelerate launch|deepspeed)\b"
)
_MEMORY = re.compile(r"can't allocate memory|cannot allocate memory|out of memory|not enough memory", re.IGNORECASE)


def too_large(outcome: Outcome, error: ScriptError) -> bool:
    """Return whether a measurement failed for the size of its model, so that it can be made without weights."""
    record = outcome.record
    if record is None:
        return outcome.returncode == -signal.SIGKILL
    slow = record["status"] == "never_stepped" and record.get("model_bytes", 0) >= LEAST_LARGE_BYTES
    return slow or record["status"] == "too_large" or isinstance(error, OutOfMemory)


def explain(outcome: Outcome, request: Request, interpreter: Interpreter) -> ScriptError | None:
    """Return the error of a measurement that cannot be used; None for one that can."""
    record = outcome.record
    protected = outcome.isolation is Isolation.WRITE_PROTECTED and record is not None and record["status"] == "crashed"
    path = (record.get("refused_path") if record is not None else None) or ""
    folder = Path(path).parent
    writable = os.access(path, os.W_OK) or (folder.is_dir() and os.access(folder, os.W_OK))  # or made in its folder
    if protected and path and writable:
        return WouldHarmFiles(
            f"{request.name} ended because it may not write there while it is measured: {path}",
            hint="On this machine it runs in a copy of its folder, in which large files are for reading, and may write"
            " nowhere else. Measure where namespaces are allowed: costgpu doctor.",
        )
    name = request.name
    if outcome.too_large is not None:
        return writes_too_much(name, outcome.too_large)
    if record is None:
        return _without_record(outcome, name)
    status = record["status"]
    trained = status in ("cut", "ended") and trained_by_torch(record)
    if not trained and (elsewhere := _works_elsewhere(record, outcome, name)):
        return elsewhere
    if (
        not trained
        and status == "ended"
        and not shows_progress(record)
        and (refused := _found_no_gpu(record, name, outcome))
    ):
        return refused
    if trained or (status in ("cut", "ended") and usable(record)):
        return None
    if status == "cut":
        once = any(not phase["trains"] for phase in record.get("phases", []))
        what = "ran its model once and not again" if once else "made one step and none after it"
        return NoTrainingStep(
            f"{name} {what} within the time limit.",
            hint=_where(record) + f"Raise --measure-for if one {'call' if once else 'step'} takes that long.",
        )
    if status == "ended":
        return _ended_without_steps(record, name, outcome)
    if status == "never_stepped":
        return _never_stepped(record, request)
    if status == "too_large":
        return OutOfMemory(
            f"{name} does not fit this machine: {record['what']} ({format_size(record['bytes_needed'])}).",
            hint="Measure it without weights: --weights none. Or on a machine with more memory.",
        )
    if status == "exited":
        return _exited(record, name, outcome)
    return _crashed(record, name, outcome, interpreter, request)


def _works_elsewhere(record: ProbeRecord, outcome: Outcome, name: str) -> ScriptError | None:
    """Return the error of a script that leaves its work to other programs or processes; None for one that works itself."""
    status = record["status"]
    if status not in ("cut", "ended", "never_stepped"):
        return None
    if any(series["source"] != "tqdm" and series["steps"] for series in record.get("series") or []):
        return None
    children = record.get("children_cpu_seconds", 0.0)
    own = record.get("cpu_seconds", 0.0) - children
    program = next((text for text in outcome.programs if _TRAINS_ELSEWHERE.search(text)), "")
    if program and (children > own or own < LEAST_OWN_SHARE * record["wall_seconds"]):
        return NoTrainingStep(
            f"{name} leaves the work to a program that it starts, and what that does is not measured:"
            f" {program[:QUOTED_CHARS]}",
            hint="Measure that program itself: costgpu estimate train.py, or costgpu estimate torchrun ... train.py",
        )
    in_children = children > own or (status == "never_stepped" and record.get("children", 0) > 0)
    # With an optimizer here it only waits for them, as for workers that simulate, unless it waits for their end.
    own_turn = status == "never_stepped" and record.get("optimizers_made") and "join(" not in _where(record)
    if record.get("torch") is not None and in_children and not own_turn:
        return NoTrainingStep(
            f"{name} seems to train in child processes, whose steps cannot be seen from here.",
            hint=_where(record) + "Measure what one of them does: let the script call its function directly.",
        )
    return None


def writes_too_much(name: str, limit_bytes: int) -> WouldHarmFiles:
    """Return the error of a program that writes more than may be kept away from the user's files."""
    return WouldHarmFiles(
        f"{name} wrote more than {format_size(limit_bytes)} while it was measured, where its writes are kept for a while.",
        hint="Make room where the cache is (costgpu doctor shows it), or let the script write less: fewer checkpoints.",
    )


def quote_last_lines(message: str, lines: Iterable[str]) -> str:
    """Return a message with the last lines that a program printed, if it printed any."""
    last = [f"\n    {line[:QUOTED_CHARS]}" for line in lines if line.strip()][-QUOTED_LINES:]
    return f"{message} Its last lines:{''.join(last)}" if last else message


def killed_by_signal(name: str, number: int, lines: Iterable[str], log: Path) -> KilledBySignal:
    """Return the error of a program that a signal ended, which was not ours."""
    word = signal.Signals(number).name if number in set(signal.Signals) else f"signal {number}"
    memory = "Most often the system ran out of memory: try a smaller batch, and see `dmesg`."
    return KilledBySignal(
        quote_last_lines(f"{name} was killed by {word}, which costgpu did not send.", lines),
        hint=memory if number == signal.SIGKILL else f"A crash in native code. Its output is in {log}",
    )


def _printed(log: Path) -> list[str]:
    """Return the last lines of a log that are not blank."""
    try:
        text = log.read_bytes()[-8000:].decode("utf-8", "replace")
    except OSError:
        return []
    return [line for line in text.splitlines() if line.strip()]


def _with_tail(message: str, outcome: Outcome) -> str:
    return quote_last_lines(message, _printed(outcome.log))


def _where(record: ProbeRecord) -> str:
    stack = record.get("where")
    return f"It was at {stack[-1]}. " if stack else ""


def _without_record(outcome: Outcome, name: str) -> ScriptError:
    if outcome.timed_out:
        return NoTrainingStep(
            f"{name} did not answer within the time limit and was ended.",
            hint=f"It may hang in native code, or have restarted itself in a new process. Its output is in {outcome.log}",
        )
    if outcome.returncode < 0:
        return killed_by_signal(name, -outcome.returncode, _printed(outcome.log), outcome.log)
    message = f"{name} ended itself with status {outcome.returncode} before the measurement was complete."
    return ScriptCrashed(_with_tail(message, outcome), hint=f"Its whole output is in {outcome.log}")


def _ended_without_steps(record: ProbeRecord, name: str, outcome: Outcome) -> ScriptError:
    steps = sum(phase["steps"] for phase in record.get("phases", []))
    if steps and not any(phase["trains"] for phase in record["phases"]):
        return NothingToMeasure(
            f"{name} ended after it had run its model once, in {record['wall_seconds']:.1f} s.",
            hint="There is nothing to predict from: give it as many items as it is to work through.",
        )
    if steps:
        return NothingToMeasure(
            f"{name} ended after a single training step in {record['wall_seconds']:.1f} s.",
            hint="There is nothing to predict from: give it arguments with which it trains for real.",
        )
    if looks := _looks_for_gpu(record, name, outcome):
        return looks
    if record.get("torch") is None:
        return NothingToMeasure(
            _with_tail(f"{name} ended after {record['wall_seconds']:.1f} s and never imported torch.", outcome),
            hint="There is nothing to predict from: is this the script that trains, with the right arguments?",
        )
    return NothingToMeasure(
        _with_tail(f"{name} ended after {record['wall_seconds']:.1f} s without an optimizer step.", outcome),
        hint="Does it need arguments to train, or to work through its items? In its main thread no model was called again"
        " and again.",
    )


def _found_no_gpu(record: ProbeRecord, name: str, outcome: Outcome) -> ScriptError | None:
    """Return the error of a script with torch that ended without a step because there is no GPU; None for any other."""
    torch = record.get("torch")
    if torch is None or any(phase["steps"] for phase in record.get("phases", [])):
        return None
    tail = "\n".join(_printed(outcome.log)[-QUOTED_LINES:])
    if not record.get("optimizers_made") and says_cuda(tail):
        return _needs_cuda(name, tail, record)
    if torch["processes_for_no_gpu"]:
        return _needs_cuda(name, "it starts one process for each, and here that is none", record)
    return _looks_for_gpu(record, name, outcome)


def _looks_for_gpu(record: ProbeRecord, name: str, outcome: Outcome) -> ScriptError | None:
    """Return the error of a script that asked a program for GPUs, and ended before it made an optimizer.

    None for any other.
    """
    said = "\n".join([*_printed(outcome.log)[-QUOTED_LINES:], *outcome.programs])
    lister = "" if record.get("optimizers_made") else lists_gpus(said)
    return _needs_cuda(name, f"it looks for one with {lister}", record) if lister else None


def _never_stepped(record: ProbeRecord, request: Request) -> ScriptError:
    limit = request.start_limit_seconds
    if going := record.get("fit_going"):
        return NoTrainingStep(
            f"{request.name}: {going['estimator']}.fit ({going['label'] or 'in a library'}) did not end in {limit:.0f} s,"
            " and does not say how far it is.",
            hint="Measure with a tenth of the rows, or raise --start-limit; a search shows its fits with n_jobs=1.",
        )
    hint = "Raise --start-limit if it prepares for longer than that. "
    preparing = [words for series in record.get("series") or [] if (words := _prepares(series))]
    if record.get("manual"):
        message = f"{request.name} made {record['manual']} backward passes but no optimizer step in {limit:.0f} s."
        hint = "With that much gradient accumulation, raise --start-limit. "
    elif record.get("optimizers_made"):
        message = f"{request.name} made an optimizer but no step with it in {limit:.0f} s."
    elif not (preparing or record.get("versions") or record.get("awaits_training")):
        message = (
            f"{request.name} did nothing in {limit:.0f} s that can be counted: it imports no framework, shows no"
            " progress bar, and no loop of it has a length that can be read."
        )
        hint = "Wrap its loop in tqdm, or let it print how far it is and name that line with --step-pattern. "
    else:
        message = f"{request.name} did not reach a training step in {limit:.0f} s."
    if preparing:
        message += f" All that was seen is preparation: {'; '.join(preparing[:MOST_QUOTED])}."
    return NoTrainingStep(message, hint=_where(record) + hint)


def _prepares(series: SeriesRecord) -> str:
    """Return a progress bar that is not the job, in words."""
    facts = series["facts"]
    if series["source"] != "tqdm" or not series["steps"]:
        return ""
    name = f"the bar {facts['description']!r}" if facts.get("description") else "a progress bar"
    total = f" of {facts['total']:,.0f}" if facts.get("total") is not None else ""
    why = f" ({series['setup']})" if series["setup"] else ""
    return f"{name} at {series['label'] or '?'}, {series['steps']:,}{total}{why}"


def _exited(record: ProbeRecord, name: str, outcome: Outcome) -> ScriptError:
    printed = _printed(outcome.log)
    said = (record.get("message") or "").strip() or "".join(printed[-1:]).strip()
    if says_cuda(said) or lists_gpus(said):
        return _needs_cuda(name, said, record)
    if record.get("code") == 2 and any("usage:" in line for line in printed[-40:]):
        return ScriptCrashed(
            _with_tail(f"{name} does not accept its arguments.", outcome),
            hint="Put the script's own arguments after its name: costgpu estimate train.py --epochs 10",
        )
    return ScriptCrashed(
        _with_tail(f"{name} exited with status {record.get('code')} before enough steps were seen.", outcome),
        hint=f"{_world(record)}Its whole output is in {outcome.log}",
    )


def _needs_cuda(name: str, reason: str, record: ProbeRecord) -> NeedsCuda:
    even = ", even where its CUDA calls land on the CPU" if ran_on_fake_cuda(record) else ""
    return NeedsCuda(
        f"{name} refuses to run without a CUDA device{even}: {reason.splitlines()[-1][:200]}",
        hint="Measure on a machine with an NVIDIA GPU, or let it use the CPU where torch.cuda.is_available() is false.",
    )


def _gpu_only(name: str, thing: str, record: ProbeRecord) -> NeedsCuda:
    said = (record["message"].strip() or record["kind"]).splitlines()[0][:200]
    return NeedsCuda(
        f"{name} uses {thing}, which a CPU cannot stand in for: {said}",
        hint=f"Measure on a machine with an NVIDIA GPU, or give the script an option to do without {thing}.",
    )


def _crashed(
    record: ProbeRecord, name: str, outcome: Outcome, interpreter: Interpreter, request: Request
) -> ScriptError:
    kind, message, trail = record["kind"], record["message"], record["trail"]
    if kind == "FileNotFoundError" and request.script and str(request.script) in message and 'File "' not in trail:
        return ScriptNotFound(f"There is no script {request.script}.", hint="Check the path.")
    if request.module and "File" not in trail and message.startswith("No module named"):
        return ScriptNotFound(
            f"There is no module {request.module!r} to run with -m.",
            hint="Run it from the folder that holds the package, or name that folder with --workdir.",
        )
    if kind == "WithoutStandIn":
        return NoStandIn(
            f"{name} cannot be measured without weights: {message}.",
            hint="On a machine with enough memory for its model: --weights real.",
        )
    wanted = record.get("missing_files", [])
    if wanted and "OSError" in record.get("bases", []):
        return _missing_files(name, wanted)
    if thing := only_on_a_gpu(record):
        return _gpu_only(name, thing, record)
    if record.get("missing") and record.get("no_module"):
        missing = record["missing"]
        return MissingImport(
            f"{name} imports {missing!r}, which {interpreter.path} does not have.",
            hint=f"Install it there ({interpreter.path} -m pip install ...), or name the right one with --python.",
        )
    if request.module and kind == "ImportError" and "__main__" in message:
        return ScriptNotFound(message + ".", hint="A package needs a __main__.py to be run with -m.")
    if kind in ("SyntaxError", "IndentationError", "TabError") or "null bytes" in message:
        return not_python(name, f"{interpreter.path} ({interpreter.version})", message)
    if kind == "EOFError" and re.search(r"\binput\(|stdin|getpass|EOF when reading a line", trail):
        return WaitsForInput(
            f"{name} waits for input on stdin, and a measurement gives it none.",
            hint="Pass what it asks for as an argument, or give it a default.",
        )
    if crashed_for_cuda(record):
        return _needs_cuda(name, message or kind, record)
    asserted = next((line for line in reversed(trail.splitlines()) if "assert" in line.split("#")[0]), "")
    if kind == "AssertionError" and "cuda" in asserted.lower():
        return _needs_cuda(name, asserted.strip(), record)
    if "MemoryError" in record.get("bases", []) or _MEMORY.search(message):
        return OutOfMemory(
            f"{name} ran out of memory here: {message.splitlines()[0][:200] if message else kind}",
            hint="Measure with a smaller batch, or on a machine with more memory.",
        )
    lister = lists_gpus("\n".join([message, trail, *outcome.programs]))
    if lister and not ran_on_fake_cuda(record):
        return _needs_cuda(name, f"it looks for one with {lister} ({' '.join(message.split()) or kind})", record)
    asked = "It asks for CUDA, and its CUDA calls landed on the CPU: if that is why, measure on a machine with a GPU. "
    return ScriptCrashed(
        _with_tail(f"{name} crashed with {_last_words(kind, message)}.", outcome),
        hint=f"{asked if ran_on_fake_cuda(record) else ''}{_world(record)}Its whole output is in {outcome.log}",
    )


def _missing_files(name: str, wanted: list[list[str]]) -> MissingFiles:
    source = wanted[-1][0]
    files = ", ".join(dict.fromkeys(file for repository, file in wanted if repository == source))
    return MissingFiles(
        f"{name} wants files of {source}, which are neither here nor within reach: {files}.",
        hint="To measure it without weights, configuration and tokenizer do, a few MB:"
        f" hf download {source} --exclude '*.safetensors' '*.bin' '*.pt*' '*.gguf' '*.h5' '*.msgpack'",
    )


def _last_words(kind: str, message: str) -> str:
    """Return an exception in one line; of one that a worker process sends with its whole traceback, the last."""
    if "Traceback (most recent call last)" in message:
        return message.strip().splitlines()[-1][:300].rstrip(".")
    return f"{kind}: {message[:300].strip()}".rstrip(".") if message else kind


def _world(record: ProbeRecord) -> str:
    """Return the number of ranks that it was told, where it was told more than one."""
    ranks = record.get("ranks")
    if ranks is None or ranks["measured"] == 1:
        return ""
    return (
        f"It was told that it is rank 0 of {ranks['measured']}: a batch size or the number of its heads may have to be"
        " divisible by that; another number of processes for the launcher changes it. "
    )
