"""Generates tokens with a tiny language model: by `generate`, or by a loop of its own with a cache."""

import sys

import torch
from transformers import LlamaConfig, LlamaForCausalLM

way = sys.argv[1]
shape = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 3}
config = LlamaConfig(vocab_size=100, num_attention_heads=4, num_key_value_heads=2, pad_token_id=0, **shape)
model = LlamaForCausalLM(config).eval()
prompts = [torch.randint(3, 100, (4, 12)) for _ in range(50)]


@torch.inference_mode()
def complete(token, count):
    cache = None
    for _ in range(count):
        out = model(token, past_key_values=cache, use_cache=True)
        cache, token = out.past_key_values, out.logits[:, -1:].argmax(-1)


for prompt in prompts:
    if way == "generate":
        model.generate(prompt, attention_mask=torch.ones_like(prompt), max_new_tokens=9, min_new_tokens=9)
    else:
        complete(prompt, 9)
