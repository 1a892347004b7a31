"""What costgpu knows of a framework: one entry each, beside its hooks. The host reads the entries, too."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Callable, FrozenSet, Mapping, Optional, Tuple

BESIDE_TRAINING = 5  # ranks from this on are of what only may be the job


@dataclass(frozen=True)
class FrameworkSpec:
    """A library that a script computes with.

    Attributes:
        name: Its package, as scripts import it; the source of its series.
        label: Its name for people; empty for `name`.
        hooks: ``hooks(recorder)`` returns what to call after a module has been imported, by the module's name.
        computes: Whether who imports it will probably compute with it, in steps that are seen.
        telling: Names of it that nobody writes who only borrows arrays or a file format of it.
        rank: Which of several series is the job: one of the lowest rank.
        family: Trainings of one family do not run inside each other; empty for those that may.
        counts: By what the FLOPs and bytes of its steps are counted; empty where they are not, and so no GPU time is known.
        on_gpu: ``on_gpu(facts)`` returns for a series with these facts its kind in the benchmark table, and what to say
            of its figure on a GPU; None where a GPU does nothing for it.
        fits: Whether its steps may be whole fits, of which a single one is an answer.
        compiles: Whether what it steps is compiled first, so that its time counts from there on.
        refusals: Regular expression for its own words where it finds no GPU.
        on_torch: Whether it computes with torch.
        spreads: Packages of it that start or join the processes of a training.
    """

    name: str
    label: str = ""
    hooks: Optional[Callable[[Any], Mapping[str, Callable[[Any], Any]]]] = None
    computes: bool = False
    telling: FrozenSet[str] = frozenset()
    rank: int = BESIDE_TRAINING
    family: str = ""
    counts: str = ""
    on_gpu: Optional[Callable[[Mapping[str, Any]], Tuple[str, str]]] = None
    fits: bool = False
    compiles: bool = False
    refusals: str = ""
    on_torch: bool = False
    spreads: Tuple[str, ...] = ()
