"""Groups of GPUs and ways to train on them, for the tests."""

from typing import Any

from costgpu.estimator.multi_gpu.network import GB, Group, Links
from costgpu.models.offer import Interconnect
from costgpu.models.parallelism import BatchScaling, Parallelism, Scheme


def group(
    gpus: int, link: float | None = 125.0, *, nodes: int = 1, network: float | None = None, kind: str = ""
) -> Group:
    """So many GPUs over so many machines, with links of so many GB/s."""
    if gpus == 1:
        return Group(gpus=1, nodes=1, links=None)
    links = Links(
        local=None if link is None else link * GB,
        network=None if network is None else network * GB,
        network_kind=kind or ("efa" if nodes > 1 else ""),
    )
    return Group(gpus=gpus, nodes=nodes, links=links)


def parallelism(scheme: Scheme = Scheme.DDP, parameters: float = 25.6e6, **changes: Any) -> Parallelism:
    """A training of a model of so many parameters, all of them trained, that splits its data."""
    known: dict[str, Any] = {
        "batch": BatchScaling.PER_RANK,
        "sampler_distributed": True,
        "parameters": int(parameters),
        "trained_parameters": int(parameters),
    }
    return Parallelism(scheme=scheme, **{**known, **changes})


def interconnect(**changes: Any) -> Interconnect:
    """The links of a machine with eight A100."""
    known: dict[str, Any] = {
        "provider": "aws",
        "instance_type": "x1.large",
        "link": "nvlink3",
        "link_gbps": 125.0,
        "network_gbit": 400.0,
        "network": "efa",
        "network_gbps": 40.0,
        "efa_interfaces": 4,
        "placement": True,
        "basis": "fitted",
        "source": "made up",
    }
    return Interconnect(**{**known, **changes})
