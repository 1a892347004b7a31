"""Which part of the data a rank gets: what its loader says, and what the script's source divides by the ranks."""

from __future__ import annotations

import ast
import os
import re
import sys

from ..loops.safe_eval import Evaluator
from ..loops.script_frames import outwards, variables_of
from ..loops.source import Source
from ..loops.syntax import dotted
from ..patching import attribute, known, observe

MOST_LOADERS, MOST_FRAMES = 8, 40
# Names of a number of ranks, as scripts write them.
WORLD = re.compile(
    r"\bworld\b|world_?size|num_(processes|replicas|tasks|workers_total)|nprocs?\b|n_?gpus?|gpus_per_node|device_count|ngpus",
    re.IGNORECASE,
)
BATCH = re.compile(r"batch|accum|micro|\bbs\b|_bs\b|\bbsz\b", re.IGNORECASE)
SEVERAL = re.compile(r"device_count|n_?gpus?\b|num_gpus|multi_?gpu|len\(.*(gpu|device)", re.IGNORECASE)
FIGURE = re.compile(r"loss|metric|correct|\bacc\b|\bgrad\b|time|speed|throughput", re.IGNORECASE)  # to be averaged
COUNT = re.compile(r"len\(|total|sum", re.IGNORECASE)  # of something that is not a batch
RANK = re.compile(r"rank|shard|process_index", re.IGNORECASE)


class DataParts:
    """What the functions that are being run, up to the training step, divide by the number of ranks."""

    def __init__(self, recorder):
        self.recorder = recorder
        self.loaders = 0
        self.read = set()  # code and files that have been read
        self.batch_divided = ""  # place and text of a batch size or an accumulation that is divided
        self.data_divided = ""  # of something else that is: of the data, perhaps

    def attach(self, torch):
        """Read the functions around the making of a DataLoader as it is made."""

        def look(*_, **__):
            if self.loaders < MOST_LOADERS:
                self.loaders += 1
                self.look()

        observe(torch.utils.data.DataLoader, "__init__", look, before=True)

    def look(self, frame=None):
        """Read the functions of the script that are on the stack."""
        for _, live in zip(range(MOST_FRAMES), outwards(frame or sys._getframe(1))):
            code = live.f_code
            if code in self.read or self.recorder.loop_stack.is_library(code.co_filename):
                continue
            self.read.add(code)
            source = Source.of(code.co_filename)
            if source is not None and code.co_filename not in self.read:
                self.read.add(code.co_filename)
                self.look_for_several_gpus(source, os.path.basename(code.co_filename))
            scope = source.scope(code) if source is not None else None
            if scope is not None:
                evaluator = Evaluator(variables_of(live), live.f_globals)
                for node in statements_run(scope.body, evaluator):
                    self.read_node(source, node, os.path.basename(code.co_filename))

    def look_for_several_gpus(self, source, name):
        """Look for a model that is copied to every GPU only if there are several, as there are not here."""
        for node in ast.walk(source.tree):
            if isinstance(node, ast.If) and SEVERAL.search(source.segment(node.test, 200)):
                calls = [one for part in node.body for one in ast.walk(part) if isinstance(one, ast.Call)]
                for call in calls:
                    if dotted(call.func).rpartition(".")[2] == "DataParallel":
                        what, place = "nn.DataParallel on all GPUs", "{}:{}".format(name, call.lineno)
                        self.recorder.schemes.sight("data_parallel", what, place=place)

    def read_node(self, source, node, name):
        place, divided = "{}:{}".format(name, node.lineno) if hasattr(node, "lineno") else name, None
        if isinstance(node, ast.AugAssign):
            divided = (node.op, source.segment(node.target), source.segment(node.value), "")
        elif isinstance(node, ast.BinOp):
            before = source.words(node.lineno, 0, node.lineno, node.col_offset)
            divided = (node.op, source.segment(node.left), source.segment(node.right), before)
        if divided is None:
            if takes_part(source, node):
                self.data_divided = self.data_divided or place
            return
        operator, whole, part, before = divided
        if not isinstance(operator, (ast.Div, ast.FloorDiv)) or not WORLD.search(part) or FIGURE.search(whole):
            return
        is_batch = BATCH.search(whole) or BATCH.search(before)
        if COUNT.search(whole) and not is_batch:
            return
        place = "{} ({})".format(place, source.segment(node))
        if is_batch:
            self.batch_divided = self.batch_divided or place
        else:
            self.data_divided = self.data_divided or place


def takes_part(source, node):
    """Return whether it takes a rank's part of something: ``data[rank::world]``, ``data.shard(...)``."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        return node.func.attr == "shard"
    if not isinstance(node, ast.Subscript) or not isinstance(node.slice, ast.Slice):
        return False
    bounds = [one for one in (node.slice.lower, node.slice.upper, node.slice.step) if one is not None]
    return any(RANK.search(source.segment(one)) or WORLD.search(source.segment(one)) for one in bounds)


def statements_run(body, evaluator):
    """Yield the nodes of a function, but for branches of tests that are known not to be taken."""
    stack = list(body)
    while stack:
        node = stack.pop()
        yield node
        if isinstance(node, (ast.If, ast.IfExp)):
            taken = known(lambda test: bool(evaluator.value(test)), node.test)  # None: either may be taken
            for when, branch in ((True, node.body), (False, node.orelse)):
                if taken is not (not when):
                    stack.extend(branch if isinstance(branch, list) else [branch])
        elif not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)):
            stack.extend(ast.iter_child_nodes(node))


def describe_data(loader):
    """Return what a loader says of its part of the data; None without one."""
    if loader is None:
        return None
    sampler, batches = attribute(loader, "sampler"), attribute(loader, "batch_sampler")
    inner = [loader, sampler, batches, attribute(batches, "sampler"), attribute(batches, "batch_sampler")]
    dataset = attribute(loader, "dataset")
    kinds = [type(one).__name__ for one in [*inner, dataset] if one is not None]
    return {
        "kinds": kinds,
        "split_by_node": attribute(dataset, "_distributed") is not None,
        "samples": known(len, dataset),
        "batches": known(len, loader),
        "batch_size": whole(attribute(loader, "batch_size") or attribute(batches, "batch_size")),
        "split_batches": bool(attribute(batches, "split_batches")),
        "drop_last": bool(attribute(loader, "drop_last") or attribute(batches, "drop_last")),
        "replicas": whole(attribute(sampler, "num_replicas")),
    }


def whole(value):
    return value if isinstance(value, int) and not isinstance(value, bool) else None
