"""What to estimate, as the command line and the Python interface ask for it."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from costgpu.errors import UsageError
from costgpu.estimator.multi_gpu.layouts import NODE_COUNTS
from costgpu.estimator.verdict import Preferences
from costgpu.measure.isolation.levels import Isolation
from costgpu.measure.launcher import Launch, find_launch
from costgpu.measure.prefixes import split_prefixes
from costgpu.models.defaults import MEASURE_FOR_SECONDS, START_LIMIT_SECONDS
from costgpu.models.prediction import Objective
from costgpu.units import LARGEST_WHOLE, WORK, NumberRange, parse_duration, parse_range, parse_rate, parse_usd
from costgpu.workflows.options import PlaceOptions, Real, Switch, Text, WholeNumber, WholeOrNone, Word, Words

MEASURE_FOR = f"{MEASURE_FOR_SECONDS:.0f}s"
START_LIMIT = f"{START_LIMIT_SECONDS:.0f}s"
TABLE_ROWS = 8
SEQUENCE, BATCH = 2048, 4  # of a fine-tune whose script is not there: the most usual ones
MOST_NODES = NODE_COUNTS[-1]
SHELL_SUFFIX = ".sh"
SYSTEM_FOLDERS = ("/bin/", "/usr/bin/", "/sbin/", "/usr/sbin/")  # which every machine has, with much the same in them
_LONGEST_SHEBANG = 256  # bytes, as in Linux


@dataclass(kw_only=True)
class ScriptOptions(PlaceOptions):
    """What to measure or run, as texts: time spans ``90s`` or ``2h``."""

    command: Words = Words("The script and its own arguments.", metavar="SCRIPT [ARGS]...")
    module: Text = Text("Module to run; what follows it belongs to the module.", "-m")
    python: Text = Text("Interpreter for the script; default: the active virtual environment's, else python.")
    workdir: Text = Text("Folder to run in; default: the script's own.")
    measure_for: Word = Word("Time to measure after the first step.", default=MEASURE_FOR)
    isolation: Text = Text("How its writes are kept off your files: copy-on-write, write-protected, copy.")
    weights: Text = Text(
        "Measure with its weights (real) or without (none); default: without where they do not fit.",
        metavar="real|none",
    )
    start_limit: Word = Word("Longest wait for the first step.", default=START_LIMIT)

    @cached_property
    def launch(self) -> Launch | None:
        """Return how the command starts a Python script through a launcher or an interpreter; None if it does neither."""
        return find_launch(self.command, self.module)

    @cached_property
    def program(self) -> tuple[str, ...]:
        """Return the command line of a program that is no Python script, without variables in front; empty for a script."""
        words = split_prefixes(self.command)[1]
        if self.module is not None or self.launch is not None or not words or not is_program(words[0]):
            return ()
        return started(words)

    @property
    def isolation_level(self) -> Isolation | None:
        """Return the only level to measure at; None for the strongest that this machine gives."""
        if self.isolation is not None and self.isolation not in list(Isolation):
            raise UsageError(f"There is no isolation {self.isolation!r}.", hint=f"Choose {', '.join(Isolation)}.")
        return Isolation(self.isolation) if self.isolation is not None else None

    @property
    def weights_policy(self) -> str:
        """Return ``real``, ``none``, or ``tried`` for what turns out to fit."""
        if self.weights not in (None, "real", "none"):
            raise UsageError(f"There is no --weights {self.weights}.", hint="Choose real or none.")
        return self.weights or "tried"

    @cached_property
    def measure_seconds(self) -> float:
        """Seconds of `measure_for`."""
        return parse_duration(self.measure_for, "--measure-for")

    @cached_property
    def start_seconds(self) -> float:
        """Seconds of `start_limit`."""
        return parse_duration(self.start_limit, "--start-limit")


@dataclass(kw_only=True)
class EstimateRequest(ScriptOptions):
    """The options of `costgpu estimate`, as texts: amounts of US dollars."""

    command: Words = Words("The script and its own arguments, or a saved profile.json.", metavar="SCRIPT [ARGS]...")
    steps: WholeOrNone = WholeOrNone("Number of timed steps after which to stop.", low=1, high=LARGEST_WHOLE)
    epochs: Real = Real("Number of epochs to predict.")
    total_steps: Real = Real("Number of optimizer steps to predict.")
    like: Text = Text("Kind of work, e.g. resnet50, instead of a measurement.")
    params: Text = Text("Parameters of a language model, e.g. 7B, instead of a measurement.")
    tokens: Text = Text("Training tokens, e.g. 1B (with --params or --like-model).")
    like_model: Text = Text(
        "Model of the Hugging Face Hub, or its folder, whose fine-tune is measured.", metavar="ORG/NAME"
    )
    method: Text = Text("How it is fine-tuned: lora (the default), qlora or full.")
    sequence: WholeNumber = WholeNumber("Tokens of one of its texts.", default=SEQUENCE, low=1, high=LARGEST_WHOLE)
    batch: WholeNumber = WholeNumber("Texts of one of its steps.", default=BATCH, low=1, high=LARGEST_WHOLE)
    trust: Switch = Switch("Run code that comes with it.", "--trust", default=False)
    step_pattern: Text = Text("Pattern of a program's progress lines: 'tick (?P<step>[0-9]+)'.")
    save: Text = Text("JSON file to write the measured profile to.")
    objective: Word = Word("Objective: cheapest, fastest or balanced.", default=Objective.CHEAPEST.value)
    deadline: Text = Text("Longest time that the job may take, e.g. 2h.")
    max_cost: Text = Text("Highest cost of the job in USD.")
    value_of_time: Text = Text("Value of an hour of waiting in USD.")
    rate: Text = Text("Requests that a service gets, e.g. 5/s or 1M/day.")
    nodes: Text = Text("Machines that train together, e.g. 4, or 2-16 to choose from.", metavar="N")
    spot: Switch = Switch("Spot or on-demand prices.", "--spot/--on-demand", "--use-spot", default=False)
    rows: WholeNumber = WholeNumber(
        "Number of rows of the table.", "--top", default=TABLE_ROWS, low=1, high=LARGEST_WHOLE
    )
    own: Text = Text("GPU of your own to compare with, e.g. RTX 3090.")
    own_price: Text = Text("Purchase price of --own in USD.")
    power_price: Text = Text("Price of electricity in USD per kWh.")
    energy: Switch = Switch("Show the modelled energy in kWh.", "--energy", default=False)

    @cached_property
    def items_per_second(self) -> float | None:
        """Items per second of `rate`; None without one."""
        return parse_rate(self.rate) if self.rate is not None else None

    @cached_property
    def node_counts(self) -> tuple[int, ...] | None:
        """Numbers of machines to predict; None for one, and more of them where one does not do."""
        return None if self.nodes is None else _node_counts(self.nodes)

    @property
    def is_measured(self) -> bool:
        """Return whether there is something to measure, and not only a kind of work or the size of a language model."""
        return self.params is None and (self.like is None or bool(self.command) or self.like_model is not None)

    @property
    def is_program(self) -> bool:
        """Return whether the command is neither a Python script nor a profile, but a program that can be started."""
        if self.module is not None or not self.command or not is_program(self.command[0]):
            return False
        return self.step_pattern is not None or self.like is not None or self.launch is None

    def preferences(self) -> Preferences:
        """Return the user's objective and limits."""
        if self.objective not in list(Objective):
            raise UsageError(f"There is no objective {self.objective!r}.", hint="Choose cheapest, fastest or balanced.")
        return Preferences(
            objective=Objective(self.objective),
            deadline_seconds=None if self.deadline is None else parse_duration(self.deadline, "--deadline"),
            max_cost_usd=None if self.max_cost is None else float(parse_usd(self.max_cost, "--max-cost")),
            value_of_time_usd_per_hour=float(parse_usd(self.value_of_time, "--value-of-time"))
            if self.value_of_time is not None
            else 0.0,
            rows=self.rows,
            instance_types=self.instance_type,
        )


def is_program(word: str) -> bool:
    """Return whether this can be started and is neither a Python script, a notebook nor a profile."""
    path = Path(word)
    if path.suffix in (".py", ".json", ".ipynb") or path.is_dir() or not word:
        return False
    if path.is_file():
        first = _first_line(path)
        if first.startswith(b"#!"):
            return b"python" not in first
        return path.suffix == SHELL_SUFFIX or (os.access(path, os.X_OK) and b"\0" in first)
    return shutil.which(word) is not None


def started(command: Sequence[str]) -> tuple[str, ...]:
    """Return how a program is started that may not be executable, or be in this folder rather than on PATH."""
    word, *arguments = command
    path = Path(word)
    if not path.is_file() or (os.sep not in word and shutil.which(word)):
        return (word, *arguments)
    word = word if os.sep in word else os.path.join(os.curdir, word)  # noqa: PTH118 - a path would lose the "./"
    first = _first_line(path)
    if os.access(path, os.X_OK) and (first.startswith(b"#!") or path.suffix != SHELL_SUFFIX):
        return (word, *arguments)
    words = first.removeprefix(b"#!").decode(errors="replace").split() if first.startswith(b"#!") else ["bash"]
    return (*words, word, *arguments)


def _first_line(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.readline(_LONGEST_SHEBANG)


def _node_counts(text: str) -> tuple[int, ...]:
    """Return the number of machines of ``4``, the powers of two of ``2-16``."""
    wanted = parse_range(text.replace("-", ".."), what="--nodes", within=NumberRange(1, MOST_NODES))
    low, high = wanted.low, MOST_NODES if wanted.high is None else wanted.high
    if low != int(low) or high != int(high):
        raise UsageError(f"--nodes {text}: machines come as whole numbers.", hint="--nodes 4, or --nodes 2-16")
    if low == high:
        return (int(low),)
    found = tuple(count for count in (1, *NODE_COUNTS) if low <= count <= high)
    return found or (int(low), int(high))


def check(request: EstimateRequest) -> None:
    """Refuses options that contradict each other, before anything is measured.

    Raises:
        UsageError: With the options that do not go together.
    """
    _check_numbers(request)
    _check_rate(request)
    _ = request.isolation_level  # also where nothing is measured
    _check_like_model(request)
    if request.like_model is None and (request.params is None) != (request.tokens is None):
        raise UsageError("--params and --tokens go together.", hint="--params 7B --tokens 1B")
    if request.params is not None and request.like is not None:
        raise UsageError("--like and --params exclude each other.", hint="Give one of them.")
    if request.params is not None and (request.command or request.module):
        raise UsageError(
            "--params is for a model that is not measured; there is a script as well.",
            hint="Leave out --params and --tokens to measure it.",
        )
    if request.like is not None and (request.module or (request.command and not request.is_program)):
        raise UsageError(
            "--like is for what cannot be measured, and a script can be.",
            hint="Leave it out; or leave out the script for the figures of the kind of work alone.",
        )
    _check_step_pattern(request)
    _check_like(request)
    if request.save and not request.is_measured:
        raise UsageError("--save keeps what was measured, and here nothing is.")
    if request.is_measured and not request.command and request.module is None and request.like_model is None:
        raise UsageError("Which script?", hint="costgpu estimate train.py, or costgpu estimate -m package")


def _check_like_model(request: EstimateRequest) -> None:
    if request.like_model is None:
        given = {
            "--method": request.method is not None,
            "--sequence": request.sequence != SEQUENCE,
            "--batch": request.batch != BATCH,
            "--trust": request.trust,
        }
        if names := [name for name, is_given in given.items() if is_given]:
            raise UsageError(f"{names[0]} is for --like-model.", hint="A script has options of its own.")
        return
    others = {
        "a script": bool(request.command),
        "-m": request.module,
        "--params": request.params,
        "--like": request.like,
    }
    if names := [name for name, is_given in others.items() if is_given]:
        raise UsageError(
            f"--like-model and {names[0]} exclude each other.",
            hint="Without a script, the fine-tune of the model is measured; a script is measured itself.",
        )
    if request.weights == "real":
        raise UsageError("--like-model is measured without weights.", hint="Leave out --weights real.")


def _check_numbers(request: EstimateRequest) -> None:
    if request.epochs is not None and request.total_steps is not None:
        raise UsageError("--epochs and --total-steps exclude each other.", hint="Give one of them.")
    for name, value in (("--epochs", request.epochs), ("--total-steps", request.total_steps)):
        if value is not None and value not in WORK:
            raise UsageError(f"{name} {value:g} is not a number from {WORK.low:g} to {WORK.high:g}.")
    _ = request.measure_seconds, request.start_seconds, request.node_counts  # a wrong one is an error


def _check_rate(request: EstimateRequest) -> None:
    if request.items_per_second is None:
        return
    if not request.is_measured or request.is_program:
        raise UsageError("--rate is for a Python script that runs a model, and needs one to measure.")
    of_a_job = {
        "--epochs": request.epochs,
        "--total-steps": request.total_steps,
        "--deadline": request.deadline,
        "--max-cost": request.max_cost,
        "--value-of-time": request.value_of_time,
    }
    if given := [name for name, value in of_a_job.items() if value is not None]:
        raise UsageError(
            f"--rate asks for a service, which has no end: {given[0]} is for a job.", hint="Leave one out."
        )


def _check_step_pattern(request: EstimateRequest) -> None:
    if request.step_pattern is None:
        return
    if not request.is_program:
        raise UsageError(
            "--step-pattern is for programs that are measured by what they print.",
            hint="costgpu estimate --step-pattern 'tick (?P<step>[0-9]+)' -- ./program",
        )
    from costgpu.measure.log.lines import user_pattern

    user_pattern(request.step_pattern)


def _check_like(request: EstimateRequest) -> None:
    if request.like is None:
        return
    if not request.is_measured:
        from costgpu.pricing.speedups import reference

        reference(request.like)
        return
    import difflib

    from costgpu.pricing.speedups import kinds, speedups

    if request.like not in (known := kinds(speedups())):
        near = difflib.get_close_matches(request.like, known, 3) or sorted(known)
        raise UsageError(f"There is no kind of work {request.like!r}.", hint=f"Choose {', '.join(near)}.")
