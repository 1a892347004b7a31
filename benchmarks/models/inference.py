"""The models of public inference measurements, built without weights: timm, torchvision, Hugging Face and diffusers classes.

Call `forward_rows` under no mode of its own: it builds and traces under FakeTensorMode, by the tracer of users' scripts.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode

from costgpu.measure.probe.op_tracer import make_tracer
from costgpu.models.workload import OpRow

LLAMAS = {
    "llama2_7b": {},
    "llama2_13b": {
        "hidden_size": 5120,
        "intermediate_size": 13824,
        "num_hidden_layers": 40,
        "num_attention_heads": 40,
        "num_key_value_heads": 40,
    },
}
UNET_GUIDED = 2  # classifier-free guidance doubles the batch


@contextlib.contextmanager
def _no_initialisation() -> Iterator[None]:
    """Parameters are left as they are allocated: some models compute with them while they are built."""
    names = [name for name in dir(nn.init) if name.endswith("_") and not name.startswith("_")]
    kept = {name: getattr(nn.init, name) for name in names}
    try:
        for name in names:
            setattr(nn.init, name, lambda tensor, *_, **__: tensor)
        yield
    finally:
        for name, function in kept.items():
            setattr(nn.init, name, function)


def _timm(name: str, size: int) -> nn.Module:
    import timm  # noqa: PLC0415 - an environment of its own has it

    options = {"img_size": size} if name.startswith(("vit", "beit", "swin", "mixer", "maxvit", "xcit")) else {}
    try:
        return timm.create_model(name, **options)
    except TypeError:
        return timm.create_model(name)


def _torchvision(name: str) -> nn.Module:
    import torchvision  # noqa: PLC0415

    extra = {"aux_logits": False, "init_weights": False} if name == "inception_v3" else {}
    return torchvision.models.get_model(name, weights=None, **extra)


def _hugging_face(name: str) -> tuple[nn.Module, Callable[[int, int], dict[str, torch.Tensor]]]:
    import transformers as hf  # noqa: PLC0415

    def pixels(batch: int, size: int) -> dict[str, torch.Tensor]:
        return {"pixel_values": torch.empty(batch, 3, size, size)}

    def tokens(batch: int, size: int) -> dict[str, torch.Tensor]:
        ids = torch.ones(batch, size, dtype=torch.long)
        return {"input_ids": ids, "attention_mask": torch.ones_like(ids), "token_type_ids": torch.zeros_like(ids)}

    eager = {"attn_implementation": "eager"}
    builders: dict[str, Callable[[], tuple[nn.Module, Any]]] = {
        "vit_base_patch16_224": lambda: (hf.ViTForImageClassification(hf.ViTConfig(num_labels=1000, **eager)), pixels),
        "beit_base_patch16_224": lambda: (
            hf.BeitForImageClassification(
                hf.BeitConfig(
                    num_labels=1000,
                    use_relative_position_bias=True,
                    use_absolute_position_embeddings=False,
                    use_mean_pooling=True,
                    use_auxiliary_head=False,
                    **eager,
                )
            ),
            pixels,
        ),
        "convnext_large_224": lambda: (
            hf.ConvNextForImageClassification(
                hf.ConvNextConfig(depths=[3, 3, 27, 3], hidden_sizes=[192, 384, 768, 1536], num_labels=1000)
            ),
            pixels,
        ),
        "segformer_b0_512": lambda: (
            hf.SegformerForSemanticSegmentation(hf.SegformerConfig(num_labels=150, **eager)),
            pixels,
        ),
        "resnet50": lambda: (hf.ResNetForImageClassification(hf.ResNetConfig(num_labels=1000)), pixels),
        "bge-base-en-v1.5": lambda: (hf.BertModel(hf.BertConfig(**eager)), tokens),
        "bert_large": lambda: (
            hf.BertForQuestionAnswering(
                hf.BertConfig(
                    hidden_size=1024,
                    num_hidden_layers=24,
                    num_attention_heads=16,
                    intermediate_size=4096,
                    **eager,
                )
            ),
            tokens,
        ),
    }
    return builders[name]()


@contextlib.contextmanager
def _half_precision() -> Iterator[None]:
    torch.set_default_dtype(torch.float16)
    try:
        yield
    finally:
        torch.set_default_dtype(torch.float32)


def language_model(name: str) -> nn.Module:
    """Return a decoder with a language-model head, half precision."""
    import transformers as hf  # noqa: PLC0415

    eager = {"attn_implementation": "eager"}
    if name == "mistral_7b":
        return hf.MistralForCausalLM(hf.MistralConfig(sliding_window=None, **eager))
    return hf.LlamaForCausalLM(hf.LlamaConfig(**LLAMAS[name], **eager))


def _unet() -> nn.Module:
    from diffusers import UNet2DConditionModel  # noqa: PLC0415

    return UNet2DConditionModel(
        sample_size=64,
        cross_attention_dim=768,
        attention_head_dim=8,
        down_block_types=("CrossAttnDownBlock2D",) * 3 + ("DownBlock2D",),
        up_block_types=("UpBlock2D",) + ("CrossAttnUpBlock2D",) * 3,
        block_out_channels=(320, 640, 1280, 1280),
    )


def op_rows(tracer: Any) -> list[OpRow]:
    """Return what a tracer saw."""
    keys = ("op", "phase", "count", "inputs", "outputs", "attributes")
    return [OpRow(**{key: row[key] for key in keys}) for row in tracer.rows.values()]


def forward_rows(library: str, name: str, batch: int, size: int, *, half: bool, channels_last: bool) -> list[OpRow]:
    """Return the ops of one forward pass.

    Args:
        library: ``timm``, ``torchvision``, ``huggingface`` or ``diffusers``.
        size: Side of the image, or tokens.
        half: Whether the model itself is in fp16.
    """
    inputs: dict[str, Any] = {}
    with _no_initialisation():  # outside the mode: some models take values of tensors while they are built
        if library == "huggingface":
            model, make = _hugging_face(name)
            inputs = make(batch, size)
        elif library == "diffusers":
            model, side = _unet(), size // 8
            inputs = {
                "sample": torch.empty(UNET_GUIDED * batch, 4, side, side),
                "timestep": torch.tensor(500),
                "encoder_hidden_states": torch.empty(UNET_GUIDED * batch, 77, 768),
            }
        else:
            model = _timm(name, size) if library == "timm" else _torchvision(name)
            inputs = {"x": torch.empty(batch, 3, size, size)}
    model = model.eval().half() if half else model.eval()
    with FakeTensorMode(allow_non_fake_inputs=True) as mode, torch.no_grad():
        fakes = {key: mode.from_tensor(value) for key, value in inputs.items()}
        for key, value in fakes.items():
            if half and value.is_floating_point():
                fakes[key] = value.half()
            if channels_last and value.dim() == 4:
                fakes[key] = fakes[key].contiguous(memory_format=torch.channels_last)
        tracer = make_tracer(torch)()
        with tracer:
            model(*fakes.values()) if "x" in fakes else model(**fakes)
        return op_rows(tracer)


def generation_rows(name: str, batch: int, prompt: int, context: int) -> tuple[list[OpRow], list[OpRow]]:
    """Return the ops of one prefill of `prompt` tokens, and of one decode with `context` tokens in the cache."""
    from transformers import DynamicCache  # noqa: PLC0415

    with _no_initialisation(), _half_precision(), FakeTensorMode(allow_non_fake_inputs=True), torch.no_grad():
        model = language_model(name).eval()
        config = model.config
        first, second = make_tracer(torch)(), make_tracer(torch)()
        first.phase, second.phase = "prefill", "decode"
        with first:
            model(input_ids=torch.ones(batch, prompt, dtype=torch.long), use_cache=True)
        cache = DynamicCache(config=config)
        heads, depth = config.num_key_value_heads, config.hidden_size // config.num_attention_heads
        for layer in range(config.num_hidden_layers):
            empty = torch.empty(batch, heads, context, depth, dtype=torch.float16)
            cache.update(empty, empty, layer)
        with second:
            model(
                input_ids=torch.ones(batch, 1, dtype=torch.long),
                past_key_values=cache,
                use_cache=True,
                cache_position=torch.tensor([context]),
            )
        return op_rows(first), op_rows(second)
