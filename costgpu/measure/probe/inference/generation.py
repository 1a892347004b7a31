"""Prefill and decodes: `generate()` of transformers, and loops that feed a model one token at a time."""

from __future__ import annotations

from array import array

from ..record import GenerationFacts
from ..schedstat import clock
from .arguments import cache_of

MOST_UNITS = 5000


class Generation:
    """Tokens of one phase's units: each is one prefill of all prompts, and a decode for each further token."""

    def __init__(self, module):
        self.module = module
        self.sequences, self.prompt_tokens, self.decodes = [], [], []  # of each unit
        self.most_new_tokens = None
        self.prefill_seconds, self.decode_seconds = array("d"), array("d")
        self.traced_decodes = 0
        self.same_loop = False  # prefill and decodes are calls at one place

    def prefill(self, sequences, tokens):
        """Begin a unit."""
        if len(self.decodes) < MOST_UNITS:
            self.sequences.append(sequences)
            self.prompt_tokens.append(tokens)
            self.decodes.append(0)

    def decode(self):
        if self.decodes:
            self.decodes[-1] += 1

    def unit_seconds(self):
        """Seconds of a unit that was not seen to its end, by its parts; None if they are not known either."""
        if not self.prefill_seconds or not self.decode_seconds:
            return None
        decodes = sorted(self.decode_seconds)
        made = self.most_new_tokens or 1 + max(self.decodes)
        return self.prefill_seconds[-1] + decodes[len(decodes) // 2] * (made - 1)

    def record(self) -> GenerationFacts:
        cache, layers = cache_of(self.module)
        return {
            "sequences": self.sequences,
            "prompt_tokens": self.prompt_tokens,
            "decodes": self.decodes,
            "most_new_tokens": self.most_new_tokens,
            "traced_decodes": self.traced_decodes,
            "cache_bytes_per_token": cache,
            "layers": layers,
            "same_loop": self.same_loop,
        }


class GenerateCall:
    """One call of `GenerationMixin.generate` that is going on; calls of its own model inside are prefill and decodes."""

    def __init__(self, model, kwargs):
        self.model, self.began = model, clock()
        self.calls = 0
        config = kwargs.get("generation_config") or getattr(model, "generation_config", None)
        self.most_new = kwargs.get("max_new_tokens") or getattr(config, "max_new_tokens", None)
        self.longest = kwargs.get("max_length") or getattr(config, "max_length", None)

    def limit(self, tokens):
        """Most new tokens of one sequence whose prompt has so many."""
        if self.most_new:
            return int(self.most_new)
        return max(1, int(self.longest) - tokens) if self.longest else None
