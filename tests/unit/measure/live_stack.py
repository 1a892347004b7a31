"""A reader of loops that sees no frames but those of scripts that a test itself runs."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

from costgpu.measure.probe.loops.loop_stack import LoopStack

PLAIN: Any = SimpleNamespace(__file__="/lib/torch/__init__.py", optim=SimpleNamespace())


def stack_of(*paths: Path, torch: Any = PLAIN, libraries: tuple[str, ...] = ("/lib/",)) -> Any:
    """Of the frames whose files are these, or are in these folders."""
    make_stack: Any = LoopStack
    stack, own = make_stack(torch, libraries, {}), tuple(map(str, paths))
    frames = stack.frames
    stack.frames = lambda frame: [live for live in frames(frame) if live.f_code.co_filename.startswith(own)]
    return stack
