"""Trains the model of `two_layers` by shapes alone and for real, and prints the most bytes alive in each phase of both."""

import json
import sys

import torch
import two_layers
from torch.utils._pytree import tree_flatten

sys.path.insert(0, sys.argv[1])  # of the repository

from costgpu.measure.probe.without_weights.run import WithoutWeights  # noqa: E402


def phases(room: WithoutWeights) -> dict[str, int]:
    torch.manual_seed(0)
    with room.mode:
        two_layers.train(2)
    record = room.record()
    return {"reserved": record["reserved"], **{peak["phase"]: peak["bytes"] for peak in record["peaks"]}}


def room_of() -> WithoutWeights:
    return WithoutWeights(
        lambda: "backward" if torch._C._current_graph_task_id() != -1 else "forward", lambda size: None
    )


shapes, computed = room_of(), room_of()
shapes.attach()


def compute(self: object, func: object, types: object, args: tuple = (), kwargs: dict | None = None) -> object:
    """Compute everything, and count the same storages."""
    result = func(*args, **(kwargs or {}))
    for one in tree_flatten(result)[0]:
        if isinstance(one, torch.Tensor) and not one.is_meta:
            large = one.untyped_storage().nbytes() > 65536
            computed.untouched.follow(one) if large else computed.untouched.count(one)
    return result


by_shapes = phases(shapes)
type(computed.mode).__torch_dispatch__ = compute
print(json.dumps([by_shapes, phases(computed)]))
