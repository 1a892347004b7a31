"""What the arguments of a model's call say: items, tokens, and the types of its weights."""

from __future__ import annotations

from ..patching import attribute, known

MOST_VALUES = 200  # looked at in the arguments of one call
TOKENS = ("decoder_input_ids", "input_ids")  # of which generation makes more, in this order
CHANNELS = (1, 3, 4)


def tensors_of(torch, args, kwargs):
    """Return the tensors in a call's arguments, named or in any nesting, in their order."""
    stack, found, looked = [kwargs, args], [], 0
    while stack and looked < MOST_VALUES:
        value = stack.pop()
        looked += 1
        if isinstance(value, torch.Tensor):
            found.append(value)
        elif isinstance(value, dict):
            stack.extend(list(dict.values(value))[::-1])
        elif attribute(value, "keys") is not None:  # like a dictionary; nothing where it is like one in its keys only
            stack.extend(known(lambda held=value: [held[name] for name in list(held.keys())], default=[])[::-1])
        elif isinstance(value, (list, tuple)):
            stack.extend(value[::-1])
    return found


def first_tensor(torch, args, kwargs):
    """Return the tensor whose leading dimension counts the items; None without one."""
    return next((one for one in tensors_of(torch, args, kwargs) if one.dim()), None)


def kind_of(torch, tensor):
    """Return what an item probably is: ``image``, ``text``, ``token`` (one alone), or just ``item``."""
    if tensor is None:
        return "item"
    if (
        tensor.dim() == 4
        and tensor.is_floating_point()
        and (tensor.shape[1] in CHANNELS or tensor.shape[3] in CHANNELS)
    ):
        return "image"
    if not is_tokens(tensor) or tensor.shape[1] == 1 < tensor.shape[0]:  # a column of ids
        return "item"
    return "text" if tensor.shape[1] > 1 else "token"


def is_tokens(tensor):
    """Return whether these are token ids: one row of integers for each sequence."""
    return tensor.dim() == 2 and not tensor.is_floating_point() and "int" in str(tensor.dtype)


def tokens_of(torch, args, kwargs):
    """Sequences and tokens of each in one call; None where it takes no token ids."""
    for name in TOKENS:
        value = kwargs.get(name)
        if isinstance(value, torch.Tensor) and is_tokens(value):
            return int(value.shape[0]), int(value.shape[1])
    found = next((one for one in tensors_of(torch, args, kwargs) if is_tokens(one)), None)
    return (int(found.shape[0]), int(found.shape[1])) if found is not None else None


def weights_of(modules):
    """Type of most parameters of these modules, and the addresses of the storages of all of them."""
    numbers, storages = {}, set()
    for module in modules:
        # none of a module that was made in another way
        for value in known(lambda one=module: [*one.parameters(), *one.buffers()], default=()):
            name = str(value.dtype).replace("torch.", "")
            numbers[name] = numbers.get(name, 0) + value.numel()
            storages.add(known(lambda one=value: one.untyped_storage().data_ptr()))  # None before torch 2.0, if packed
    return (max(numbers, key=numbers.get) if numbers else ""), storages


def cache_of(module):
    """Bytes of a token's keys and values in the cache, and the number of layers, by the model's config; else zeros."""
    config = getattr(module, "config", None)
    config = known(lambda: config.get_text_config(decoder=True), default=config)  # older, or not of transformers
    try:
        layers = int(getattr(config, "num_hidden_layers", None) or config.decoder_layers)
        heads = int(getattr(config, "num_attention_heads", None) or config.decoder_attention_heads)
        width = int(getattr(config, "hidden_size", None) or config.d_model)
        shared = int(getattr(config, "num_key_value_heads", None) or heads)
        each = int(getattr(config, "head_dim", None) or width // heads)
        size = next(value.element_size() for value in module.parameters() if value.is_floating_point())
    except Exception:  # noqa: BLE001 - another architecture: not known
        return 0, 0
    return 2 * layers * shared * each * size, layers
