"""How far the prediction of several GPUs is from public measurements: throughput and scaling efficiency.

    python -m benchmarks.accuracy_multi [ROWS.csv] [--left-out] [--worst N]

Rows of one `group` differ only in the number of GPUs. From the row with the fewest, the seconds of one GPU are told
(`alone_seconds`), and from those the throughput of each other row, by the functions that `costgpu estimate` uses.
With --left-out the constants, links and networks are also fitted anew on the rows of all other sources for each source
(some minutes): what to expect of a cluster that nobody has seen. Rows with tensor parallelism are left out, which is not
predicted, and full sharding over more than 128 GPUs, for which the formula does not hold.
"""

from __future__ import annotations

import argparse
import csv
import math
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path

import numpy as np

from costgpu.estimator.multi_gpu.network import GB, Group, Links, bytes_per_step, communication_seconds
from costgpu.estimator.multi_gpu.step_time import (
    FITTED,
    MOST_SHARDED_GPUS,
    StepConstants,
    StepSeconds,
    scaling_interval,
    step_seconds,
    window_share,
)
from costgpu.models.parallelism import Parallelism, Scheme

ROWS = Path(__file__).parent.parent / "tools" / "facts" / "multi_gpu_rows.csv"
SCHEMES = {
    "ddp": Scheme.DDP,
    "zero1": Scheme.ZERO1,
    "zero1-in-node": Scheme.ZERO1,
    "zero2": Scheme.ZERO2,
    "zero3": Scheme.ZERO3,
    "fsdp": Scheme.FSDP,
    "hsdp": Scheme.HSDP,
}
# Effective GB/s of links while training, those of pricing/data/interconnects.csv: fitted on the rows. PCIe through the host
# by the number of GPUs.
LINKS = {
    "nvlink2": 30.0,
    "nvlink3": 125.0,
    "nvlink4": 200.0,
    "nvlink5": 370.0,
    "nvlink-bridge2": 25.0,
    "pcie5-p2p": 20.0,
    "pcie4-p2p": 20.0,
    "pcie3-p2p": 7.7,
    "pcie3-host": 4.5,
    "pcie4-host 2": 5.2,
    "pcie4-host 4": 1.3,
    "pcie4-host 8": 0.7,
}
# What is taken for a link before there are rows: a half of nccl-tests on large buffers with NVLink, where buckets and the
# shared chip count, and nearly all of them with PCIe; see tools/facts/interconnects.csv.
PRIOR_LINKS = {**LINKS, "nvlink2": 65.0, "nvlink3": 115.0, "nvlink4": 240.0, "pcie3-p2p": 9.0, "pcie3-host": 5.0}
# Share of the line rate of a machine that trainings get out of its network, as in tools/facts/interconnects.csv: fitted on
# InfiniBand of 100 to 1,600 Gbit/s; nccl-tests for the others.
NETWORK_SHARES = {"rdma": 0.8, "efa": 0.8, "efa-host-staged": 0.6, "tcpx": 0.4, "tcp": 0.5}
OLD_TCP_SHARE = 0.25  # TCP with NCCL before 2.5 (2018-20): 8 public runs imply 0.19 to 0.24
NETWORKS = {**NETWORK_SHARES, "tcp": OLD_TCP_SHARE, "tcp of today": NETWORK_SHARES["tcp"]}
TCP_OF_TODAY = ("oumi-ai/oumi",)  # sources that used NCCL 2.5 or later over TCP
POSTED = re.compile(r" (issue|pull request) \d")
PRIOR_WEIGHT = 0.5  # rows that the logarithm of a constant's ratio to its prior counts for
SWEEPS, FIRST_STEP = 6, 0.3


@dataclass(frozen=True, slots=True)
class Row:
    """One measurement."""

    group: str
    source: str
    parallelism: str
    spread: Parallelism
    micro_batches: float
    gpus: int
    nodes: int
    link: str
    network: str  # empty with one machine
    network_gbit: float
    units: float  # of a step of one GPU
    seconds: float  # of a step


@dataclass(frozen=True, slots=True)
class Pair:
    """A measurement, and the one with fewer GPUs from which it is predicted."""

    base: Row
    row: Row


@dataclass(frozen=True, slots=True)
class Model:
    """Everything that is fitted."""

    constants: StepConstants
    links: Mapping[str, float]
    networks: Mapping[str, float]

    def on(self, row: Row) -> Group:
        """Return the GPUs of a row."""
        if row.gpus == 1:
            return Group(gpus=1, nodes=1, links=None)
        network = self.networks[row.network] * row.network_gbit / 8 * GB if row.network else None
        local = self.links[row.link] * GB if row.gpus > row.nodes else None
        kind = "tcp" if row.network.startswith("tcp") else row.network
        basis = "assumed" if row.link.startswith("pcie4-host") else "fitted"
        return Group(
            gpus=row.gpus, nodes=row.nodes, links=Links(local=local, network=network, network_kind=kind, basis=basis)
        )

    def predicted(self, pair: Pair) -> StepSeconds:
        """Return a step of the pair's row."""
        base, row = pair.base, pair.row
        group = self.on(base)
        window = window_share(base.spread.scheme, base.micro_batches)
        alone = alone_seconds(base.seconds, group, exchanged(base, group), window, self.constants)
        group = self.on(row)
        window = window_share(row.spread.scheme, row.micro_batches)
        return step_seconds(alone * row.units / base.units, group, exchanged(row, group), window, self.constants)


def alone_seconds(
    measured: float, group: Group, communication: float, window: float, constants: StepConstants
) -> float:
    """Return the seconds of the same work on one GPU, by bisection, as `step_seconds` grows with them.

    It is at least 2 % of `measured`, where the formula says that communication takes all of it.
    """
    if group.gpus <= 1:
        return measured
    low, high = 0.02 * measured, measured
    for _ in range(60):
        middle = (low + high) / 2
        if step_seconds(middle, group, communication, window, constants).seconds < measured:
            low = middle
        else:
            high = middle
    return high


SHIPPED = Model(FITTED, LINKS, NETWORKS)


def exchanged(row: Row, group: Group) -> float:
    """Seconds of a row's collectives if nothing hid them."""
    volume = bytes_per_step(row.spread, row.micro_batches)
    assert volume is not None
    return communication_seconds(volume, group)


def read_rows(path: Path) -> list[Row]:
    """Return the rows of a file whose scheme is predicted, and whose links are known."""
    with path.open(encoding="utf-8", newline="") as stream:
        cells = csv.DictReader(line for line in stream if not line.startswith("#"))
        found = [_row(one) for one in cells if one["parallelism"] in SCHEMES]
    return [
        one for one in found if one.link in LINKS and (one.nodes == 1 or (one.network in NETWORKS and one.network_gbit))
    ]


def _row(cells: Mapping[str, str]) -> Row:
    scheme = SCHEMES[cells["parallelism"]]
    gpus, nodes = int(float(cells["gpus"])), max(1, int(float(cells["nodes"] or 1)))
    parameters = int(float(cells["params_m"]) * 1e6)
    each = 2.0 if scheme.shards_parameters else 0.0  # as the fit has it
    units = float(cells["units_per_gpu_step"])
    source = cells["source"].split("@")[0]
    network = cells["network"] if nodes > 1 else ""
    return Row(
        group=cells["group"],
        source=source,
        parallelism=cells["parallelism"],
        spread=Parallelism(
            scheme=scheme,
            parameters=parameters,
            trained_parameters=parameters,
            gradient_bytes=float(cells["grad_bytes"]),
            gathered_bytes=each,
            reduced_bytes=each,
        ),
        micro_batches=float(cells["grad_accum"] or 1),
        gpus=gpus,
        nodes=nodes,
        link=_link(cells["intra"], gpus // nodes),
        network="tcp of today" if network == "tcp" and source.startswith(TCP_OF_TODAY) else network,
        network_gbit=float(cells["network_gbps"] or 0),
        units=units,
        seconds=units * gpus / float(cells["throughput"]),
    )


def _link(name: str, gpus: int) -> str:
    if name == "pcie4-host":
        return f"{name} {2 if gpus <= 3 else 4 if gpus <= 4 else 8}"
    return "nvlink2" if name in ("nvlink2-cube", "nvswitch1") else name


def pairs_of(rows: Iterable[Row]) -> list[Pair]:
    """Every row with the one of its group that has the fewest GPUs."""
    groups = defaultdict(list)
    for row in rows:
        groups[row.group].append(row)
    found = []
    for same in groups.values():
        base = min(same, key=lambda row: row.gpus)
        found += [Pair(base, row) for row in same if row.gpus > base.gpus and _holds(row)]
    return found


def _holds(row: Row) -> bool:
    return row.parallelism not in ("zero1", "zero2", "zero3", "fsdp") or row.gpus <= MOST_SHARDED_GPUS


def errors(model: Model, pairs: Sequence[Pair]) -> np.ndarray:
    """Logarithm of predicted over measured throughput."""
    return np.array([math.log(pair.row.seconds / model.predicted(pair).seconds) for pair in pairs])


def inside(model: Model, pair: Pair) -> bool:
    """Return whether the measured seconds lie in the 80 % interval."""
    found = model.predicted(pair)
    interval, _ = scaling_interval(found.seconds, found.efficiency, model.on(pair.row), pair.row.spread.scheme)
    return interval.low * found.seconds <= pair.row.seconds <= interval.high * found.seconds


NAMES = (*(one.name for one in fields(StepConstants)), *LINKS, *NETWORKS)
PRIOR = np.log(
    [*(getattr(FITTED, one.name) for one in fields(StepConstants)), *PRIOR_LINKS.values(), *NETWORKS.values()]
)


def model_of(logs: np.ndarray) -> Model:
    """Return the model of the logarithms of all constants, in the order of `NAMES`."""
    values = dict(zip(NAMES, np.exp(logs).tolist(), strict=True))
    values["never_hidden"] = min(1.0, values["never_hidden"])
    return Model(
        StepConstants(**{one.name: values[one.name] for one in fields(StepConstants)}),
        {name: values[name] for name in LINKS},
        {name: values[name] for name in NETWORKS},
    )


def fitted(pairs: Sequence[Pair]) -> Model:
    """Return the constants with the least mean error and distance from what is known without rows, by coordinate descent."""

    def loss(logs: np.ndarray) -> float:
        prior = PRIOR_WEIGHT * float(((logs - PRIOR) ** 2).sum()) / len(pairs)
        return float(np.abs(errors(model_of(logs), pairs)).mean()) + prior

    best = PRIOR.copy()
    least, steps = loss(best), np.full(len(best), FIRST_STEP)
    for _ in range(SWEEPS):
        for index in range(len(best)):
            for sign in (1, -1):
                tried = best.copy()
                tried[index] += sign * steps[index]
                if (found := loss(tried)) < least:
                    best, least = tried, found
                    break
            else:
                steps[index] /= 2
    return model_of(best)


def line(name: str, found: np.ndarray, alone: np.ndarray, held: np.ndarray | None) -> str:
    """Errors of throughput, and of linear scaling, in percent; from the same base, efficiency errs as much."""
    off, linear = (100 * np.abs(np.expm1(one)) for one in (found, alone))
    figures = f"{np.median(off):7.1f} /{np.quantile(off, 0.9):5.1f} {100 * np.median(np.expm1(found)):+7.1f}"
    figures += f" {np.median(linear):10.1f} /{np.quantile(linear, 0.9):5.1f}"
    return f"{name:50} {len(found):5} {figures}" + ("" if held is None else f" {100 * held.mean():6.0f} %")


def report(title: str, pairs: Sequence[Pair], found: np.ndarray, held: np.ndarray | None) -> None:
    """Prints the errors by source, and on one machine and several."""
    linear = np.array(
        [math.log(one.row.seconds / (one.base.seconds * one.row.units / one.base.units)) for one in pairs]
    )
    print(f"\n{title}: throughput and efficiency, absolute error in percent, median / p90")
    print(f"{'':50} {'pairs':>5} {'error':>14} {'bias':>7} {'linear scaling':>18}{'' if held is None else '     held'}")
    cuts: dict[str, np.ndarray] = {"all": np.full(len(pairs), True)}
    cuts["one machine"] = np.array([one.row.nodes == 1 for one in pairs])
    cuts["several machines"] = ~cuts["one machine"]
    cuts["posted in issues and pull requests"] = np.array([bool(POSTED.search(one.row.source)) for one in pairs])
    for source in sorted({one.row.source for one in pairs}):
        cuts[f"  {source}"] = np.array([one.row.source == source for one in pairs])
    for name, chosen in cuts.items():
        if chosen.any():
            print(line(name, found[chosen], linear[chosen], None if held is None else held[chosen]))


def points(pairs: Sequence[Pair], model: Model) -> str:
    """Error of the efficiency in points, where the base is one GPU."""
    off = []
    for one in pairs:
        if one.base.gpus == 1:
            measured = one.base.seconds * one.row.units / one.base.units / one.row.seconds
            off.append(100 * abs(model.predicted(one).efficiency - measured))
    return f"{np.median(off):.1f} / {np.quantile(off, 0.9):.1f} points over {len(off)} pairs from one GPU"


def main() -> None:
    """Prints the report."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("rows", type=Path, nargs="?", default=ROWS)
    parser.add_argument("--left-out", action="store_true", help="fit the constants without each source in turn")
    parser.add_argument("--worst", type=int, default=0, help="print so many of the worst pairs")
    options = parser.parse_args()
    pairs = pairs_of(read_rows(options.rows))
    found = errors(SHIPPED, pairs)
    report("Shipped constants", pairs, found, np.array([inside(SHIPPED, one) for one in pairs]))
    print(f"efficiency: {points(pairs, SHIPPED)}")
    for index in np.argsort(-np.abs(found))[: options.worst]:
        one = pairs[index]
        print(f"  {math.expm1(found[index]):+6.0%} {one.row.group} {one.base.gpus} -> {one.row.gpus} GPUs")
    if options.left_out:
        apart = np.zeros(len(pairs))
        for source, count in Counter(one.row.source for one in pairs).items():
            mine = np.array([one.row.source == source for one in pairs])
            model = fitted([one for one in pairs if one.row.source != source])
            apart[mine] = errors(model, [one for one in pairs if one.row.source == source])
            print(f"fitted without {source} ({count} pairs)", flush=True)
        report("One source left out", pairs, apart, None)


if __name__ == "__main__":
    main()
