"""The interconnects of pricing/data, from interconnects.csv: rows of text, checked, in one order."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from tools.checked_csv import Row, read_rows

INTERCONNECTS = "interconnects.csv"
INTERCONNECT_HEADER = (
    "provider,instance_type,gpu,gpus,vcpus_per_gpu,link,link_description,node_busbw_measured,link_gb_s,network_gbit_s,"
    "network,rdma,efa_interfaces,network_busbw_measured,network_gb_s,placement,basis,source"
)
INTERCONNECTS_AS_OF = "2026-11-24"  # the day on which the sources were read
PREAMBLE = (
    "Links between the GPUs of a machine and between machines, with what they carry while a model trains.",
    "Read from aws/karpenter-provider-aws (Apache-2.0), stas00/ml-engineering (CC BY-SA 4.0), Google Cloud documentation,",
    "awsome-distributed-training (MIT-0), dstackai/dstack (MPL-2.0), cluster-toolkit (Apache-2.0) and issues: see source.",
    "basis: fitted on measured trainings, extrapolated from nccl-tests, or assumed as that of a similar machine.",
)
# What the facts say of a bandwidth in words, from the beginning of the cell.
BASES = {
    "fitted on workstations": "extrapolated",
    "fitted": "fitted",
    "extrapolated": "extrapolated",
    "0.55 x nccl-tests for 4 GPUs": "assumed",
    "0.55 x nccl-tests": "extrapolated",
    "assumed": "assumed",
    "not usable": "",
}
# (network, rdma) of the facts: name of the network.
NETWORKS = {
    ("tcp", "no"): "tcp",
    ("efa", "gpudirect"): "efa",
    ("efa", "host staged"): "efa-host-staged",
    ("efa", "not known"): "efa-host-staged",  # GPUDirect is not documented for these: the lower share
    ("roce", "gpudirect"): "rdma",
    ("gpudirect-tcpx", "plug-in needed"): "tcpx",
    ("gpudirect-tcpxo", "plug-in needed"): "tcpx",
}
UNUSABLE = "none"  # link of GPUs that cannot train together
# A run gives a machine one network interface: with several, a cloud gives it no public address (AWS, EC2 user guide,
# "Elastic network interfaces"), or they need networks of their own (Google, "GPU network bandwidth"; both read 2026-11).
# EFA's interfaces are alike; Google's first one is a plain one of at most 200 Gbit/s, without GPUDirect or RDMA.
PLAIN_INTERFACE_GBIT = 200.0
PLAIN_SHARE = 0.5  # of the line rate, for TCP: as of all plain networks in the facts

TableRow = tuple[str, ...]


def interconnect_rows(facts: Path, types: Collection[tuple[str, str]]) -> list[TableRow]:
    """Return the rows of interconnects.csv.

    Args:
        facts: Folder of the facts.
        types: (provider, instance type) of every offer with an accelerator.

    Raises:
        ConfigError: A figure is wrong, a type is listed twice or has no offer, or an offer has no row.
    """
    rows: dict[tuple[str, str], TableRow] = {}
    for fact in read_rows(facts / INTERCONNECTS, INTERCONNECT_HEADER.split(",")):
        key = fact.text("provider"), fact.text("instance_type")
        if key in rows:
            raise fact.wrong("instance_type", f"{key[1]!r} is listed twice")
        if key not in types:
            raise fact.wrong("instance_type", f"there is no offer of {key[1]!r} with an accelerator")
        rows[key] = (*key, *_row(fact))
    return sorted(rows.values())


def _row(fact: Row) -> TableRow:
    count = fact.number("gpus") or 0.0
    link = fact.text("link", empty=count <= 1)
    for column in ("link_gb_s", "network_gbit_s", "network_gb_s"):
        fact.number(column)
    alone = count <= 1 or link == UNUSABLE
    if bool(fact.cells["link_gb_s"]) == alone:
        raise fact.wrong("link_gb_s", "is for a link between two GPUs or more, and needed there")
    kind = fact.text("network"), fact.text("rdma")
    if kind not in NETWORKS:
        raise fact.wrong("rdma", f"{' '.join(kind)!r} is not a known network")
    words = fact.text("basis", empty=alone)
    basis = next((word for start, word in BASES.items() if words.startswith(start)), None)
    if words and basis is None:
        raise fact.wrong("basis", f"{words!r} says neither fitted, extrapolated nor assumed")
    gbit, every, network, rate = _one_interface(fact, NETWORKS[kind])
    return (
        link,
        fact.cells["link_gb_s"],
        gbit,
        every,
        network,
        "" if link == UNUSABLE else rate,
        fact.text("efa_interfaces", empty=True) or "0",
        "yes" if fact.cells["placement"] else "no",
        basis or "",
        fact.text("source"),
        INTERCONNECTS_AS_OF,
    )


def _one_interface(fact: Row, network: str) -> tuple[str, str, str, str]:
    """Line rate of one network interface and of all (empty if one is all), kind of network, and effective GB/s of one."""
    gbit, rate = fact.cells["network_gbit_s"], fact.cells["network_gb_s"]
    count = float(fact.cells["efa_interfaces"] or 0)
    if count > 1:
        return f"{float(gbit) / count:g}", gbit, network, f"{float(rate) / count:g}" if rate else ""
    if network in ("tcpx", "rdma") and gbit and float(gbit) > PLAIN_INTERFACE_GBIT:
        return f"{PLAIN_INTERFACE_GBIT:g}", gbit, "tcp", f"{PLAIN_INTERFACE_GBIT * PLAIN_SHARE / 8:g}"
    return gbit, "", network, rate
