"""Makes the generated files in pricing/data from the collected facts in tools/facts.

    python -m tools.build_data

Every row is checked; the same facts give the same bytes. Older snapshots of offers stay, and stay in the manifest.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from costgpu.models.offer import PurchaseOption
from costgpu.pricing import hardware, interruptions, snapshot
from tools import hardware_tables, interconnects_table, interruptions_table, offers_table

ROOT = Path(__file__).parent.parent
FACTS = ROOT / "tools" / "facts"
DATA = ROOT / "pricing" / "data"
MANIFEST = "manifest.json"
ACCELERATOR_COLUMNS = snapshot.columns(
    """
    name model vendor architecture year memory_gib memory_bandwidth_gbps fp32_tflops fp32_matrix_tflops
    tf32_tensor_tflops fp16_tensor_tflops bf16_tensor_tflops multiprocessors compute_capability tdp_watts l2_mib
    usable_gib source as_of usable_from
    """
)
CPU_COLUMNS = snapshot.columns(
    """
    provider family model microarchitecture vcpus_per_core all_core_ghz fp32_flops_per_cycle bf16_in_hardware
    burstable source as_of
    """
)
CPU_MEASUREMENT_COLUMNS = snapshot.columns(
    "provider family read_gbps read_vcpus matrix_mult_per_vcpu bzip2_mbps source as_of"
)
INTERCONNECT_COLUMNS = snapshot.columns(
    """
    provider instance_type link link_gbps network_gbit all_interfaces_gbit network network_gbps efa_interfaces placement
    basis source as_of
    """
)
INTERRUPTION_COLUMNS = snapshot.columns(
    "provider region instance_type percent_a_month low_per_hour per_hour high_per_hour basis source as_of"
)


def build(facts: Path, out: Path) -> list[str]:
    """Write every generated data file and the manifest; return the names of the data files.

    Args:
        facts: Folder with the two price lists, gpu_specs.csv, cpu_families.csv, interconnects.csv and the two of
            interruptions.
        out: Folder for the results; it must exist.

    Raises:
        ConfigError: A fact cannot be right: with file, line and column.
    """
    # The hardware tables carry no dates of their own: they were current when the newest price was read.
    as_of = offers_table.newest_date(facts)
    accelerators = hardware_tables.accelerator_rows(facts, as_of)
    cpus = hardware_tables.cpu_rows(facts, as_of)
    memory_gib = {row[0]: float(row[5]) for row in accelerators}
    prices = offers_table.offers(facts, memory_gib, {(row[0], row[1]) for row in cpus})
    offers = [price for price in prices if offers_table.is_sold(price)]

    def write(name: str, text: str) -> None:
        (out / name).write_text(text, encoding="utf-8", newline="\n")

    offers_file = f"offers-{offers_table.COLLECTED}.csv"
    write(offers_file, snapshot.offers_text(offers))
    write(snapshot.NOT_SOLD_FILE, snapshot.offers_text(p for p in prices if not offers_table.is_sold(p)))
    write(hardware.ACCELERATORS_FILE, snapshot.table_text(ACCELERATOR_COLUMNS, accelerators))
    write(hardware.CPUS_FILE, snapshot.table_text(CPU_COLUMNS, cpus))
    write(
        hardware.CPU_MEASUREMENTS_FILE,
        snapshot.table_text(
            CPU_MEASUREMENT_COLUMNS,
            hardware_tables.cpu_measurement_rows(facts),
            preamble=hardware_tables.MEASUREMENTS_PREAMBLE,
        ),
    )
    types = {(offer.provider, offer.instance_type) for offer in offers if offer.accelerator is not None}
    write(
        hardware.INTERCONNECTS_FILE,
        snapshot.table_text(
            INTERCONNECT_COLUMNS,
            interconnects_table.interconnect_rows(facts, types),
            preamble=interconnects_table.PREAMBLE,
        ),
    )
    spot = {(o.provider, o.region, o.instance_type) for o in offers if o.purchase_option is PurchaseOption.SPOT}
    write(
        interruptions.INTERRUPTIONS_FILE,
        snapshot.table_text(
            INTERRUPTION_COLUMNS,
            interruptions_table.interruption_rows(facts, spot),
            preamble=interruptions_table.PREAMBLE,
        ),
    )
    made_from = {
        offers_file: offers_table.PRICE_LISTS,
        snapshot.NOT_SOLD_FILE: offers_table.PRICE_LISTS,
        hardware.ACCELERATORS_FILE: (hardware_tables.GPU_SPECS,),
        hardware.CPUS_FILE: (hardware_tables.CPU_FAMILIES,),
        hardware.CPU_MEASUREMENTS_FILE: (hardware_tables.CPU_FAMILIES,),
        hardware.INTERCONNECTS_FILE: (interconnects_table.INTERCONNECTS,),
        interruptions.INTERRUPTIONS_FILE: (interruptions_table.INTERRUPTIONS, interruptions_table.TRACES),
    }
    _write_manifest(out, {name: _manifest_entry(out / name, facts, used) for name, used in made_from.items()})
    return list(made_from)


def _manifest_entry(path: Path, facts: Path, used: Sequence[str]) -> dict[str, Any]:
    dates = [row[0] for row in snapshot.read_table(path, ("as_of", "source"))]
    return {
        "sha256": _sha256(path),
        "rows": len(dates),
        "facts": {name: _sha256(facts / name) for name in used},
        "oldest_as_of": min(dates, default=""),
        "newest_as_of": max(dates, default=""),
    }


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _write_manifest(out: Path, entries: Mapping[str, Any]) -> None:
    path = out / MANIFEST
    earlier = json.loads(path.read_text(encoding="utf-8"))["files"] if path.exists() else {}
    kept = {name: entry for name, entry in earlier.items() if (out / name).exists()}
    document = {"schema": "costgpu.pricing-data", "version": 1, "files": {**kept, **entries}}
    text = json.dumps(document, indent=2, sort_keys=True)
    path.write_text(text + "\n", encoding="utf-8")


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description="Make the generated files in pricing/data from the collected facts.")
    parser.add_argument("--facts", type=Path, default=FACTS, help="folder of the facts (default: tools/facts)")
    parser.add_argument("--out", type=Path, default=DATA, help="folder to write to (default: pricing/data)")
    arguments = parser.parse_args()
    for name in build(arguments.facts, arguments.out):
        sys.stdout.write(f"{arguments.out / name}\n")


if __name__ == "__main__":
    main()
