"""What costgpu knows of a framework: an entry of the registry. The host reads the entries, too."""

from __future__ import annotations

from dataclasses import dataclass, field
from importlib import import_module
from typing import Any, FrozenSet, Mapping, Tuple

BESIDE_TRAINING = 5  # ranks from this on are of what only may be the job
NOTHING = "a GPU does nothing for this code as it is written"


@dataclass(frozen=True)
class FrameworkSpec:
    """A library that a script computes with.

    Attributes:
        name: Its package, as scripts import it; the source of its series.
        label: Its name for people; empty for `name`.
        aliases: Other packages that it comes in, or is built on. The import of any of its packages brings its hooks.
        hooks: Module of this folder, imported where it is asked: its ``hooks(recorder)``, if there is one, returns what to
            call after a module has been imported, by the module's name.
        trainers: Its classes that know how long they train -> functions beside the hooks that read it of an object.
        drivers: The same of what only runs models.
        computes: Whether who imports it will probably compute with it, in steps that are seen.
        telling: Names of it that nobody writes who only borrows arrays or a file format of it.
        rank: Which of several series is the job: one of the lowest rank.
        family: Trainings of one family do not run inside each other; empty for those that may.
        counts: By what the FLOPs and bytes of its steps are counted; empty where they are not, and so no GPU time is known.
        gpu_option: What a script sets to train on a GPU.
        on_gpu_by_facts: Whether the facts of a series decide what a GPU does for it, by an `on_gpu` beside the hooks.
        fits: Whether its steps may be whole fits, of which a single one is an answer.
        compiles: Whether what it steps is compiled first, so that its time counts from there on.
        refusals: Regular expression for its own words where it finds no GPU.
        on_torch: Whether it computes with torch.
        spreads: Whether it starts or joins the processes of a training.
    """

    name: str
    label: str = ""
    aliases: Tuple[str, ...] = ()
    hooks: str = ""
    trainers: Mapping[str, str] = field(default_factory=dict, hash=False)
    drivers: Mapping[str, str] = field(default_factory=dict, hash=False)
    computes: bool = False
    telling: FrozenSet[str] = frozenset()
    rank: int = BESIDE_TRAINING
    family: str = ""
    counts: str = ""
    gpu_option: str = ""
    on_gpu_by_facts: bool = False
    fits: bool = False
    compiles: bool = False
    refusals: str = ""
    on_torch: bool = False
    spreads: bool = False

    @property
    def packages(self) -> Tuple[str, ...]:
        """Return the packages whose import is its own."""
        return (self.name, *self.aliases)

    def module(self) -> Any:
        """Return the module of its hooks."""
        return import_module("." + self.hooks, __package__)

    def on_gpu(self, facts: Mapping[str, Any]) -> Tuple[str, str]:
        """Return for a series with these facts its kind in the benchmark table, and what to say of its figure on a GPU.

        The kind is empty where a GPU does nothing for it.
        """
        return self.module().on_gpu(facts) if self.on_gpu_by_facts else self.of_option(facts)

    def of_option(self, facts: Mapping[str, Any]) -> Tuple[str, str]:
        """Return what `on_gpu` does for a framework that a script only has to ask for its GPU."""
        if not self.gpu_option:
            return "", NOTHING
        return self.family, "" if facts.get("asks_gpu") else "on a GPU it takes " + self.gpu_option
