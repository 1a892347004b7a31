"""The split of a launcher's command line, held against the launcher's own parser, option by option."""

import argparse
import importlib
import itertools
import os
from collections.abc import Iterator, Sequence
from typing import Any
from unittest.mock import patch

import pytest

from costgpu.measure.launcher import find_launch
from costgpu.measure.probe import patching
from costgpu.measure.probe.frameworks import accelerate_hooks
from tests.measure.test_frameworks import needs

ARGUMENTS = ("--lr", "1", "data.csv")
SCRIPTS = (("train.py",), ("bin/train",), ("-m", "pkg.train"))  # the last word comes after the option
PARSERS = [  # words, module with the parser, what makes it, where it has the script's arguments
    pytest.param(
        *(("torchrun",), "torch.distributed.run", "get_args_parser", "training_script_args"),
        marks=pytest.mark.torch,
    ),
    pytest.param(
        *(("accelerate", "launch"), "accelerate.commands.launch", "launch_command_parser", "training_script_args"),
        marks=[pytest.mark.torch, pytest.mark.frameworks],
    ),
]


def options(parser: argparse.ArgumentParser) -> Iterator[Sequence[str]]:
    """Each option of a parser by each of its names, with a value where it takes one."""
    for action in parser._actions:
        for name in action.option_strings:
            value = next(iter(action.choices), "1") if action.choices else "1"
            yield (name,) if action.nargs == 0 else (name, str(value))


@pytest.mark.parametrize(("words", "module", "made_by", "behind"), PARSERS)
def test_every_option_leaves_the_script_where_the_launcher_finds_it(
    words: tuple[str, ...], module: str, made_by: str, behind: str
) -> None:
    needs(module.partition(".")[0])
    parser: Any = getattr(importlib.import_module(module), made_by)()
    read = 0
    for option, script in itertools.product(options(parser), SCRIPTS):
        if option[0] in ("-h", "--help", "--no_python", "--no-python"):
            continue
        line = [*script[:-1], *option, script[-1], *ARGUMENTS]
        told, launch = parser.parse_args(line), find_launch([*words, *line])
        assert launch is not None
        found = (launch.script or launch.module, launch.arguments)
        assert found == (told.training_script, tuple(getattr(told, behind))), line
        assert (launch.module is not None) is bool(told.module), line
        read += 1
    assert read > 90


@pytest.mark.torch
@pytest.mark.frameworks
def test_what_accelerate_refuses_costs_no_other_option(monkeypatch: pytest.MonkeyPatch) -> None:
    needs("accelerate")
    failures: list[str] = []
    monkeypatch.setattr(patching, "FAILURES", failures)
    set_environment: Any = accelerate_hooks.set_launch_environment  # for Python 3.8, without types
    with patch.dict(os.environ):
        words = "--of_another_release 1 --parallelism_config_dp_shard_size -1 --mixed_precision bf16 -h --rewrite"
        set_environment(words.split(), 1)
        assert os.environ["ACCELERATE_MIXED_PRECISION"] == "bf16"
    (failure,) = failures
    assert failure.endswith("accelerate launch does not take --of_another_release 1 -h --rewrite\n")
