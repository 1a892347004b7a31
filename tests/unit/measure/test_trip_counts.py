"""How often loops over splitters, iterators and parts of data run, against loops that really do."""

import ast
import contextlib
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest

from costgpu.measure.probe.loops.clocks import clock_seconds
from costgpu.measure.probe.loops.safe_eval import Evaluator, Unknown
from costgpu.models.workload import TotalKind
from tests.unit.measure.test_loop_ends import found

LOADERS = """
import itertools, sys
class Loader:
    def __init__(self, length): self.length = length
    def __len__(self): return self.length
    def __iter__(self): return iter(range(self.length))
loader, other, N, size = Loader(7), Loader(4), 24, 5
class Bar:
    def __init__(self, iterable, total=None): self.iterable, self.total = iterable, total
    def __iter__(self):
        for item in self.iterable:
            yield item
class Endless:
    def __init__(self, loader):
        self.loader = loader
    def __iter__(self):
        while True:
            yield from self.loader
class Twice:
    def __init__(self, loader):
        self.loader = loader
    def __iter__(self):
        for lap in range(2):
            for item in self.loader: yield item
class Sized:
    def __init__(self, loader, size):
        self.loader, self.size = loader, size
    def __len__(self): return len(self.loader) // self.size
    def __iter__(self):
        for i in range(len(self)): yield i
class Folds:
    def __init__(self, n): self.n = n
    def split(self, items, labels=None):
        for i in range(self.n):
            yield items[:i], items[i:]
def forever(loader):
    while True:
        yield from loader
def restarted(loader):
    it = iter(loader)
    while True:
        try: item = next(it)
        except StopIteration:
            it = iter(loader)
            item = next(it)
        yield item
def once(loader):
    for item in loader:
        yield item
def chunk(items, size):
    for i in range(0, len(items), size):
        yield items[i : i + size]
def odd(loader):
    for i, item in enumerate(loader):
        if i == 3: return
        yield item
class Raises:
    def __len__(self): raise RuntimeError
    def __getattr__(self, name): raise RuntimeError
    def __iter__(self): return iter([1, 2, 3])
def train(step, _, state):
    for epoch in range(3):
        MADE
        for item in HEAD:
            step(0)
"""
EXACT = [
    "zip(range(1, 13), forever(loader))",
    "zip(range(N), Endless(loader))",
    "enumerate(zip(range(N), forever(loader)), start=1)",
    "zip(itertools.count(), loader)",
    "zip(loader, itertools.cycle(other))",
    "zip(once(loader), range(100))",
    "itertools.zip_longest(loader, other)",
    "map(str, loader)",
    "itertools.islice(restarted(loader), 9)",
    "Twice(loader)",
    "enumerate(Sized(loader, 2))",
    "Bar(enumerate(loader))",
    "Folds(6).split(range(9))",
    "chunk(list(range(N)), size)",
    "(i for i in loader)",
    "'a,b,c'.split(',')",
    "d = restarted(loader)|zip(range(12), d)",
    "d = Endless(loader)|zip(range(12), d)",
    "d = zip(range(12), forever(loader))|d",
    "d = itertools.islice(loader, 4)|d",
    "d = itertools.chain(loader, other)|enumerate(d)",
    "d = iter(range(6))|d",
    "d = iter([1, 2, 3])|d",
    "d = enumerate(range(6))|d",
    "d = Bar(enumerate([1, 2, 3]))|d",
    "d = Bar(once(loader))|d",
    "d = Bar(enumerate(once(loader)), total=7)|d",
    "d = enumerate(Bar(range(5)))|d",
    "d = Bar(zip(range(5), itertools.cycle(other)))|d",
    "d = map(str, (1, 2, 3))|enumerate(d)",
    "d = (i for i in loader)|d",
]


def total_of(case: str, folder: Path, names: dict[str, Any] | None = None, setup: str = "") -> tuple[int, Any]:
    made, _, head = case.rpartition("|")
    text = LOADERS.replace("MADE", made or "pass").replace("HEAD", head)
    return found(setup + text, folder, names or {}, 7, 0.5)


@pytest.mark.parametrize("case", EXACT)
def test_what_an_iterator_goes_through_is_counted(case: str, tmp_path: Path) -> None:
    steps, total = total_of(case, tmp_path)
    assert (total.kind, total.steps) == (TotalKind.EXACT, steps), total


@pytest.mark.parametrize(
    "case",
    [
        "zip(range(5), odd(loader))",
        "zip(loader, Raises())",
        "itertools.islice(odd(loader), 9)",
        "d = odd(loader)|zip(range(5), d)",
        "d = zip(range(5), odd(loader))|d",
    ],
)
def test_what_may_be_shorter_is_an_upper_bound(case: str, tmp_path: Path) -> None:
    steps, total = total_of(case, tmp_path)
    assert total.kind is TotalKind.UPPER_BOUND
    assert total.steps >= steps
    assert "may end first" in total.how


SPLITTERS = """
import numpy as np
from sklearn.model_selection import GroupKFold, KFold, LeaveOneGroupOut, LeaveOneOut, LeavePGroupsOut, LeavePOut
from sklearn.model_selection import PredefinedSplit, RepeatedKFold, RepeatedStratifiedKFold, ShuffleSplit, check_cv
from sklearn.model_selection import StratifiedGroupKFold, StratifiedKFold, StratifiedShuffleSplit, TimeSeriesSplit
x, y, g = np.zeros((40, 3)), np.array([0, 1] * 20), np.array([0, 1, 2, 3] * 10)
class Purged(KFold):
    def __init__(self, n_splits=5, gap=1): super().__init__(n_splits)
"""


@pytest.mark.parametrize(
    "case",
    [
        "enumerate(KFold(5, shuffle=True, random_state=0).split(x))",
        "list(KFold(n_splits=N // 6).split(x))",
        "StratifiedKFold().split(x, y)",
        "GroupKFold(4).split(x, y, g)",
        "TimeSeriesSplit(n_splits=3).split(x)",
        "ShuffleSplit().split(x)",
        "StratifiedShuffleSplit(test_size=0.3).split(x, y)",
        "StratifiedGroupKFold(n_splits=2).split(x, y, groups=g)",
        "RepeatedKFold(n_splits=2).split(x)",
        "RepeatedStratifiedKFold(n_splits=3, n_repeats=2).split(x, y)",
        "LeaveOneOut().split(x[:9])",
        "LeavePOut(2).split(x[:6])",
        "LeaveOneGroupOut().split(x, y, g)",
        "LeavePGroupsOut(2).split(x, groups=g)",
        "PredefinedSplit(g).split()",
        "check_cv(4).split(x)",
        "check_cv(cv=KFold(3)).split(x)",
        "Purged().split(x)",
        "kf = RepeatedKFold(n_splits=2, n_repeats=3)|kf.split(x)",
        "kf = LeaveOneOut()|enumerate(kf.split(x[:9]))",
        "kf = check_cv(3, y, classifier=True)|zip(range(9), kf.split(x, y))",
        "folds = RepeatedStratifiedKFold(n_splits=2).split(x, y)|folds",
        "folds = enumerate(LeaveOneGroupOut().split(x, y, g))|folds",
        "folds = list(KFold().split(x))|folds",
    ],
)
def test_folds_of_splitters(case: str, tmp_path: Path) -> None:
    pytest.importorskip("sklearn", exc_type=ImportError)
    steps, total = total_of(case, tmp_path, setup=SPLITTERS)
    assert (total.kind, total.steps) == (TotalKind.EXACT, steps), total


PARTS = """
import numpy as np, torch
from torch.utils.data import BatchSampler, DataLoader, RandomSampler, SequentialSampler
from torch.utils.data import Subset, SubsetRandomSampler, TensorDataset
x, a = torch.zeros(24, 3), np.zeros((24, 2))
"""


@pytest.mark.parametrize(
    "case",
    [
        "torch.randperm(N).chunk(8)",
        "x.chunk(7)",
        "torch.chunk(x, 7)",
        "x.chunk(2, dim=1)",
        "x.unbind(1)",
        "torch.unbind(x)",
        "x.split(5)",
        "x.split([4, 20])",
        "torch.split(x, 5)",
        "x.tensor_split(7)",
        "torch.randperm(x.shape[0]).to('cpu').split(size)",
        "x[torch.randperm(N)[:12]].split(size)",
        "np.array_split(np.random.permutation(N), size)",
        "np.split(a, [3, 5])",
        "np.random.permutation(N).reshape(-1, 6)",
        "torch.arange(N).view(-1, 4)",
        "BatchSampler(SubsetRandomSampler(range(N)), size, False)",
        "BatchSampler(SequentialSampler(range(N)), batch_size=size, drop_last=True)",
        "BatchSampler(RandomSampler(x), 4, True)",
        "DataLoader(Subset(TensorDataset(x), range(9)), 4, drop_last=True)",
        "enumerate(DataLoader(TensorDataset(x)))",
        "it = iter(DataLoader(x, 5))|it",
        "pairs = enumerate(DataLoader(x, 5))|pairs",
    ],
)
def test_parts_of_data(case: str, tmp_path: Path) -> None:
    pytest.importorskip("torch", exc_type=ImportError)
    steps, total = total_of(case, tmp_path, setup=PARTS)
    assert (total.kind, total.steps) == (TotalKind.EXACT, steps), total


@pytest.mark.parametrize(
    "case",
    [
        "d = enumerate(loader)|tqdm(d)",
        "d = tqdm(enumerate(loader))|d",
        "d = enumerate(tqdm(loader))|d",
        "d = tqdm(enumerate(tqdm(loader), start=1), disable=True)|d",
        "d = tqdm(zip(loader, itertools.cycle(other)))|d",
    ],
)
def test_progress_bars_around_iterators(case: str, tmp_path: Path) -> None:
    pytest.importorskip("tqdm", exc_type=ImportError)
    steps, total = total_of(case, tmp_path, setup="from tqdm import tqdm\n")
    assert (total.kind, total.steps) == (TotalKind.EXACT, steps), total


class Touchy:
    """Tells of everything that is asked of it, but for its length."""

    asked: ClassVar[list[str]] = []

    def __getattr__(self, name: str) -> Any:
        self.asked.append(name)
        raise RuntimeError(name)

    def __hash__(self) -> int:
        self.asked.append("hash")
        return 1

    def __eq__(self, other: object) -> bool:
        self.asked.append("eq")
        return False

    def __call__(self, *given: Any) -> Any:
        self.asked.append("call")
        return [1, 2]

    def __iter__(self) -> Any:
        self.asked.append("iter")
        return iter([1])


@pytest.mark.parametrize(
    "text",
    ["it", "it(data)", "it.split(data)", "zip(it, it(1))", "it.chunk(3)", "data[it]", "it.x.split(2)", "tqdm(it)"],
)
def test_nothing_is_asked_of_objects_of_the_script(text: str) -> None:
    Touchy.asked.clear()
    names: dict[str, Any] = {"it": Touchy(), "data": [1, 2, 3]}
    evaluator: Any = Evaluator
    with pytest.raises((Unknown, TypeError)):
        evaluator(names, {}).trips(ast.parse(text, mode="eval").body)
    for test in ("it() - 5 > 3", "it > 3", "it.elapsed() > it", "it.over"):
        place = SimpleNamespace(evaluator=evaluator(names, {}), loops=list, repeated=False)
        loop = ast.parse("while True: it()").body[0]
        seconds: Any = clock_seconds
        with contextlib.suppress(Unknown):
            assert seconds(ast.parse(test, mode="eval").body, True, loop, place) is None
    assert not Touchy.asked
