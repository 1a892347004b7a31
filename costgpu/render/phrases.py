"""Short phrases that the terminal and the HTML pages share: counts, offers by name, texts from outside."""

from __future__ import annotations

import unicodedata

from costgpu.models.offer import Accelerator, PurchaseOption
from costgpu.models.prediction import Prediction

LONGEST_NAME = 80
THIS_MACHINE = "this machine"
_INVISIBLE = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})


def counted(number: int, noun: str, plural: str = "") -> str:
    """``1 run``, ``1,234 runs``."""
    return f"{number:,} {noun if number == 1 else plural or f'{noun}s'}"


def with_article(noun: str) -> str:
    """``a job``, ``an epoch``, ``1,000 steps``."""
    if noun[:1].isdigit():
        return noun
    return f"an {noun}" if noun[:1] in "aeiou" else f"a {noun}"


def visible(text: str, longest: int = LONGEST_NAME) -> str:
    """The text without invisible characters and such that change its direction, cut to `longest`."""
    shown = "".join(" " if unicodedata.category(char) in _INVISIBLE else char for char in text)
    return shown if len(shown) <= longest else shown[: longest - 1] + "…"


def accelerator_name(accelerator: Accelerator, times: str = "x") -> str:
    """``A100``, ``8x A100``."""
    count = "" if accelerator.count == 1 else f"{accelerator.count:g}{times} "
    return f"{count}{visible(accelerator.name)}"


def offer_name(prediction: Prediction) -> str:
    """``aws g6.xlarge (L4), us-east-1, spot``."""
    offer = prediction.candidate.offer
    if offer is None:
        return THIS_MACHINE
    gpu = f" ({accelerator_name(offer.accelerator)})" if offer.accelerator else ""
    spot = ", spot" if offer.purchase_option is PurchaseOption.SPOT else ""
    return f"{visible(offer.provider)} {visible(offer.instance_type)}{gpu}, {visible(offer.region)}{spot}"


def short_offer_name(prediction: Prediction, place: str = "") -> str:
    """``aws g6.xlarge 1xL4 spot``, for a column; `place` follows the provider."""
    offer = prediction.candidate.offer
    if offer is None:
        return THIS_MACHINE
    gpu = f" {offer.accelerator.count:g}x{offer.accelerator.name}" if offer.accelerator else ""
    spot = " spot" if offer.purchase_option is PurchaseOption.SPOT else ""
    return f"{offer.provider}{place} {offer.instance_type}{gpu}{spot}"
