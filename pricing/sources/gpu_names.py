"""Names: which board each accelerator name means, and which CPU each family without a row has.

Everything that is a judgement about the facts, and not in the facts, stands here as data.
"""

from __future__ import annotations

BOARDS = {
    "K80": "K80",
    "M60": "M60",
    "P4": "P4",
    "P100": "P100-PCIE-16GB",
    "V100": "V100-SXM2-16GB",
    "V100-32GB": "V100-SXM2-32GB",
    "T4": "T4",
    "T4G": "T4G",
    "A10G": "A10G",
    "L4": "L4",
    "L40S": "L40S",
    "A100": "A100-SXM4-40GB",
    "A100-80GB": "A100-SXM4-80GB",
    "H100": "H100-SXM5-80GB",
    "H200": "H200-SXM-141GB",
    "B200": "B200",
    "B300": "B300",
    "RTX-PRO-6000": "RTX-PRO-6000-Blackwell-Server",
    "V520": "Radeon Pro V520",
}
"""The name that users type, to the row of gpu_specs.csv; every other board goes by its own name."""

PRICED_AS = {
    **{name: (name, 1.0) for name in BOARDS},
    "RTXPRO6000": ("RTX-PRO-6000", 1.0),
    "RTX-PRO-6000-1/2": ("RTX-PRO-6000", 0.5),
    "RTX-PRO-6000-1/4": ("RTX-PRO-6000", 0.25),
    "RTX-PRO-6000-1/8": ("RTX-PRO-6000", 0.125),
}
"""The name in a price list, to our name and the share of one accelerator."""

LEFT_OUT = {"Gaudi-HL-205": "no published fp32 peak, no CUDA, and no offer has one"}
"""Boards of gpu_specs.csv that the table cannot hold, with the reason."""

FAMILIES_WITHOUT_ROW = {
    ("aws", "p6-b200"): ("Intel Xeon Scalable, 5th generation", "Emerald Rapids"),
    ("aws", "p6-b300"): ("Intel Xeon Scalable, 5th generation", "Emerald Rapids"),
    ("gcp", "a4"): ("Intel Xeon Scalable, 5th generation", "Emerald Rapids"),
    ("gcp", "g4"): ("AMD EPYC, 5th generation", "Zen 5 (Turin)"),
}
"""Families with offers that cpu_families.csv does not list, to model and microarchitecture.

The provider's announced processor generation; the arithmetic figures are those on which all rows of that
provider with the same microarchitecture agree, the clock is left unknown.
"""

BURSTABLE = {("aws", family) for family in ("t2", "t3", "t3a", "t4g")} | {
    ("gcp", family) for family in ("e2", "f1", "g1")
}

DERIVED_MARKS = (
    "uplift",  # a surcharge was added to the price that was read
    "same Americas SKUs",  # read for another region that shares the price list entry
    "us-central1 host",  # the host's part was read for another region
    "16.11/GPU",  # number of accelerators x price per accelerator; the provider's page lists no price
    "spot estimated",
)
"""Texts in a price's source that say it was computed, beside the word ``derived`` itself."""
