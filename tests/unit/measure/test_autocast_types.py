"""What CUDA autocast would make of a traced step, op by op."""

from typing import Any

import pytest

from costgpu.measure.probe.autocast_types import AutocastTypes, Tensors


def call(types: AutocastTypes, name: str, inputs: str, outputs: str, *, backward: bool = False) -> dict[str, Any]:
    """One call; tensors are words, in capitals where autocast leaves them alone."""
    return types.follow(f"aten::{name}", backward, tensors(inputs), tensors(outputs))


def tensors(words: str) -> Tensors:
    return [(word, word.islower()) for word in words.split()]


def test_a_product_casts_what_it_takes_and_gives_half() -> None:
    types = AutocastTypes()
    assert call(types, "mm", "x w", "y") == {"half": [0, 1], "half_out": True, "casts": [0, 1]}
    assert call(types, "relu", "y", "z") == {"half": [0], "half_out": True}
    assert call(types, "mm", "z w", "out") == {"half": [0, 1], "half_out": True}, "the weight's copy is kept"


def test_normalisation_and_losses_are_full() -> None:
    types = AutocastTypes()
    call(types, "mm", "x w", "y")
    assert call(types, "native_layer_norm", "y weight bias", "n") == {"casts": [0]}
    assert call(types, "mm", "n w", "z")["casts"] == [0]
    assert call(types, "_softmax", "z", "s") == {"casts": [0]}


def test_the_widest_type_wins_elsewhere() -> None:
    types = AutocastTypes()
    call(types, "mm", "x w", "y")
    assert call(types, "add", "y x", "z") == {"half": [0]}
    assert call(types, "mul", "y y", "z") == {"half": [0, 1], "half_out": True}
    assert call(types, "where", "MASK y", "z") == {"half": [1], "half_out": True}
    assert call(types, "randn", "", "noise") == {}


def test_batch_norm_keeps_its_inputs_type_and_full_statistics() -> None:
    types = AutocastTypes()
    call(types, "convolution", "x w", "y")
    assert call(types, "native_batch_norm", "y weight bias mean var", "n") == {"half": [0], "half_out": True}
    call(types, "convolution", "n w", "z")
    call(types, "convolution_backward", "g n w", "gn gw", backward=True)
    found = call(types, "native_batch_norm_backward", "gn y weight mean var", "gy gweight gbias", backward=True)
    assert found == {"half": [0, 1], "half_out": True}


def test_a_gradient_has_the_type_of_what_was_saved() -> None:
    types = AutocastTypes()
    call(types, "mm", "x w", "y")
    call(types, "gelu", "y", "a")
    call(types, "native_layer_norm", "a", "n")
    call(types, "native_layer_norm_backward", "g a", "ga", backward=True)
    found = call(types, "gelu_backward", "ga y", "gy", backward=True)
    assert found == {"half": [0, 1], "half_out": True, "casts": [0]}
    assert call(types, "sum", "gy", "gb", backward=True) == {"half": [0], "half_out": True}, "no autocast in backward"


def test_saved_tensors_are_not_cast_again() -> None:
    types = AutocastTypes()
    call(types, "native_layer_norm", "x", "n")
    call(types, "mm", "n w", "y")
    found = call(types, "mm", "g n", "gw", backward=True)
    assert found["casts"] == [0], "the gradient that comes from a full op is"


@pytest.mark.parametrize("name", ["view", "relu_", "t"])
def test_views_and_changes_in_place_keep_the_type(name: str) -> None:
    types = AutocastTypes()
    call(types, "mm", "x w", "y")
    assert call(types, name, "y", "y") == {"half": [0], "half_out": True}
    assert call(types, name, "x", "x") == {}


def test_an_address_that_is_used_again_is_another_tensor() -> None:
    types = AutocastTypes()
    call(types, "mm", "x w", "y")
    call(types, "native_layer_norm", "x", "y")
    assert call(types, "relu", "y", "z") == {}
    assert call(types, "mm", "y w", "z")["casts"] == [0]


def test_what_a_script_makes_half_itself_is_left_alone() -> None:
    assert call(AutocastTypes(), "add", "X W", "Y") == {}
    assert "casts" not in call(AutocastTypes(), "mm", "X W", "Y")
