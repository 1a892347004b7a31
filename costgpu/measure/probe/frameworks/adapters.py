"""How adapters are put beside the weights of a pretrained model, and how these are held in 4 bits.

Versions that this was written against: transformers 5.24, peft 0.21, bitsandbytes 0.50.
"""

from __future__ import annotations

import importlib

from ..patching import put

RANK = 16  # of the adapters of each linear layer


def four_bits(torch):
    """Return the settings of quantization that QLoRA uses. Source: Dettmers et al. 2023, arXiv:2305.14314, section 3."""
    return {
        "quant_method": "bitsandbytes",
        "load_in_4bit": True,
        "bnb_4bit_quant_type": "nf4",
        "bnb_4bit_use_double_quant": True,
        "bnb_4bit_compute_dtype": torch.bfloat16,
    }


def add_adapters(model):
    """Put adapters into all linear layers of a model of transformers, and return the parameters that are frozen then.

    What trains it does not know of them: trainers refuse a quantized model without adapters that they know.
    """
    peft = importlib.import_module("peft")
    peft.inject_adapter_in_model(peft.LoraConfig(r=RANK, target_modules="all-linear"), model)
    model.enable_input_require_grads()  # for reentrant checkpointing, before release 5
    put(model, is_quantized=False)
    return [value for value in model.parameters() if not value.requires_grad]


def words_of(changes):
    """Return how a script does the same."""
    adapters = 'peft.LoraConfig(r={}, target_modules="all-linear")'.format(RANK)
    quantized = 'BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type="nf4")'
    asked = [(changes.adapts, adapters), (changes.quantizes, quantized)]
    return " and ".join(words for wanted, words in asked if wanted)
