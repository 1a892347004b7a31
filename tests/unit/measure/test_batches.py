"""Samples and bytes of what a loader hands out, in any nesting."""

from collections import UserDict
from types import SimpleNamespace
from typing import Any

import pytest

from costgpu.measure.probe.result import describe_batch


class Tensor:
    """Four samples of seven numbers of 8 bytes."""

    shape = (4, 7)

    def dim(self) -> int:
        return len(self.shape)

    def numel(self) -> int:
        return 28

    def element_size(self) -> int:
        return 8


TORCH: Any = SimpleNamespace(Tensor=Tensor)


@pytest.mark.parametrize(
    "batch",
    [
        Tensor(),
        [Tensor()],
        {"input_ids": Tensor(), "text": ["a"]},
        UserDict(input_ids=Tensor()),  # as tokenizers of transformers make it
        SimpleNamespace(x=Tensor()),
    ],
)
def test_a_batch_is_found_in_whatever_holds_it(batch: Any) -> None:
    describe: Any = describe_batch
    assert describe(batch, TORCH) == {"size": 4, "bytes": 28 * 8}


def test_what_holds_no_tensor_has_no_size() -> None:
    describe: Any = describe_batch
    assert describe(UserDict(text=["a"]), TORCH) == {"size": None, "bytes": 0}
