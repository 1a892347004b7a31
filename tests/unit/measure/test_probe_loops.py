"""What the probe reads of loops: trip counts without running the user's code, and how far live loops have come.

One file of more than 400 lines: most of it is the loops themselves, which are read best beside each other.
"""

import ast
import contextlib
import functools
import gc
import itertools
import math
import sys
import tomllib
import weakref
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from costgpu.measure.probe.loaders import Loaders
from costgpu.measure.probe.loops import script_loops, upcoming_work
from costgpu.measure.probe.loops.clocks import clock_seconds
from costgpu.measure.probe.loops.reach import Reach
from costgpu.measure.probe.loops.safe_eval import Evaluator, Unknown
from costgpu.measure.probe.loops.script_frames import variables_of
from tests.unit.measure.live_stack import stack_of

probe: Any = script_loops  # for Python 3.8, without types
POSITIONS = tomllib.loads(Path(__file__).with_name("positions.toml").read_text())


class Options(dict[str, int]):
    """A common class of settings: an attribute is a key, and one that is not there is an error of another kind."""

    __getattr__ = dict.__getitem__


class Args:
    epochs = 7

    @property
    def dangerous(self) -> int:
        raise AssertionError("a property must not be run")


def explode() -> list[int]:
    raise AssertionError("the user's function must not be called")


def batches(values: list[int], size: int = 4) -> Any:
    count = len(values)
    for start in range(0, count, size):
        yield values[start : start + size]


def minibatches(*columns: list[int], **options: int) -> Any:
    size = options.get("size", 5)
    if len(columns) == 1:
        column = columns[0]
        for start in range(0, len(column), size):
            yield column[start : start + size]
    else:
        for start in range(0, len(columns[0]), size):
            yield [column[start : start + size] for column in columns]


def passed_on(*columns: list[int], **options: int) -> Any:
    yield from minibatches(*columns, **options)


class Dataset:
    """As TensorFlow's say how long they are: -1 without end, -2 unknown."""

    def __init__(self, length: int) -> None:
        self.length = length

    def cardinality(self) -> int:
        return self.length

    def take(self, count: int) -> None:
        raise AssertionError("nothing of the user's is called")


Dataset.__module__ = "tensorflow.python.data.ops"


NAMES: dict[str, Any] = {
    "args": Args(),
    "data": list(range(10)),
    "n": 3,
    "config": {"epochs": 5, "flag": True},
    "options": Options(steps=40),
    "explode": explode,
    "itertools": itertools,
    "endless": itertools.count(),
    "math": math,
    "batches": batches,
    "minibatches": minibatches,
    "bar": type("ProgressBar", (), {"__module__": "progressbar.bar"})(),
    "passed_on": passed_on,
    "ds": Dataset(1000),
    "endless_ds": Dataset(-1),
    "unknown_ds": Dataset(-2),
    "max": explode,
    "folds": type("KFold", (), {"n_splits": 4, "__module__": "sklearn.model_selection"})(),
}


def trips(text: str) -> float:
    return float(Evaluator(NAMES, {}).trips(ast.parse(text, mode="eval").body))


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("range(args.epochs)", 7),
        ("range(2, 10, 3)", 3),
        ("enumerate(data, 1)", 10),
        ("tqdm(enumerate(data), total=4)", 10),
        ("bar(range(n))", 3),
        ("tqdm(explode(), total=4)", 4),
        ("trange(n * 2, desc='epoch')", 6),
        ("zip(data, range(4))", 4),
        ("itertools.islice(endless, 6)", 6),
        ("itertools.islice(data, 2, None, 3)", 3),
        ("itertools.product(data, [1, 2])", 20),
        ("itertools.count()", math.inf),
        ("itertools.cycle(data)", math.inf),
        ("range(config['epochs'])", 5),
        ("range(options['steps'])", 40),
        ("range(math.ceil(len(data) / n))", 4),
        ("data[2:5]", 3),
        ("['train', 'val']", 2),
        ("config.items()", 2),
        ("range(args.epochs if config['flag'] else 0)", 7),
        ("range(10**9)", 10**9),
        ("enumerate(folds.split(data))", 4),
        ("[x + 1 for x in data]", 10),
        ("batches(data)", 3),
        ("batches(data, 2)", 5),
        ("batches(data, size=n)", 4),
        ("minibatches(data, data)", 2),
        ("minibatches(data, data, size=n)", 4),
        ("passed_on(data, data, size=n)", 4),
        ("ds", 1000),
        ("ds.take(30)", 30),
        ("ds.take(-1)", 1000),
        ("ds.shuffle(9).batch(30).prefetch(2)", 34),
        ("ds.batch(30, drop_remainder=True)", 33),
        ("ds.batch(batch_size=n)", 334),
        ("ds.skip(10).take(5000)", 990),
        ("ds.repeat(3)", 3000),
        ("ds.repeat()", math.inf),
        ("endless_ds.batch(2).take(7)", 7),
        ("enumerate(ds.repeat().take(12))", 12),
    ],
)
def test_known_counts(text: str, count: float) -> None:
    assert trips(text) == count


@pytest.mark.parametrize(
    "text",
    [
        "explode()",
        "range(args.dangerous)",
        "range(unknown)",
        "iter(explode())",
        "(x for x in data if x)",
        "set(data)",
        "random.sample(data, 3)",
        "itertools.product(data, repeat=2)",
        "[x for x in data if x]",
        "range(max(data))",
        "minibatches(*[data, data], **{'size': 3})",
        "unknown_ds.take(3)",
        "ds.filter(explode).take(3)",
        "data.take(3)",
        "ds.take(explode())",
    ],
)
def test_unknown_counts_run_nothing(text: str) -> None:
    with pytest.raises(Unknown):
        trips(text)


class Noisy:
    """Anything that runs a method of it other than `__len__` is told."""

    limit = 3

    @functools.cached_property
    def length(self) -> int:
        explode()
        return 4

    @functools.cached_property
    def plain(self) -> int:
        return self.limit * 2

    def __getattr__(self, name: str) -> Any:
        explode()

    def __getattribute__(self, name: str) -> Any:
        if not name.startswith("__"):
            explode()
        return object.__getattribute__(self, name)


class Renamed:
    def __init__(self) -> None:
        self.values = {"steps": 8}

    def __getattr__(self, name: str) -> Any:
        return self.values[name]


class Counts(dict[str, int]):
    """Looking for what is not there changes it."""

    def __missing__(self, key: str) -> int:
        explode()
        return 0

    def __getitem__(self, key: str) -> int:
        explode()
        return 0


@pytest.mark.parametrize("text", ["noisy.length", "noisy.nothing", "counts['none']", "counts.none"])
def test_looking_up_runs_nothing_of_the_user_s(text: str) -> None:
    names: dict[str, Any] = {"noisy": Noisy(), "counts": Counts(some=2)}
    with pytest.raises((Unknown, KeyError)):
        Evaluator(names, {}).value(ast.parse(text, mode="eval").body)
    assert not names["noisy"].__dict__, "a cached property is not cached"
    assert dict(names["counts"]) == {"some": 2}


def test_what_looking_up_would_say_is_read_from_the_source() -> None:
    names: dict[str, Any] = {
        "noisy": Noisy(),
        "renamed": Renamed(),
        "counts": Counts(some=2),
        "options": Options(steps=40),
    }
    for text, value in {
        "noisy.limit": 3,
        "noisy.plain": 6,
        "renamed.steps": 8,
        "counts['some']": 2,
        "options.steps": 40,
    }.items():
        assert Evaluator(names, {}).value(ast.parse(text, mode="eval").body) == value
    assert not names["noisy"].__dict__


LIBRARY = """
class Flags:
    def __getattr__(self, name):
        found = {"epochs": 9}
        return found[name]
"""


def test_settings_of_a_library_are_asked(tmp_path: Path) -> None:
    space: dict[str, Any] = {"__name__": "flags"}
    exec(compile(LIBRARY, str(tmp_path / "site-packages" / "flags.py"), "exec"), space)
    evaluator = Evaluator({"FLAGS": space["Flags"]()}, {})
    assert evaluator.trips(ast.parse("range(FLAGS.epochs)", mode="eval").body) == 9


FILLS = """
def run(model, found, loader, epochs):
    for x in loader:
        found.append(model(x))
    for e in range(30):
        for y in found:
            y.backward()
    for e in range(epochs):
        model.loss.backward()
"""


def test_what_is_still_being_filled_has_no_length_yet() -> None:
    tree = ast.parse(FILLS).body[0]
    assert isinstance(tree, ast.FunctionDef)
    first, second, third = tree.body
    here: Any = upcoming_work
    torch = SimpleNamespace(nn=SimpleNamespace(Module=Model), optim=SimpleNamespace())
    passes = here.BackwardPasses(here.UpcomingWork(torch, None).trainings)

    def reach(passed: list[ast.stmt]) -> Any:
        source: Any = SimpleNamespace(attributes_changed=set, names_shared=set, tree=ast.parse(FILLS))
        return Reach(source, ast.parse(FILLS), Evaluator({"found": [1], "epochs": 5}, {}), passed)

    with pytest.raises(Unknown, match="found changes"):
        passes.of(second, reach([first]))
    assert passes.of(third, reach([first])) == 5
    assert passes.of(second, reach([])) == 30


class Model:
    """Stands for `torch.nn.Module`."""

    def __call__(self, value: Any) -> Any:
        return value


def evaluate(net: Any, values: list[int]) -> list[Any]:
    return [net(value) for value in values]


def report(values: list[int]) -> None:
    for value in values:
        print(value)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("for x in data: model(x)", True),
        ("out = [model(x) for x in data]", True),
        ("print(evaluate(model, data))", True),
        ("model(data)", False),
        ("evaluate(report, data)", False),
        ("report(data)", False),
        ("for x in data: report(x)", False),
        ("nothing(model)", False),
    ],
)
def test_a_later_loop_that_runs_a_model_is_found(text: str, found: bool) -> None:
    here: Any = upcoming_work
    torch = SimpleNamespace(nn=SimpleNamespace(Module=Model), optim=SimpleNamespace())
    reader = here.UpcomingWork(torch, SimpleNamespace(is_library=lambda path: False))
    names = {"model": Model(), "data": [1, 2], "evaluate": evaluate, "report": report}
    tree: Any = ast.parse(text)
    source: Any = SimpleNamespace(attributes_changed=set, names_shared=set)
    reach: Any = Reach(source, tree, Evaluator(names, {}, torch), ())
    assert reader.applies(tree.body[0], reach) is found


class Batches:
    def __init__(self, dataset: Any, count: int) -> None:
        self.dataset, self.count = dataset, count

    def __len__(self) -> int:
        return self.count


def test_batches_of_another_loader_do_not_count() -> None:
    """A validation before the training draws more than the training's first epoch does."""
    loaders: Any = Loaders()
    training, anew, validation = Batches("a", 3), Batches("a", 3), Batches("b", 90)
    for loader in (validation, training, anew):
        iterator = object()
        loaders.by_iterator[id(iterator)] = loader
        for _ in range(len(loader)):
            loaders.draw(iterator, validates=False, libraries=("/",))
        loaders.keep = [*getattr(loaders, "keep", []), iterator]  # so that no other gets its id
    assert loaders.batches_of(training) == 6
    assert loaders.batches_of(validation) == 90
    assert loaders.batches_of(None) == 90


def test_what_an_evaluation_draws_feeds_no_training() -> None:
    """The training's loader gives the first step a batch, or two steps in a row; nobody else's openings are epochs."""
    loaders: Any = Loaders()
    training, validation = Batches("a", 3), Batches("b", 90)
    first, second = object(), object()
    loaders.open(first, validation, 0.0)
    loaders.draw(first, validates=False, libraries=("/",), evaluates=True)
    assert loaders.feeds(True) is None
    assert (loaders.batches, loaders.batches_beside) == (1, 1)
    loaders.draw(first, validates=False, libraries=("/",))  # with gradients, after the first step
    assert not loaders.was_opened(None)
    assert loaders.feeds(False) is None
    loaders.forget()
    loaders.open(second, training, 0.0)
    for _ in range(2):
        loaders.forget()
        loaders.draw(second, validates=False, libraries=("/",))
    assert loaders.feeds(False) is training


@given(st.integers(-50, 50), st.integers(-50, 50), st.integers(1, 9))
def test_ranges_are_python_s(low: int, high: int, step: int) -> None:
    assert trips(f"range({low}, {high}, {step})") == len(range(low, high, step))


# How far live loops have come, at an iteration that is known


@pytest.mark.parametrize("name", POSITIONS)
def test_how_far_loops_have_come(name: str, tmp_path: Path) -> None:
    text, expected = POSITIONS[name]
    script, found = tmp_path / "script.py", list[Any]()
    if "np." in text:
        pytest.importorskip("numpy")
        text = "import numpy as np\n" + text
    script.write_text(text)
    stack = probe.plain_loop_stack(())
    stack.frames = lambda frame: [frame]

    def look() -> None:
        found[:] = [probe.brief(loop) for loop in stack.snapshot(sys._getframe(1))]

    exec(compile(text, str(script), "exec"), {"look": look})
    at = [["?" if loop[key] is None else loop[key] for key in ("trips", "index", "early")] for loop in found]
    assert at == expected


@pytest.mark.parametrize(
    "text",
    [
        "os.listdir(folder)",
        "sorted(glob.glob(folder + '/*.png'))",
        "tqdm(list(Path(folder).glob('*.png')))",
        "(Path(folder).parent / name).iterdir()",
        "[open(f) for f in here.rglob('*.png')]",
        "glob.glob(os.path.join(folder, f'*.{kind}'))",
    ],
)
def test_files_of_a_folder_are_counted(tmp_path: Path, text: str) -> None:
    for number in range(4):
        (tmp_path / f"{number}.png").touch()
    names = {"folder": str(tmp_path), "here": tmp_path, "name": tmp_path.name, "kind": "png"}
    assert Evaluator(names, {}).trips(ast.parse(text, mode="eval").body) == 4


def test_the_first_start_of_workers_is_timed() -> None:
    """Those that stay and those that are none need no time for it."""
    loaders: Any = Loaders()
    kinds = [
        SimpleNamespace(num_workers=n, persistent_workers=stays) for n, stays in ((2, False), (2, True), (0, False))
    ]
    for seconds, loader in itertools.product((0.5, 0.1), kinds):
        iterator = SimpleNamespace(of=loader)
        loaders.open(iterator, loader, seconds)
        for waited in (0.25, 0.0):
            loaders.fetched(iterator, waited)
    assert loaders.starts == {id(kinds[0]): 0.75}


def test_the_loop_of_a_command_line_is_none_of_the_training(tmp_path: Path) -> None:
    """Fire's own `while True` is around everything that the script does, also where only a library's loops are inside."""
    library = tmp_path / "site-packages"
    texts = {
        "fire/core.py": "def run(main):\n    while True:\n        return main()\n",
        "trainer/loops.py": "def fit(step):\n    for epoch in range(3):\n        for batch in range(20): step()\n",
    }
    spaces: dict[str, dict[str, Any]] = {}
    for name, text in texts.items():
        path = library / name
        path.parent.mkdir(parents=True)
        path.write_text(text)
        exec(compile(text, str(path), "exec"), spaces.setdefault(name, {}))
    found: list[Any] = []
    stack = stack_of(library, torch=probe.NO_TORCH, libraries=(str(library),))

    def step() -> None:
        found.append(stack.snapshot(sys._getframe(1)))

    spaces["fire/core.py"]["run"](lambda: spaces["trainer/loops.py"]["fit"](step))
    assert [loop["trips"] for loop in found[0]] == [3, 20]


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


class Large:
    """Stands for a tensor."""


def test_a_look_at_a_frame_keeps_nothing_of_it() -> None:
    """Old values of a loop's variables were memory that a run without us would not hold."""

    def ends() -> Any:
        value = Large()
        for _ in range(3):
            assert stack_of(Path(__file__)).snapshot(sys._getframe())[-1]["trips"] == 3
        return weakref.ref(value)

    def goes_on() -> None:
        value: Any = Large()
        gone, own = weakref.ref(value), locals()
        assert variables_of(sys._getframe())["value"] is value
        assert own["value"] is value, "what the script asked for itself stays"
        del own["value"]
        value = None
        assert gone() is None

    def asked_for_nothing() -> None:
        value: Any = Large()
        gone = weakref.ref(value)
        assert variables_of(sys._getframe())["value"] is value
        value = None
        assert gone() is None

    gc.disable()
    try:
        assert ends()() is None
        goes_on()
        asked_for_nothing()
    finally:
        gc.enable()
