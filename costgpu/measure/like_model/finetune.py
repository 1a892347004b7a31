"""Fine-tunes a language model on random tokens, as most scripts do: what `costgpu estimate --like-model` measures.

Weights are in bf16, and adapters in fp32; all weights that are trained are in fp32 under autocast to bf16. AdamW, the
fused attention of torch, and activations checkpointed. Runs in the user's Python, with transformers, peft and, for
QLoRA, bitsandbytes.
"""

import argparse

import torch
from transformers import AutoModelForCausalLM


def main() -> None:
    """Train as the command line says."""
    parser = argparse.ArgumentParser()
    parser.add_argument("model")
    parser.add_argument("--method", choices=("lora", "qlora", "full"), required=True)
    parser.add_argument("--tokens", type=int, required=True)
    parser.add_argument("--sequence", type=int, required=True)
    parser.add_argument("--batch", type=int, required=True)
    parser.add_argument("--trust", action="store_true")
    wanted = parser.parse_args()
    model = load(wanted.model, wanted.method, trust=wanted.trust)
    model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    model.train()
    vocabulary = model.config.get_text_config().vocab_size
    optimizer = torch.optim.AdamW([value for value in model.parameters() if value.requires_grad], lr=1e-4)
    steps = max(1, round(wanted.tokens / (wanted.batch * wanted.sequence)))
    for _ in range(steps):
        tokens = torch.randint(0, vocabulary, (wanted.batch, wanted.sequence), device="cuda")
        with torch.autocast("cuda", dtype=torch.bfloat16):
            loss = model(input_ids=tokens, labels=tokens, use_cache=False).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()


def load(name: str, method: str, *, trust: bool) -> torch.nn.Module:
    """Return the model, with adapters on all of its linear layers unless all of it is trained."""
    if method == "full":
        return AutoModelForCausalLM.from_pretrained(name, dtype=torch.float32, trust_remote_code=trust).to("cuda")
    from peft import LoraConfig, get_peft_model, prepare_model_for_kbit_training

    settings = {}
    if method == "qlora":
        from transformers import BitsAndBytesConfig

        settings["quantization_config"] = BitsAndBytesConfig(
            load_in_4bit=True,
            bnb_4bit_quant_type="nf4",
            bnb_4bit_use_double_quant=True,
            bnb_4bit_compute_dtype=torch.bfloat16,
        )
    model = AutoModelForCausalLM.from_pretrained(
        name, dtype=torch.bfloat16, device_map={"": 0}, trust_remote_code=trust, **settings
    )
    if method == "qlora":
        model = prepare_model_for_kbit_training(model)
    else:
        model.enable_input_require_grads()
    return get_peft_model(model, LoraConfig(r=16, target_modules="all-linear", task_type="CAUSAL_LM"))


main()
