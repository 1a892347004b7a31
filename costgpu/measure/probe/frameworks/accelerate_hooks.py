"""accelerate, as one rank of several: its launcher's environment, and its state where there is no GPU."""

from __future__ import annotations

import importlib
import itertools
import os

from ..patching import harmless, known, put, wrap
from ..ranks.world import MEETING_PORT, WORLD

# What `accelerate launch` decides for a whole machine, not for what a script does.
LEFT_ALONE = ("OMP_NUM_THREADS", "CUDA_VISIBLE_DEVICES", "PYTHONPATH")


def attach_launchers(module):
    """`notebook_launcher` and `debug_launcher` call their function here, as rank 0."""

    def launch(inner, function, args=(), num_processes=None, mixed_precision="no", *others, **kwargs):
        if isinstance(num_processes, int) and num_processes > 1:
            WORLD.asked(num_processes)
            WORLD.set_environment(num_processes)
        if str(mixed_precision) != "no":
            os.environ["ACCELERATE_MIXED_PRECISION"] = str(mixed_precision)
        return function(*args)

    def debug(inner, function, args=(), num_processes=2):
        return launch(inner, function, args, num_processes)

    wrap(module, "notebook_launcher", launch)
    wrap(module, "debug_launcher", debug)


def attach_state(module):
    """Let several ranks without GPUs be taken for ranks with one GPU each, which is the CPU."""
    import torch

    def stands_in(cpu=False):
        several = os.environ.get("WORLD_SIZE", "1") != "1" and not WORLD.alone
        return several and not cpu and not torch.cuda.is_available()

    def prepare_backend(inner, one, cpu=False, *args, **kwargs):
        if stands_in(cpu):
            WORLD.note_backend("nccl")
            return "gloo", module.DistributedType.MULTI_GPU
        return inner(one, cpu, *args, **kwargs)

    def set_device(inner, one):
        if stands_in(one._cpu) and one.distributed_type == module.DistributedType.MULTI_GPU:
            put(one, device=torch.device("cpu"))
        else:
            inner(one)

    wrap(getattr(module, "PartialState", None), "_prepare_backend", prepare_backend)
    wrap(getattr(module, "PartialState", None), "set_device", set_device)


@harmless
def set_launch_environment(words, ranks):
    """Set what `accelerate launch` with these options and its file of settings sets for its processes."""
    launch = importlib.import_module("accelerate.commands.launch")
    environments = importlib.import_module("accelerate.utils.launch")

    def refuse(message=""):
        raise ValueError(message)  # instead of an end of the process

    options, refused = [], []
    for word in words:
        if word.startswith("-") and known(float, word) is None:
            options.append([])
        options[-1].append(word)
    parser = launch.launch_command_parser()
    put(parser, error=refuse, exit=refuse)
    for option in options:
        # another release may not know it: the script is measured without
        if known(parser.parse_args, [*option, "train.py"]) is None:
            refused.append(option)
    taken = itertools.chain(*(option for option in options if option not in refused))
    arguments = parser.parse_args([*taken, "train.py"])
    arguments, defaults, mixed_precision_from_file = launch._validate_launch_command(arguments)
    put(arguments, num_processes=ranks, num_machines=1, main_process_port=MEETING_PORT)
    if arguments.use_deepspeed and not arguments.cpu:
        fields = list(defaults.deepspeed_config.keys()) if defaults else []
        fields += ["mixed_precision"] if mixed_precision_from_file else []
        put(arguments, deepspeed_fields_from_accelerate_config=",".join(fields))
        made = environments.prepare_deepspeed_cmd_env(arguments)[1]
    elif ranks > 1 and not arguments.cpu:
        made = environments.prepare_multi_gpu_env(arguments)
    else:
        made = environments.prepare_simple_launcher_cmd_env(arguments)[1]
    for name, value in made.items():
        if os.environ.get(name) != value and name not in LEFT_ALONE:
            os.environ[name] = value
    if refused:
        raise ValueError("accelerate launch does not take {}".format(" ".join(itertools.chain(*refused))))


def hooks(recorder):
    def attach_accelerator(module):
        recorder.saving.time(getattr(module, "Accelerator", None), "save_state")

    return {
        "accelerate.launchers": attach_launchers,
        "accelerate.state": attach_state,
        "accelerate.accelerator": attach_accelerator,
    }
