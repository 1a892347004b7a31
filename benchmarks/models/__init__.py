"""Reference models of the public GPU measurements, in plain PyTorch.

Each family is one module that names its paper and the code that was timed. `build` makes a model
and its inputs for one measured row; it works under `FakeTensorMode`, where nothing is allocated or
computed, and for real. Nothing here depends on a device: tensors go to the default one.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from . import bert_hf, bert_squad, gpt2, ncf, opt, resnet, ssd, waveglow
from .workload import Workload

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["NAMES", "Workload", "build"]

NVIDIA_EXAMPLES = "lambdal/deeplearning-benchmark"
TRANSFORMERS = "sitar-lab/NeuSight"

_BUILDERS: dict[tuple[str, str], Callable[[int], Workload]] = {
    ("resnet50", NVIDIA_EXAMPLES): resnet.build,
    ("ssd", NVIDIA_EXAMPLES): ssd.build,
    ("bert_base", NVIDIA_EXAMPLES): partial(bert_squad.build, bert_squad.BASE),
    ("bert_large", NVIDIA_EXAMPLES): partial(bert_squad.build, bert_squad.LARGE),
    ("ncf", NVIDIA_EXAMPLES): ncf.build,
    ("waveglow", NVIDIA_EXAMPLES): waveglow.build,
    ("bert_large", TRANSFORMERS): bert_hf.build,
    ("gpt2_large", TRANSFORMERS): partial(gpt2.build, gpt2.GPT2_LARGE),
    ("gpt3_xl", TRANSFORMERS): partial(gpt2.build, gpt2.GPT3_XL),
    ("gpt3_27", TRANSFORMERS): partial(gpt2.build, gpt2.GPT3_27),
    ("opt_13", TRANSFORMERS): opt.build,
}

NAMES: tuple[str, ...] = tuple(dict.fromkeys(name for name, _ in _BUILDERS))


def build(name: str, batch_size: int, source: str) -> Workload:
    """Make the workload of one measured row.

    Args:
        name: the row's model.
        batch_size: the row's batch size.
        source: the row's source; the same name is another program in another source.

    Raises:
        ValueError: no such model was measured by that source.
    """
    builder = _BUILDERS.get((name, source))
    if builder is None:
        raise ValueError(f"no model {name!r} in the measurements of {source!r}")
    return builder(batch_size)
