"""Fine-tunes a language model as one row of finetune_rows.csv did, without its weights: two optimizer steps.

    costgpu estimate --weights none benchmarks/finetune_script.py ROW

Models come from their configurations; Qwen's first generation is written out as its authors' code runs with flash-attn,
because the libraries of today have another one. It needs torch, transformers, peft and bitsandbytes.
"""

from __future__ import annotations

import csv
import sys
import tempfile
from collections.abc import Mapping
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
BATCH_TOKENS = 210  # of a sequence, where the mean is published
# Layers, width, width of the MLP and heads.
QWEN = {"Qwen-1.8B": (24, 2048, 5504, 16), "Qwen-7B": (32, 4096, 11008, 32), "Qwen-14B": (40, 5120, 13696, 40)}
# Class and configuration, where it differs from the class's defaults.
CONFIGS: dict[str, tuple[str, dict[str, Any]]] = {
    "phi-1.5": ("Phi", {}),
    "StableLM-Alpha-3B": (
        "GPTNeoX",
        {
            "vocab_size": 50688,
            "hidden_size": 4096,
            "intermediate_size": 16384,
            "num_hidden_layers": 16,
            "num_attention_heads": 32,
        },
    ),
    "Llama-2-7B": ("Llama", {}),
    "Llama-2-13B": (
        "Llama",
        {"hidden_size": 5120, "intermediate_size": 13824, "num_hidden_layers": 40, "num_attention_heads": 40},
    ),
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
TARGETS = {"StableLM-Alpha-3B": ["query_key_value"]}
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


def pretrained(row: Mapping[str, str]) -> nn.Module:
    """Return the row's model, without weights."""
    name, dtype = row["model"], torch.float32 if row["precision"] == "fp32" else torch.bfloat16
    if name in QWEN:
        torch.set_default_dtype(dtype)
        made = Qwen(*QWEN[name])
        torch.set_default_dtype(torch.float32)
        return made
    family, sizes = CONFIGS[name]
    options: dict[str, Any] = {"attn_implementation": "eager"} if family in OLD_ATTENTION else {}
    if "nf4" in row["method"]:
        options["quantization_config"] = transformers.BitsAndBytesConfig(
            load_in_4bit=True,
            bnb_4bit_quant_type="nf4",
            bnb_4bit_use_double_quant="nf4-dq" in row["method"],
            bnb_4bit_compute_dtype=torch.bfloat16,
        )
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
    if method.startswith("IA3"):
        config = IA3Config(target_modules=["k_proj", "v_proj", "down_proj"], feedforward_modules=["down_proj"])
    elif "LoRA" in method or method.startswith("DoRA"):
        targets = TARGETS.get(name, ["q_proj", "v_proj"])
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


def optimizer_of(row: Mapping[str, str], trained: list[nn.Parameter]) -> torch.optim.Optimizer:
    """Return the row's optimizer."""
    if row["method"] == "all" and "8-bit" in row["optimizer"]:
        return bitsandbytes.optim.PagedAdamW8bit(trained, lr=1e-5)
    loop = "loop" in row["optimizer"]
    return torch.optim.AdamW(
        trained, lr=1e-5, foreach=False if loop else None, fused="fused" in row["optimizer"] or None
    )


def fused_norm(self: LlamaRMSNorm, x: Tensor) -> Tensor:
    """Return the norm in one kernel, as torchtune has it."""
    return functional.rms_norm(x.float(), self.weight.shape, self.weight.float(), self.variance_epsilon).to(x.dtype)


def loss_of(model: nn.Module, row: Mapping[str, str]) -> Tensor:
    """Return the loss of one micro-batch."""
    length = BATCH_TOKENS if row["sequence"].startswith("mean") else int(row["sequence"].split()[0])
    tokens = torch.randint(12, VOCABULARY, (int(row["batch"]), length))
    if row["model"] == "BERT-large":
        answer: Tensor = model(tokens, labels=tokens[:, 0] % 2).loss
        return answer
    if "litgpt" in row["id"]:
        logits = model(input_ids=tokens).logits[:, :-1].flatten(0, 1)
        parts = zip(logits.split(CHUNK), tokens[:, 1:].flatten().split(CHUNK), strict=True)
        return torch.cat([functional.cross_entropy(*part, reduction="none") for part in parts]).mean()
    casts = row["precision"].endswith("autocast") and "no autocast" not in row["precision"]
    with torch.autocast("cuda", torch.bfloat16, enabled=casts):
        first: Tensor = model(input_ids=tokens, labels=tokens)[0]
    return first


def main(name: str) -> None:
    """Train two steps."""
    with ROWS.open(newline="") as stream:
        rows = csv.DictReader(line for line in stream if not line.startswith("#"))
        row = next(row for row in rows if row["id"] == name)
    if "torchtune" in name:
        LlamaRMSNorm.forward = fused_norm
    model = adapted(pretrained(row), row).train()
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimizer = optimizer_of(row, trained)
    kept = "set_to_none=False" in row["note"]
    parts = int(row["accumulation"])
    if not row["step_seconds"]:
        parts = min(parts, 2)  # of which more take as much memory
    for _ in range(STEPS):
        for _ in range(parts):
            loss = loss_of(model, row)
            (loss / parts).backward()
        if "litgpt" not in name and "torchtune" not in name:
            nn.utils.clip_grad_norm_(trained, 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=not kept)
        print(loss.item())


if __name__ == "__main__":
    main(sys.argv[1])
