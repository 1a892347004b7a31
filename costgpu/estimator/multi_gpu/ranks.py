"""How many processes of a training work on a candidate, and what lies between them. Pure."""

from __future__ import annotations

from costgpu.estimator.multi_gpu.links import links_between
from costgpu.estimator.multi_gpu.step_time import Group
from costgpu.models.parallelism import Parallelism, Scheme
from costgpu.models.prediction import Candidate

ONE = Group(gpus=1, nodes=1, links=None)


def group_on(parallelism: Parallelism | None, candidate: Candidate) -> Group | str:
    """Return the GPUs of the candidate that the training uses.

    Or the reason why it cannot run, or cannot be predicted, there.

    Args:
        parallelism: How the script trains; None for one process.
        candidate: The place; `nodes` of them work together.
    """
    alone = parallelism is None or parallelism.scheme is Scheme.SINGLE
    nodes = candidate.nodes
    if parallelism is None or alone:
        return ONE if nodes == 1 else f"it trains in one process, which cannot use {nodes} machines"
    count = int(candidate.accelerator_count)
    if count < 1:
        return ONE if nodes == 1 else "machines without whole GPUs are not predicted together"
    gpus = count * nodes
    if parallelism.fixed_processes and parallelism.processes:
        if parallelism.processes > gpus:
            return f"it starts {parallelism.processes} processes with a GPU each; here there are {gpus}"
        if nodes > 1 and parallelism.processes % nodes:
            return f"it starts {parallelism.processes} processes, which {nodes} machines cannot share evenly"
        gpus = parallelism.processes
    if gpus == 1:
        return ONE
    if not parallelism.scheme.predicted:
        what = parallelism.scheme.phrase
        return f"it uses {what}, whose time on {gpus} GPUs is not predicted: measure it there"
    if parallelism.scheme is Scheme.DATA_PARALLEL and nodes > 1:
        return "torch.nn.DataParallel cannot use several machines"
    links = links_between(candidate.interconnect, gpus // nodes, nodes)
    return links if isinstance(links, str) else Group(gpus=gpus, nodes=nodes, links=links)
