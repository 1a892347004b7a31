"""Prefill and decodes: `generate()` of transformers, and loops that feed a model one token at a time."""

from __future__ import annotations

from array import array

from ..record import GenerationFacts
from .arguments import cache_of

MOST_UNITS = 5000


class GeneratedTokens:
    """Tokens of one phase's units: each is one prefill of all prompts, and a decode for each further token."""

    def __init__(self, module, *, same_loop=False):
        self.module = module
        self.sequences, self.prompt_tokens, self.decodes = [], [], []  # of each unit
        self.most_new_tokens = None
        self.prefill_seconds, self.decode_seconds = array("d"), array("d")
        self.traced_decodes = 0
        self.same_loop = same_loop  # prefill and decodes are calls at one place

    def prefill(self, sequences, tokens):
        """Begin a unit."""
        if len(self.decodes) < MOST_UNITS:
            self.sequences.append(sequences)
            self.prompt_tokens.append(tokens)
            self.decodes.append(0)

    def decode(self):
        if self.decodes:
            self.decodes[-1] += 1

    def limited_to(self, tokens):
        """Note how many new tokens a sequence gets at most, if it is known."""
        self.most_new_tokens = tokens or self.most_new_tokens

    def trace_begins(self):
        self.traced_decodes = 0

    def call_ended(self, seconds, tracing):
        """Time a call of the model, and return whether it was the decode that is traced: one is enough."""
        if not self.decodes:
            return False
        if not self.decodes[-1]:
            self.prefill_seconds.append(seconds)
        elif tracing is None:
            self.decode_seconds.append(seconds)
        elif not tracing.muted:
            self.traced_decodes = 1
            return True
        return False

    def phase_of_ops(self, tracing):
        """Tell a tracer what the ops of the call that begins are: of a prefill or of a decode."""
        decodes = self.decodes[-1] if self.decodes else 0
        if decodes and not self.traced_decodes:
            earlier = self.decodes[-2] if len(self.decodes) > 1 else 2
            tracing.keep("decode", muted=decodes < max(1, earlier // 2))
        else:
            tracing.enter("decode" if decodes else "prefill")

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
        self.model, self.calls = model, 0
        config = kwargs.get("generation_config") or getattr(model, "generation_config", None)
        self.most_new = kwargs.get("max_new_tokens") or getattr(config, "max_new_tokens", None)
        self.longest = kwargs.get("max_length") or getattr(config, "max_length", None)

    def model_called(self):
        """Count a call of its model, and return how many there were."""
        self.calls += 1
        return self.calls

    def limit(self, tokens):
        """Most new tokens of one sequence whose prompt has so many."""
        if self.most_new:
            return int(self.most_new)
        return max(1, int(self.longest) - tokens) if self.longest else None
