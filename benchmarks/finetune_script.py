"""Fine-tunes a language model as one row of finetune_rows.csv did, without its weights: two optimizer steps.

    costgpu estimate --weights none benchmarks/finetune_script.py ROW

Models come from their configurations; Qwen's first generation is written out as its authors' code runs with flash-attn,
because the libraries of today have another one. It needs torch, transformers, peft and bitsandbytes.
"""

from __future__ import annotations

import csv
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import bitsandbytes
import torch
import transformers
from peft import IA3Config, LoraConfig, get_peft_model
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint
from transformers.models.llama.modeling_llama import LlamaRMSNorm

ROWS = Path(__file__).with_name("finetune_rows.csv")
STEPS = 2
VOCABULARY = 9000  # tokens that every tokenizer here has
CHUNK = 128  # tokens of litgpt's loss
# Tokens of a sequence where the mean is published, and of the longest one, which is not: taken as 768, in the last step.
MEAN_TOKENS, LONGEST_TOKENS = 210, 768
# Layers, width, width of the MLP and heads.
QWEN = {"Qwen-1.8B": (24, 2048, 5504, 16), "Qwen-7B": (32, 4096, 11008, 32), "Qwen-14B": (40, 5120, 13696, 40)}
# Vocabulary, layers, width, width of the MLP, heads and share of a head that is turned.
LITGPT = {
    "phi-1.5": (51200, 24, 2048, 8192, 32, 0.5),
    "StableLM-Alpha-3B": (50688, 16, 4096, 16384, 32, 0.25),
    "Llama-2-7B": (32000, 32, 4096, 11008, 32, 1.0),
    "Llama-2-13B": (32000, 40, 5120, 13824, 40, 1.0),
}
# Class and configuration, where it differs from the class's defaults.
CONFIGS: dict[str, tuple[str, dict[str, Any]]] = {
    "Llama-3.2-3B": (
        "Llama",
        {
            "vocab_size": 128256,
            "hidden_size": 3072,
            "intermediate_size": 8192,
            "num_hidden_layers": 28,
            "num_attention_heads": 24,
            "num_key_value_heads": 8,
            "tie_word_embeddings": True,
        },
    ),
    "Llama-3.1-8B": (
        "Llama",
        {"vocab_size": 128256, "intermediate_size": 14336, "num_key_value_heads": 8, "max_position_embeddings": 8192},
    ),
    "T0_3B": (
        "T5",
        {
            "d_model": 2048,
            "d_ff": 5120,
            "num_layers": 24,
            "num_heads": 32,
            "feed_forward_proj": "gated-gelu",
            "tie_word_embeddings": False,
            "decoder_start_token_id": 0,
        },
    ),
    "BERT-large": (
        "Bert",
        {
            "hidden_size": 1024,
            "num_hidden_layers": 24,
            "num_attention_heads": 16,
            "intermediate_size": 4096,
        },
    ),
}
HEADS = {"T5": "ForConditionalGeneration", "Bert": "ForSequenceClassification"}
OLD_ATTENTION = frozenset({"Bert", "T5"})  # whose rows are older than fused attention
MLP = ["gate_proj", "up_proj", "down_proj"]


class Norm(nn.Module):
    """Root mean square norm in float32, without a fused kernel."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x: Tensor) -> Tensor:
        """Return the normalized and scaled input."""
        wide = x.float()
        return (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-6)).type_as(x) * self.weight


class QwenLayer(nn.Module):
    """One layer of Qwen's first generation: one product for queries, keys and values, and flash attention."""

    def __init__(self, width: int, inner: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.ln_1, self.ln_2 = Norm(width), Norm(width)
        self.c_attn, self.attn_proj = nn.Linear(width, 3 * width), nn.Linear(width, width, bias=False)
        self.w1, self.w2 = nn.Linear(width, inner, bias=False), nn.Linear(width, inner, bias=False)
        self.c_proj = nn.Linear(inner, width, bias=False)

    def forward(self, x: Tensor, angles: Tensor) -> Tensor:
        """Return the layer's output."""
        parts = self.c_attn(self.ln_1(x)).split(x.shape[-1], -1)
        query, key, value = (part.unflatten(-1, (self.heads, -1)) for part in parts)
        rotated = (rotate(query, angles), rotate(key, angles), value)
        seen = functional.scaled_dot_product_attention(*(one.transpose(1, 2) for one in rotated), is_causal=True)
        x = x + self.attn_proj(seen.transpose(1, 2).flatten(-2))
        y = self.ln_2(x)
        return x + self.c_proj(self.w1(y) * functional.silu(self.w2(y)))


class Qwen(nn.Module):
    """Qwen's first generation, with a checkpoint around each layer."""

    def __init__(self, layers: int, width: int, inner: int, heads: int) -> None:
        super().__init__()
        self.config = {"model_type": "qwen"}
        self.wte = nn.Embedding(151936, width)
        self.h = nn.ModuleList(QwenLayer(width, inner, heads) for _ in range(layers))
        self.ln_f, self.lm_head = Norm(width), nn.Linear(width, 151936, bias=False)
        self.depth = width // heads

    def forward(self, input_ids: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        """Return the loss, and the logits as accelerate gives them to its trainer: in float32."""
        x = self.wte(input_ids).requires_grad_()
        frequencies = 10000 ** (-torch.arange(0, self.depth, 2).float() / self.depth)
        turns = torch.arange(x.shape[1]).float()[:, None] * frequencies
        angles = torch.polar(torch.ones(()), turns)[:, None]
        for layer in self.h:
            x = checkpoint(layer, x, angles, use_reentrant=True)
        logits = self.lm_head(self.ln_f(x))
        loss = functional.cross_entropy(logits[:, :-1].contiguous().flatten(0, 1), labels[:, 1:].flatten())
        return loss, logits.float()


def rotate(x: Tensor, angles: Tensor) -> Tensor:
    """Turn pairs of values by their positions, in one kernel and float32, as flash-attn does."""
    pairs = torch.view_as_complex(x.float().view(*x.shape[:-1], -1, 2))
    return torch.view_as_real(pairs * angles).flatten(-2).type_as(x)


class Norm16(nn.Module):
    """Root mean square norm in the type of its input."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x: Tensor) -> Tensor:
        """Return the normalized and scaled input."""
        return self.weight * (x * torch.rsqrt((x * x).mean(-1, keepdim=True) + 1e-5))


class AdaptedProjection(nn.Module):
    """One product for queries, keys and values, with adapters for queries and values that are put between zeros."""

    def __init__(self, linear: nn.Module, width: int, rank: int = 8) -> None:
        super().__init__()
        self.linear = linear
        self.lora_a, self.lora_b = (
            nn.Parameter(torch.zeros(2 * rank, width)),
            nn.Parameter(torch.zeros(2 * width, rank)),
        )
        self.places = [*range(width), *range(2 * width, 3 * width)]

    def forward(self, x: Tensor) -> Tensor:
        """Return queries, keys and values side by side."""
        inner = functional.linear(functional.dropout(x, 0.05, self.training), self.lora_a)
        both = functional.conv1d(inner.transpose(1, 2), self.lora_b.unsqueeze(-1), groups=2).transpose(1, 2)
        tokens = both.transpose(0, 1).flatten(0, 1)
        zeros = tokens.new_zeros(tokens.shape[0], 3 * x.shape[-1])
        padded = zeros.index_copy(1, torch.tensor(self.places), tokens)
        return self.linear(x) + 2.0 * padded.unflatten(0, (x.shape[1], x.shape[0])).transpose(0, 1)


class LitgptLayer(nn.Module):
    """One layer of litgpt in October 2023: parallel to the attention with LayerNorm, or as Llama has it."""

    def __init__(self, name: str, linear: Callable[[int, int, bool], nn.Module]) -> None:
        super().__init__()
        _, _, width, inner, self.heads, share = LITGPT[name]
        self.llama, self.turned = name.startswith("Llama"), int(share * width / self.heads)
        biased = not self.llama
        self.attn = AdaptedProjection(linear(width, 3 * width, biased), width)
        self.proj = linear(width, width, biased)
        self.norm_1 = Norm16(width) if self.llama else nn.LayerNorm(width)
        self.norm_2 = None if name == "phi-1.5" else Norm16(width) if self.llama else nn.LayerNorm(width)
        self.fc_1, self.fc_2 = linear(width, inner, biased), linear(width, inner, False) if self.llama else None
        self.mlp_proj = linear(inner, width, biased)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        """Return the layer's output."""
        first = self.norm_1(x)
        seen = self.attention(first, cos, sin)
        if self.llama:
            x = x + seen
            return x + self.mlp(self.norm_2(x))
        return x + seen + self.mlp(first if self.norm_2 is None else self.norm_2(x))

    def attention(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        """Return what the attention sees."""
        parts = self.attn(x).unflatten(-1, (self.heads, 3, -1)).permute(0, 2, 3, 1, 4).unbind(2)
        query, key = (self.turn(one, cos, sin) for one in parts[:2])
        seen = functional.scaled_dot_product_attention(query, key, parts[2], is_causal=True)
        return self.proj(seen.transpose(1, 2).flatten(-2))

    def turn(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        """Turn a share of each head by the positions, in the type that bfloat16 and half have in common."""
        some = x[..., : self.turned]
        left, right = some.chunk(2, -1)
        turned = some * cos + torch.cat((-right, left), -1) * sin
        return torch.cat((turned.type_as(x), x[..., self.turned :]), -1)

    def mlp(self, x: Tensor) -> Tensor:
        """Return the output of the MLP."""
        if self.fc_2 is None:
            return self.mlp_proj(functional.gelu(self.fc_1(x)))
        return self.mlp_proj(functional.silu(self.fc_1(x)) * self.fc_2(x))


class Litgpt(nn.Module):
    """A model of litgpt in October 2023, whose output layer takes chunks of tokens."""

    def __init__(self, name: str, linear: Callable[[int, int, bool], nn.Module]) -> None:
        super().__init__()
        vocabulary, layers, width = LITGPT[name][:3]
        self.wte = nn.Embedding(vocabulary, width)
        self.h = nn.ModuleList(LitgptLayer(name, linear) for _ in range(layers))
        self.ln_f = Norm16(width) if name.startswith("Llama") else nn.LayerNorm(width)
        self.lm_head = linear(width, vocabulary, name == "phi-1.5")
        for key, parameter in self.named_parameters():
            parameter.requires_grad_("lora" in key)

    def forward(self, tokens: Tensor) -> list[Tensor]:
        """Return the logits of chunks of tokens, in the type that Fabric gives them to its caller."""
        turned = self.h[0].turned
        turns = torch.arange(tokens.shape[1])[:, None] * 10000 ** (-torch.arange(0, turned, 2) / turned)
        cos, sin = (wave(turns.repeat(1, 2)).half() for wave in (torch.cos, torch.sin))
        x = self.wte(tokens)
        for layer in self.h:
            x = layer(x, cos, sin)
        return [self.lm_head(part) for part in self.ln_f(x).split(CHUNK, 1)]


def litgpt(row: Mapping[str, str]) -> nn.Module:
    """Return a model of litgpt with adapters, its layers in 4 bits where the row says so."""

    def linear(width: int, out: int, biased: bool) -> nn.Module:
        if "nf4" not in row["method"]:
            return nn.Linear(width, out, biased)
        dq = "nf4-dq" in row["method"]
        return bitsandbytes.nn.Linear4bit(width, out, biased, torch.bfloat16, compress_statistics=dq, quant_type="nf4")

    torch.set_default_dtype(torch.bfloat16)
    model = Litgpt(row["model"], linear).to("cuda")
    torch.set_default_dtype(torch.float32)
    return model


def pretrained(row: Mapping[str, str]) -> nn.Module:
    """Return the row's model, without weights."""
    name, dtype = row["model"], torch.float32 if row["precision"] == "fp32" else torch.bfloat16
    if name in LITGPT:
        return litgpt(row)
    if name in QWEN:
        torch.set_default_dtype(dtype)
        made = Qwen(*QWEN[name])
        torch.set_default_dtype(torch.float32)
        return made
    family, sizes = CONFIGS[name]
    options: dict[str, Any] = {"attn_implementation": "eager"} if family in OLD_ATTENTION else {}
    with tempfile.TemporaryDirectory() as folder:
        getattr(transformers, family + "Config")(**sizes).save_pretrained(folder)
        kind = getattr(transformers, family + HEADS.get(family, "ForCausalLM"))
        model = kind.from_pretrained(folder, dtype=dtype, **options)
    if row["checkpointing"] == "yes":
        model.gradient_checkpointing_enable()
    return model


def adapted(model: nn.Module, row: Mapping[str, str]) -> nn.Module:
    """Return the model with the row's adapters; of 2023 they have the type of the weights."""
    method, name = row["method"], row["model"]
    rank = int(method.split("r=")[1].split()[0]) if "r=" in method else 8
    config: LoraConfig | IA3Config
    if name in LITGPT:
        return model
    if method.startswith("IA3"):
        config = IA3Config(target_modules=["k_proj", "v_proj", "down_proj"], feedforward_modules=["down_proj"])
    elif "LoRA" in method or method.startswith("DoRA"):
        targets = ["q_proj", "v_proj"]
        if name in QWEN:
            targets = ["c_attn", "attn_proj", "w1", "w2", "c_proj"]
        elif "MLP" in method:
            targets = MLP
        elif "torchtune" in row["id"]:
            targets = [*targets, "o_proj", *MLP]
        config = LoraConfig(
            r=rank,
            lora_alpha=2 * rank,
            lora_dropout=0.0 if "MetaMath" in row["source"] or "torchtune" in row["id"] else 0.05,
            target_modules=targets,
            modules_to_save=["wte", "lm_head"] if "embedding" in method else None,
            use_dora=method.startswith("DoRA"),
        )
    else:
        return model
    return get_peft_model(model, config, autocast_adapter_dtype="adapters fp32" in row["precision"])


def before_2(row: Mapping[str, str]) -> bool:
    """Return whether the row's torch is of before 2.0, with optimizers in loops, and gradients kept between steps."""
    return "torch 1." in row["software"]


def optimizer_of(row: Mapping[str, str], trained: list[nn.Parameter]) -> torch.optim.Optimizer:
    """Return the row's optimizer."""
    if "nf4" in row["method"]:
        return bitsandbytes.optim.PagedAdamW(trained, lr=1e-5)
    if row["method"] == "all" and "8-bit" in row["optimizer"]:
        return bitsandbytes.optim.PagedAdamW8bit(trained, lr=1e-5)
    loop = "loop" in row["optimizer"] or before_2(row)
    return torch.optim.AdamW(
        trained, lr=1e-5, foreach=False if loop else None, fused="fused" in row["optimizer"] or None
    )


def inputs_kept(inner: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """Return the forward pass of 4-bit layers as bitsandbytes 0.41 has it, which keeps their inputs."""

    def forward(ctx: Any, x: Tensor, weight: Tensor, *others: Any) -> Tensor:
        result = inner(ctx, x, weight, *others)
        if any(ctx.needs_input_grad[:2]):
            ctx.tensors = (x, ctx.tensors[1])
        return result

    return forward


def fused_norm(self: LlamaRMSNorm, x: Tensor) -> Tensor:
    """Return the norm in one kernel, as torchtune has it."""
    return functional.rms_norm(x.float(), self.weight.shape, self.weight.float(), self.variance_epsilon).to(x.dtype)


def loss_of(model: nn.Module, row: Mapping[str, str], number: int, count: int) -> Tensor:
    """Return the loss of one micro-batch; litgpt begins with the longest sequence of its data."""
    if row["sequence"].startswith("mean"):
        length = LONGEST_TOKENS if number == count - 1 else MEAN_TOKENS
    else:
        length = int(row["sequence"].split()[0]) if not number or row["model"] not in LITGPT else CHUNK
    tokens = torch.randint(12, VOCABULARY, (int(row["batch"]), length))
    if row["model"] == "BERT-large":
        answer: Tensor = model(tokens, labels=tokens[:, 0] % 2).loss
        return answer
    if row["model"] in LITGPT:
        logits = [part.float() for part in model(tokens)]
        logits[-1] = logits[-1][:, :-1]
        parts = zip(logits, tokens[:, 1:].split(CHUNK, 1), strict=True)
        losses = [functional.cross_entropy(*(one.flatten(0, 1) for one in part), reduction="none") for part in parts]
        return torch.cat(losses).mean()
    casts = row["precision"].endswith("autocast") and "no autocast" not in row["precision"]
    with torch.autocast("cuda", torch.bfloat16, enabled=casts):
        loss: Tensor = model(input_ids=tokens, labels=tokens)[0]
    return loss


def main(name: str) -> None:
    """Train two steps."""
    with ROWS.open(newline="") as stream:
        rows = csv.DictReader(line for line in stream if not line.startswith("#"))
        row = next(row for row in rows if row["id"] == name)
    if "torchtune" in name:
        LlamaRMSNorm.forward = fused_norm
    if "bitsandbytes 0.41" in row["software"]:
        layer = bitsandbytes.autograd._functions.MatMul4Bit
        layer.forward = staticmethod(inputs_kept(layer.forward))
    model = adapted(pretrained(row), row).train()
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimizer = optimizer_of(row, trained)
    kept = before_2(row)
    parts = int(row["accumulation"])
    if not row["step_seconds"]:
        parts = min(parts, 2)  # of which more take as much memory
    for step in range(STEPS):
        if "peft main" in row["software"]:
            torch.cuda.empty_cache()  # as its loop does after each evaluation
        for part in range(parts):
            loss = loss_of(model, row, step * parts + part, STEPS * parts)
            (loss / parts).backward()
        if "litgpt" not in name and "torchtune" not in name:
            nn.utils.clip_grad_norm_(trained, 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=not kept)
        print(loss.item())


if __name__ == "__main__":
    main(sys.argv[1])
