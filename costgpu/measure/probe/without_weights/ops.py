"""What each op does to memory and values, by its schema where that tells, and else by its name."""

from __future__ import annotations

VIEW, REFERS, WRITES, MAKES, NEW = "view", "refers", "writes", "makes", "new"

# Results that share memory with an argument though their schema does not say so: taken for new ones, they count twice.
HIDDEN_VIEWS = frozenset(
    "_unsafe_view unsafe_split unsafe_split_with_sizes unsafe_chunk _reshape_alias detach alias lift_fresh lift _conj"
    " _neg_view wait_tensor _wrap_tensor_autograd".split()
)
# Ops in place that change what a tensor refers to, and none of its values.
REFERRING = frozenset(
    "set_ resize_ resize_as_ squeeze_ unsqueeze_ t_ transpose_ as_strided_ detach_ swapaxes_ swapdims_ rename_"
    " _resize_output_".split()
)
# Results that depend on no value of a tensor argument.
MAKING = frozenset(
    "zeros_like ones_like full_like empty_like rand_like randn_like randint_like new_zeros new_ones new_full new_empty"
    " new_empty_strided bernoulli eye arange scalar_tensor".split()
)
JOINING = frozenset(("cat", "stack"))  # of real parts: a batch of data
COLLECTIVES = frozenset(("c10d", "fsdp_fake"))  # whoever stands in for the other ranks knows of untouched tensors
# What every element of a result is, where the op tells.
FILLS = {"zeros": 0, "zeros_like": 0, "new_zeros": 0, "isnan": 0, "isinf": 0, "isneginf": 0, "isposinf": 0, "zero_": 0}
FILLED = frozenset(("full", "full_like", "new_full"))  # with an argument
# Integers that are indices into a dimension: op -> place of that dimension among the arguments.
PICKS = {
    "argmax": 1,
    "argmin": 1,
    "topk": 2,
    "sort": 1,
    "max": 1,
    "min": 1,
    "multinomial": None,
    "kthvalue": 2,
    "mode": 1,
    "median": 1,
    "nanmedian": 1,
    "cummax": 1,
    "cummin": 1,
    "argsort": 1,
}


def kind_of(func):
    """Return what an op does, and its name without namespace and overload."""
    schema = func._schema
    name = schema.name.rpartition("::")[2]
    if name in REFERRING:
        return REFERS, name
    if any(one.alias_info is not None and one.alias_info.is_write for one in schema.arguments):
        return WRITES, name
    if name in HIDDEN_VIEWS or any(one.alias_info is not None for one in schema.returns):
        return VIEW, name
    if name in MAKING or not any("Tensor" in str(one.type) for one in schema.arguments):
        return MAKES, name
    return NEW, name


def tensors_of(torch, args, kwargs):
    """Return the tensors among an op's arguments, and in lists of them."""
    tensor, found = torch.Tensor, []
    for values in (args, kwargs.values()) if kwargs else (args,):
        for value in values:
            if isinstance(value, tensor):
                found.append(value)
            elif isinstance(value, (list, tuple)):
                found += [one for one in value if isinstance(one, tensor)]
    return found


def bytes_of(tensor):
    return tensor.numel() * tensor.element_size()
