"""Command lines of launchers: which script they start, with which arguments, and in how many processes. Pure.

The first process of those that the launcher would start is measured. The launchers' own parsers are not asked: a
computer that rents machines may have none of them (DeepSpeed cannot be installed on macOS), and their imports take
seconds. Known here are the options that take no value (torch 2.13, accelerate 1.15, DeepSpeed 0.19; read 2026-11), and
those that costgpu reads or that a run decides itself. One of a name that is not known takes a value unless another option
or a Python file comes after it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import PurePath

from costgpu.errors import UsageError
from costgpu.measure.prefixes import NO_PREFIXES, Prefixes, split_prefixes

DEVICES = ("auto", "gpu", "cpu", "xpu", "-1")  # instead of a number of processes
MOST_DIGITS = 6
LEAST_LETTERS = 5  # of a name that is cut short, as argparse allows
FLAGS = (
    *("module", "no-python", "standalone", "run-path", "virtual-local-rank", "use-env", "help", "quiet", "debug"),
    *("cpu", "multi-gpu", "tpu", "enable-cpu-affinity", "use-deepspeed", "use-fsdp", "use-parallelism-config"),
    *("use-megatron-lm", "same-network", "tpu-cluster", "no-tpu-cluster", "tpu-use-sudo", "downcast-bf16"),
    *("dynamo-use-fullgraph", "dynamo-use-dynamic", "dynamo-use-regional-compilation", "fp8-use-autocast-during-eval"),
    *("no-local-rank", "force-multi", "save-pid", "bind-cores-to-rank", "no-ssh-check", "no-ssh", "elastic-training"),
)
READ = ("config-file", "max-restarts")  # and passed on as they are
# How many processes a rented machine can hold is its own business: a run leaves these to the launcher there.
SIZES = (
    *("nproc-per-node", "nnodes", "num-processes", "num-machines", "multi-gpu", "num-gpus", "num-accelerators"),
    *("num-nodes", "include", "exclude", "hostfile", "machine-rank", "main-process-ip", "main-process-port", "gpu-ids"),
)
# Where the processes of several machines meet is the run's business, too.
RENDEZVOUS = (
    *("rdzv-backend", "rdzv-endpoint", "rdzv-id", "rdzv-conf", "standalone", "node-rank", "local-addr"),
    *("master-addr", "master-port"),
)
KNOWN = (*FLAGS, *READ, *SIZES, *RENDEZVOUS)
SHORT = {"-m": "module", "-h": "help", "-q": "quiet", "-i": "include", "-e": "exclude", "-H": "hostfile"}
PROGRAMS = {  # and the modules that they run
    "torchrun": "torch.distributed.run",
    "accelerate": "accelerate.commands.accelerate_cli",
    "accelerate-launch": "accelerate.commands.launch",
    "deepspeed": "deepspeed.launcher.runner",
    "ds": "deepspeed.launcher.runner",
}
TORCHRUN = ("torchrun", "torch.distributed.run", "torch.distributed.launch")
_PYTHON = re.compile(r"python(3(\.\d+)?)?(\.exe)?")
_PYTHON_FLAGS = re.compile(r"-[bBdEiIOPqsSuvx]+")
_SETTING = re.compile(r"^(\w+):[ \t]*['\"]?([^'\"#\n]*?)['\"]?[ \t]*(?:#.*)?$", re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """A script, and the processes in which a launcher would start it."""

    launcher: str  # for people: ``torchrun``, ``accelerate launch``, ``python``
    runner: str = ""  # module with which a run starts the script; empty for plain Python or torchrun
    kept: tuple[str, ...] = ()  # options for a run: not how many processes there are, nor where they meet
    script: str | None = None  # None with `module`
    module: str | None = None
    arguments: tuple[str, ...] = ()
    processes: int | None = 1  # over all machines; None for one per GPU
    machines: int = 1  # at most, where it is elastic
    least_machines: int = 1  # with which it goes on; fewer than `machines` where it is elastic
    max_restarts: int = 0  # that torchrun may make
    python: str | None = None  # the interpreter that the command names
    ranked: bool = False  # whether each process finds its rank in its environment
    local_rank: bool = False  # whether each process is also given its rank as an argument
    config: str | None = None  # the launcher's file of settings; empty for its default one
    prefixes: Prefixes = NO_PREFIXES  # what stands in front of it

    @property
    def torchrun(self) -> bool:
        """Return whether it is torchrun, by one of its names."""
        return self.launcher in TORCHRUN

    @property
    def per_gpu(self) -> bool:
        """Return whether a run starts one process for each GPU of its machine, with torchrun."""
        return self.ranked and not self.runner

    @property
    def elastic(self) -> bool:
        """Return whether it may go on with fewer machines, or start its processes again."""
        return self.least_machines < self.machines or self.max_restarts > 0

    @property
    def asked(self) -> str:
        """Return how many processes it starts, for people; empty for one."""
        if self.processes == 1:
            return ""
        machines = f" on {self.machines} machines" if self.machines > 1 else ""
        number = "one process per GPU" if self.processes is None else f"{self.processes} processes"
        return f"{number}{machines} ({self.launcher})"


def find_launch(command: Sequence[str], module: str | None = None) -> Launch | None:
    """Return the launch that a command line is; None if it is none, but a script, a module or another program.

    Raises:
        UsageError: It names a launcher and no script.
    """
    if module is not None:
        return _by_module(module, command)
    prefixes, words = split_prefixes(command)
    if len(words) < len(command) or prefixes.asked:
        behind = _launch_of(words)
        if behind is None and words and words[0].endswith(".py"):  # uv run train.py
            behind = Launch(launcher="python", script=words[0], arguments=tuple(words[1:]))
        return replace(behind, prefixes=prefixes) if behind is not None else None
    return _launch_of(command)


def _launch_of(command: Sequence[str]) -> Launch | None:
    """Return the launch that a command line without prefixes is."""
    name = PurePath(command[0]).name if command else ""
    if _PYTHON.fullmatch(name):
        return _python(command)
    return _by_module(PROGRAMS.get(name, ""), command[1:], name)


def with_settings(launch: Launch, text: str) -> Launch:
    """Return the launch with the numbers of accelerate's file of settings; the command line comes first."""
    settings = dict(_SETTING.findall(text))
    processes, machines = settings.get("num_processes", ""), settings.get("num_machines", "")
    if launch.processes is None and processes.isdigit():
        launch = replace(launch, processes=int(processes))
    if launch.machines == 1 and machines.isdigit():
        launch = replace(launch, machines=max(1, int(machines)))
    return launch


def _by_module(module: str, words: Sequence[str], name: str = "") -> Launch | None:
    """Return the launch by a module, or by the program of this `name` that runs it; None for one that launches nothing."""
    if module in ("torch.distributed.run", "torch.distributed.launch"):
        return _torch(name or module, words, local_rank=module.endswith("launch"))
    if module == "accelerate.commands.accelerate_cli":
        return _accelerate(words[1:]) if "launch" in words[:1] else None
    if module == "accelerate.commands.launch":
        return _accelerate(words)
    return _deepspeed(words) if module == "deepspeed.launcher.runner" else None


def _python(command: Sequence[str]) -> Launch | None:
    words = list(command[1:])
    while words:
        word = words[0]
        if word == "-m" and len(words) > 1:
            found = _by_module(words[1], words[2:])
            plain = Launch(launcher="python", module=words[1], arguments=tuple(words[2:]))
            return replace(found or plain, python=command[0])
        if _PYTHON_FLAGS.fullmatch(word):
            words = words[1:]
        elif word in ("-W", "-X"):
            words = words[2:]
        elif word.startswith(("-W", "-X")):
            words = words[1:]
        elif word.startswith("-"):  # -c, or standard input
            return None
        else:
            return Launch(launcher="python", script=word, arguments=tuple(words[1:]), python=command[0])
    return None


def _read(launcher: str, words: Sequence[str]) -> tuple[dict[str, str], Launch]:
    """Return the options of a launcher by their long names, and the launch without what they say of processes."""
    options: dict[str, str] = {}
    kept: list[str] = []
    at = 0
    while at < len(words) and words[at].startswith("-") and words[at] != "-":
        word, equals, value = words[at].partition("=")
        if word == "--":
            at += 1
            break
        name, after = word.lstrip("-").replace("_", "-"), words[at + 1] if at + 1 < len(words) else ""
        if not word.startswith("--") and word[:2] in SHORT:
            name, value = SHORT[word[:2]], value or word[2:]
        elif len(name) >= LEAST_LETTERS and name not in KNOWN:
            name = next((known for known in KNOWN if known.startswith(name)), name)
        is_option = after.startswith("-") and " " not in after  # as argparse tells one from a value
        valued = name in KNOWN or not (is_option or after.endswith(".py"))
        size = 2 if valued and name not in FLAGS and not equals and not value else 1
        options[name] = after if size == 2 else value
        if name not in SIZES and name not in RENDEZVOUS:
            kept += words[at : at + size]
        at += size
    if at >= len(words):
        raise UsageError(f"{launcher}: which script?", hint=f"costgpu estimate {launcher} ... train.py")
    script, arguments = words[at], tuple(words[at + 1 :])
    if "no-python" in options:
        raise UsageError(
            f"{launcher} is told to start {script} without Python.", hint="Name the Python script that it starts."
        )
    launch = Launch(launcher=launcher, kept=tuple(kept), script=script, arguments=arguments)
    return options, replace(launch, script=None, module=script) if "module" in options else launch


def _number(text: str | None, default: int | None) -> int | None:
    """Return a number; of a range (``1:4``) its end; None for as many as there are devices.

    Raises:
        UsageError: Neither.
    """
    if text is None:
        return default
    if text in DEVICES:
        return None
    last = text.rpartition(":")[2]
    if not (last.isascii() and last.isdigit() and len(last) <= MOST_DIGITS and int(last) > 0):
        raise UsageError(
            f"{text!r} is not a number of processes or machines for a launcher.", hint="Write one such as 4, or auto."
        )
    return int(last)


def _torch(launcher: str, words: Sequence[str], *, local_rank: bool = False) -> Launch:
    options, launch = _read(launcher, words)
    nodes, restarts = options.get("nnodes"), options.get("max-restarts", "0")
    each, machines = _number(options.get("nproc-per-node"), 1), _number(nodes, 1) or 1
    return replace(
        launch,
        processes=each * machines if each is not None else None,
        machines=machines,
        least_machines=_number(nodes and nodes.partition(":")[0], 1) or 1,
        max_restarts=int(restarts) if restarts.isdigit() and len(restarts) <= MOST_DIGITS else 0,
        ranked=True,
        local_rank=local_rank and "use-env" not in options,
    )


def _accelerate(words: Sequence[str]) -> Launch:
    options, launch = _read("accelerate launch", words)
    return replace(
        launch,
        runner="accelerate.commands.launch",
        processes=_number(options.get("num-processes"), 1 if "cpu" in options else None),
        machines=_number(options.get("num-machines"), 1) or 1,
        config=options.get("config-file", ""),
    )


def _deepspeed(words: Sequence[str]) -> Launch:
    options, launch = _read("deepspeed", words)
    machines = _number(options.get("num-nodes"), 1) or 1
    each = _number(options.get("num-gpus", options.get("num-accelerators")), None)
    processes = each * machines if each is not None else None
    if "include" in options:
        hosts = [host for host in options["include"].split("@") if host]
        counts = [host.partition(":")[2].split(",") for host in hosts if ":" in host]
        machines = max(1, len(hosts))
        processes = sum(map(len, counts)) if len(counts) == len(hosts) else None
    return replace(
        launch,
        runner="deepspeed.launcher.runner",
        processes=processes,
        machines=machines,
        ranked=True,
        local_rank="no-local-rank" not in options,
    )


def local_rank_argument(source: str) -> str:
    """Return the argument by which a script that reads its rank from the command line is told it; empty if it has none."""
    for name in ("--local-rank", "--local_rank"):
        if re.search(re.escape(name) + r"\b", source):
            return f"{name}=0"
    return ""
