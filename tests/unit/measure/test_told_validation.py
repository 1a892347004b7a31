"""What trainers say of their evaluations and checkpoints, by stand-ins with their attributes.

One file of more than 400 lines: one stand-in for each trainer.
"""

import itertools
import json
import math
from types import SimpleNamespace
from typing import Any

import pytest

from costgpu.measure.probe.frameworks import ignite_totals, keras_hooks, lightning_hooks, transformers_hooks
from costgpu.measure.probe.frameworks.saving_hooks import Saving

ignite: Any = ignite_totals  # for Python 3.8, without types
keras: Any = keras_hooks
lightning: Any = lightning_hooks
saving: Any = Saving
transformers: Any = transformers_hooks


class Data:
    def __init__(self, length: Any, batch_size: Any = 64) -> None:
        self.length, self.batch_size = length, batch_size

    def __len__(self) -> int:
        if isinstance(self.length, Exception):
            raise self.length
        return int(self.length)


class Stream:
    batch_size = 64


def lightning_trainer(*loaders: Any, set_up: Any = True, **other: Any) -> Any:
    """A trainer of 20 epochs of 200 batches, with 2.x' attributes; `set_up`: its evaluations have been prepared."""
    limit = other.get("limit_val_batches", 1.0)
    sizes = [len(one) if hasattr(one, "length") else math.inf for one in loaders] if set_up else []
    source = SimpleNamespace(instance=list(loaders))
    settings = {
        "num_training_batches": 200,
        "val_check_batch": 200,
        "check_val_every_n_epoch": 1,
        "val_check_interval": 1.0,
        "accumulate_grad_batches": 1,
        "limit_val_batches": limit,
        "enable_validation": True,
        "num_val_batches": sizes,
        "val_dataloaders": list(loaders) if set_up else None,
        "fit_loop": SimpleNamespace(epoch_loop=SimpleNamespace(val_loop=SimpleNamespace(_data_source=source))),
        "estimated_stepping_batches": 4000,
        "max_epochs": 20,
        "max_steps": -1,
        "callbacks": [],
        "lightning_module": SimpleNamespace(automatic_optimization=True),
    }
    return SimpleNamespace(**settings | other)


def evaluated(found: Any, steps: float, per_epoch: float) -> tuple[float, float]:
    """Evaluations in all, and their batches, each to a thousandth."""
    amount = steps / per_epoch if found["rhythm"] == "epoch" else steps
    return round(amount / found["every"], 3), found["batches"]


ENDLESS = {"num_training_batches": math.inf, "val_check_batch": 100}


@pytest.mark.parametrize(
    ("settings", "steps", "per_epoch", "rhythm", "evaluations"),
    [
        ({}, 4000, 200, "epoch", 20),
        ({"val_check_batch": 50}, 4000, 200, "steps", 80),
        ({"val_check_batch": 60}, 4000, 200, "steps", 60),  # 0.3 of an epoch: the last of it has none
        ({"check_val_every_n_epoch": 5}, 4000, 200, "epoch", 4),
        ({"check_val_every_n_epoch": 5}, 2400, 200, "epoch", 2),  # 12 epochs
        ({"check_val_every_n_epoch": 2, "val_check_batch": 50}, 4000, 200, "steps", 40),
        ({"check_val_every_n_epoch": None, "val_check_batch": 500}, 4000, 200, "steps", 8),
        ({"check_val_every_n_epoch": None, "val_check_batch": 300}, 1340, 67, "steps", 13),  # 4,000 batches by threes
        ({"val_check_batch": 50, "accumulate_grad_batches": 4}, 1000, 50, "steps", 80),
        ({}, 500, 200, "steps", 2),  # max_steps in the third epoch
        (ENDLESS, 3000, None, "steps", 30),
        (ENDLESS | {"accumulate_grad_batches": 4}, 3000, None, "steps", 120),
    ],
)
def test_when_lightning_validates(settings: Any, steps: float, per_epoch: Any, rhythm: str, evaluations: float) -> None:
    found = lightning.validation_of(lightning_trainer(Data(100), **settings), steps, per_epoch)
    assert found["rhythm"] == rhythm
    assert evaluated(found, steps, per_epoch or 1) == (evaluations, 100)


def test_lightning_validates_by_the_clock_or_after_epochs_without_a_length() -> None:
    found = lightning.validation_of(lightning_trainer(Data(100), _val_check_time_interval=900.0), 4000, 200)
    assert (found["rhythm"], found["every"]) == ("seconds", 900)
    endless = lightning_trainer(Data(100), num_training_batches=math.inf, val_check_batch=math.inf)
    found = lightning.validation_of(endless, 3000, None)
    assert (found["rhythm"], found["every"]) == ("epoch", 1)


@pytest.mark.parametrize(
    ("loaders", "limit", "batches", "size"),
    [
        ([Data(100)], 1.0, 100, 64),
        ([Data(100)], 10, 10, 64),
        ([Data(100)], 0.25, 25, 64),
        ([Data(100), Data(300, 32)], 1.0, 400, 40),
        ([{"a": Data(100), "b": [Data(50)]}], 1.0, 150, 64),
        ([Stream()], 1.0, None, None),
        ([Stream()], 30, 30, 64),
        ([Data(TypeError("no length"))], 1.0, None, None),
        ([Data(100, None)], 1.0, 100, None),
        ([Data(100, "auto")], 1.0, 100, None),
    ],
)
def test_the_batches_of_loaders_that_lightning_has_not_opened(
    loaders: Any, limit: Any, batches: Any, size: Any
) -> None:
    trainer = lightning_trainer(*loaders, set_up=False, limit_val_batches=limit)
    found = lightning.validation_of(trainer, 4000, 200)
    assert (found["batches"], found["batch_size"]) == (batches, size)


def test_lightning_that_validates_nothing() -> None:
    assert lightning.validation_of(lightning_trainer(Data(100), enable_validation=False), 4000, 200) is None
    assert lightning.validation_of(lightning_trainer(Data(0)), 4000, 200) is None
    never = lightning_trainer(Data(100), check_val_every_n_epoch=5)
    assert lightning.validation_of(never, 800, 200) is None, "it ends after four epochs"


class Timer:
    def __init__(self, seconds: Any) -> None:
        self._duration = seconds


def test_lightning_s_clock() -> None:
    limited = lightning.trainer_length(
        lightning_trainer(Data(100), callbacks=[Timer(7200.0), Timer(None), Timer(9000.0)])
    )
    assert (limited["seconds"], limited["may_stop"], limited["total"]) == (7200, ["max_time"], 4000)
    timed = lightning.trainer_length(lightning_trainer(Data(100), callbacks=[Timer(None)]))
    assert (timed["seconds"], timed["may_stop"]) == (None, [])
    endless = lightning_trainer(callbacks=[Timer(60)], max_epochs=-1, estimated_stepping_batches=math.inf)
    assert (lightning.trainer_length(endless)["seconds"], lightning.trainer_length(endless)["total"]) == (60, "inf")


def hugging_face_trainer(data: Any, *, state: Any = None, **other: Any) -> Any:
    """A trainer of 20 epochs of 100 steps, a step being four batches."""
    settings = {
        "eval_strategy": SimpleNamespace(value="steps"),
        "eval_steps": 500,
        "eval_delay": 0,
        "per_device_eval_batch_size": 16,
        "num_train_epochs": 20.0,
        "max_steps": -1,
        "gradient_accumulation_steps": 4,
        "save_strategy": "no",
        "save_steps": 500,
    }
    return SimpleNamespace(
        args=SimpleNamespace(**settings | other),
        state=SimpleNamespace(**{"max_steps": 2000, "num_train_epochs": 20} | (state or {})),
        eval_dataset=data,
        callback_handler=SimpleNamespace(callbacks=[], train_dataloader=Data(398)),
    )


@pytest.mark.parametrize(
    ("settings", "state", "evaluations"),
    [
        ({}, {}, 4),
        ({"eval_steps": 0.1}, {"eval_steps": 200}, 10),
        ({"eval_steps": 0.1}, {}, 10),
        ({"eval_steps": 50, "eval_delay": 1000}, {}, 21),
        ({"eval_steps": 50, "eval_on_start": True}, {}, 41),
        ({"eval_steps": 5000}, {}, 1),  # after the last step
        ({"eval_strategy": "epoch"}, {}, 20),
        ({"eval_strategy": None, "evaluation_strategy": "epoch"}, {}, 20),
        ({"eval_strategy": "epoch", "eval_delay": 5}, {}, 16),
        ({"eval_strategy": "epoch", "max_steps": 60}, {"max_steps": 60}, 1),
        ({"eval_strategy": "epoch", "max_steps": 250}, {"max_steps": 250}, 3),
        ({"eval_strategy": "epoch", "num_train_epochs": 2.5}, {"max_steps": 250, "num_train_epochs": 3}, 3),
    ],
)
def test_when_hugging_face_evaluates(settings: Any, state: Any, evaluations: float) -> None:
    found = transformers.trainer_length(hugging_face_trainer(Data(3200), state=state, **settings))
    assert found["per_epoch"] == 100
    assert evaluated(found["validation"], found["total"], found["per_epoch"]) == (evaluations, 200)


@pytest.mark.parametrize("every", [5000, 600])
def test_the_last_evaluation_of_older_versions(monkeypatch: pytest.MonkeyPatch, every: int) -> None:
    monkeypatch.setitem(transformers.sys.modules, "transformers", SimpleNamespace(__version__="4.44.2"))
    found = transformers.trainer_length(hugging_face_trainer(Data(3200), eval_steps=every))["validation"]
    assert (found and round(2000 / found["every"], 3)) == (3 if every == 600 else None)


@pytest.mark.parametrize(
    ("data", "other", "batches"),
    [
        ({"a": Data(1600), "b": Data(100)}, {}, 107),
        (Data(1610), {"dataloader_drop_last": True}, 100),
        (Data(1600), {"eval_batch_size": 32}, 50),
        (Data(1600), {"predict_with_generate": True}, None),
        (Stream(), {}, None),
        ({"a": Data(1600), "b": Data(RuntimeError())}, {}, None),
        (None, {}, None),
    ],
)
def test_the_batches_of_hugging_face_s_evaluations(data: Any, other: Any, batches: Any) -> None:
    assert transformers.trainer_length(hugging_face_trainer(data, **other))["validation"]["batches"] == batches


@pytest.mark.parametrize(
    ("strategy", "state", "saves"),
    [
        ("steps", {}, {"rhythm": "steps", "every": 500}),
        ("steps", {"save_steps": 70}, {"rhythm": "steps", "every": 70}),  # a share, which it resolves
        ("epoch", {}, {"rhythm": "epoch", "every": 1}),
        ("no", {}, None),
        ("best", {}, None),
    ],
)
def test_when_hugging_face_saves(strategy: str, state: Any, saves: Any) -> None:
    trainer = hugging_face_trainer(Data(3200), state=state, save_strategy=SimpleNamespace(value=strategy))
    assert transformers.trainer_length(trainer)["saves"] == saves


def test_a_stream_of_hugging_face_is_evaluated_at_its_end() -> None:
    trainer = hugging_face_trainer(Data(3200), eval_strategy="epoch", max_steps=700, state={"max_steps": 700})
    trainer.args.save_strategy = "epoch"
    trainer.callback_handler.train_dataloader = Stream()
    found = transformers.trainer_length(trainer)
    assert (found["per_epoch"], found["total"]) == (None, 700)
    assert (found["validation"]["rhythm"], found["validation"]["every"]) == ("steps", 700)
    assert found["saves"] == {"rhythm": "steps", "every": 700}


def test_hugging_face_that_evaluates_nothing() -> None:
    assert transformers.trainer_length(hugging_face_trainer(Data(3200), eval_strategy="no"))["validation"] is None
    assert transformers.trainer_length(hugging_face_trainer(Data(3200), eval_steps=None))["validation"] is None


class DataLoader(Data):
    """By its name."""


VAL, TEST = DataLoader(40, 32), DataLoader(100, 64)


def run(loader: Any) -> None:
    """In the place of an evaluator's."""


def ignite_engine(**handlers: Any) -> Any:
    """An engine of 20 epochs of 50 iterations with handlers by the names of their events."""
    events = {f"Events.{name.upper()}": some for name, some in handlers.items()}
    state = SimpleNamespace(epoch_length=50, max_epochs=20)
    return SimpleNamespace(state=state, _event_handlers=events)


def only_every(every: int, handler: Any) -> Any:
    """As Ignite wraps a handler for some events only."""

    def event_filter(event: int) -> bool:
        return event % every == 0

    def wrapper(event: int) -> None:
        if event_filter(event):
            handler(event)

    wrapper._parent = lambda: handler  # type: ignore[attr-defined]
    return wrapper


class Validator:
    def __init__(self) -> None:
        self.loader = VAL

    def validate(self, engine: Any) -> None:
        run(self.loader)


def validate(engine: Any) -> None:
    run(VAL)


def enclosed() -> Any:
    loader = VAL
    return lambda engine: run(loader)


@pytest.mark.parametrize(
    ("handlers", "evaluations", "batches"),
    [
        ({"epoch_completed": [(validate, (), {})]}, 20, 40),
        ({"epoch_completed": [(enclosed(), (), {})]}, 20, 40),
        ({"epoch_completed": [(Validator().validate, (), {})]}, 20, 40),
        ({"epoch_completed": [(run, (VAL,), {})]}, 20, 40),
        ({"epoch_completed": [(only_every(5, validate), (), {})]}, 4, 40),
        ({"iteration_completed": [(only_every(100, validate), (), {})]}, 10, 40),
        ({"epoch_completed": [(validate, (), {}), (run, (TEST,), {})]}, 20, 140),
        ({"epoch_completed": [(validate, (), {})], "completed": [(run, (TEST,), {})]}, 20, 45),  # the test comes once
        ({"completed": [(run, (TEST,), {})]}, 1, 100),
    ],
)
def test_when_ignite_validates(handlers: Any, evaluations: float, batches: float) -> None:
    found = ignite.engine_length(ignite_engine(**handlers))["validation"]
    assert evaluated(found, 1000, 50) == (evaluations, batches)


def test_ignite_that_validates_nothing() -> None:
    assert (
        ignite.engine_length(ignite_engine(epoch_completed=[(run, (), {})], started=[(run, (VAL,), {})]))["validation"]
        is None
    )


class Array:
    def __init__(self, rows: int) -> None:
        self.shape = (rows, 8)


@pytest.mark.parametrize(
    ("arguments", "evaluations", "batches", "size"),
    [
        ({"validation_data": (Array(640), Array(640))}, 20, 20, 32),
        ({"validation_data": (Array(640), Array(640)), "batch_size": 64}, 20, 10, 64),
        ({"validation_data": (Array(640), Array(640)), "batch_size": 64, "validation_batch_size": 128}, 20, 5, 128),
        ({"validation_data": [{"a": Array(640)}, Array(640)], "validation_steps": 3}, 20, 3, 32),
        ({"validation_data": Data(12, 16)}, 20, 12, 16),
        ({"validation_data": Stream(), "validation_steps": 7}, 20, 7, 64),
        ({"validation_data": Stream()}, 20, None, None),
        ({"validation_data": Data(12, 16), "validation_freq": 5}, 4, 12, 16),
        ({"validation_data": Data(12, 16), "validation_freq": 6, "initial_epoch": 10}, 4, 12, 16),  # 12, 18, 24, 30
        ({"validation_data": Data(12, 16), "validation_freq": [1, 10, 90]}, 2, 12, 16),
    ],
)
@pytest.mark.parametrize("per_epoch", [50, None])
def test_when_keras_validates(arguments: Any, evaluations: float, batches: Any, size: Any, per_epoch: Any) -> None:
    local = {"batch_size": None, "initial_epoch": 0, "validation_freq": 1} | arguments
    found = keras.validation_of(local, per_epoch and 20 * per_epoch, per_epoch, 20)
    assert (found["rhythm"], found["batch_size"]) == ("epoch", size)
    assert evaluated(found, 20, 1) == (evaluations, batches)


def test_keras_that_validates_nothing() -> None:
    assert keras.validation_of({"validation_data": None}, 1000, 50, 20) is None
    never = {"validation_data": Data(12), "validation_freq": [90]}
    assert keras.validation_of(never, 1000, 50, 20) is None


class Liar:
    def __getattr__(self, name: str) -> Any:
        raise RuntimeError(name)


LIES: list[Any] = [None, math.inf, -math.inf, math.nan, 0, -1, "7", "often", True, [], Liar(), 1e300]


@pytest.mark.parametrize(
    "name",
    [
        *("num_training_batches", "val_check_batch", "check_val_every_n_epoch", "limit_val_batches", "num_val_batches"),
        *("val_dataloaders", "accumulate_grad_batches", "estimated_stepping_batches", "callbacks", "fit_loop"),
        *("enable_validation", "max_epochs", "_val_check_time_interval", "checkpoint_callbacks"),
    ],
)
def test_attributes_of_lightning_that_lie(name: str) -> None:
    for lie in LIES:
        is_sane(lightning.trainer_length(lightning_trainer(Data(100), **{name: lie})))


@pytest.mark.parametrize(
    "name",
    [
        *("eval_strategy", "eval_steps", "eval_delay", "per_device_eval_batch_size", "num_train_epochs", "max_steps"),
        *("world_size", "gradient_accumulation_steps", "save_strategy", "save_steps", "eval_batch_size"),
    ],
)
def test_attributes_of_hugging_face_that_lie(name: str) -> None:
    for lie, strategy in itertools.product(LIES, ("steps", "epoch")):
        trainer = hugging_face_trainer(Data(100), **{"eval_strategy": strategy, "save_strategy": "epoch", name: lie})
        is_sane(transformers.trainer_length(trainer))
        is_sane(transformers.trainer_length(hugging_face_trainer(lie, state={"max_steps": lie, "eval_steps": lie})))


@pytest.mark.parametrize("name", ["validation_steps", "validation_freq", "validation_batch_size", "batch_size"])
def test_arguments_of_keras_that_lie(name: str) -> None:
    for lie in LIES:
        local = {"validation_data": (Array(640), Array(640)), name: lie}
        is_sane({"validation": keras.known(keras.validation_of, local, 1000, 50, 20)})


def is_sane(found: Any) -> None:
    """What is told can be written down, and is made of counts above 0."""
    json.dumps(found, allow_nan=False)
    for part in filter(None, (found.get("validation"), found.get("saves"))):
        assert 0 < part["every"] < math.inf
        assert part.get("batches") is None or part["batches"] > 0
    assert found.get("per_epoch") is None or 0 < found["per_epoch"] < math.inf


def model_checkpoint(**facts: Any) -> Any:
    known = {"_every_n_train_steps": 0, "_every_n_epochs": 1, "monitor": None, "save_top_k": 1, "save_last": None}
    return SimpleNamespace(**known | facts)


@pytest.mark.parametrize(
    ("checkpoints", "trainer", "saves"),
    [
        ([], {}, None),
        ([{}], {}, ("epoch", 20)),
        ([{"_every_n_epochs": 5}, {"_every_n_epochs": 2}], {}, ("epoch", 10)),
        ([{}, {"_every_n_train_steps": 100}], {}, ("steps", 40)),
        ([{"monitor": "val_loss"}], {}, None),
        ([{"monitor": "val_loss", "save_last": True}], {}, ("epoch", 20)),
        ([{"save_top_k": 0}], {}, None),
        ([{"_every_n_epochs": 0}], {}, None),
        ([{}], {"val_check_interval": 0.25, "val_check_batch": 50}, ("steps", 80)),
        ([{}], {"check_val_every_n_epoch": 5}, ("epoch", 4)),
        ([{"_every_n_epochs": 2}], {"check_val_every_n_epoch": 5}, ("epoch", 2)),
        ([{"_save_on_train_epoch_end": True}], {"check_val_every_n_epoch": 5}, ("epoch", 20)),
        ([{"_every_n_epochs": 3}], {}, ("epoch", 6)),
        ([{"_every_n_epochs": 3}], {"estimated_stepping_batches": 300}, None),
        ([{}], {"estimated_stepping_batches": 300}, ("steps", 2)),  # the second epoch is cut off, and saved
    ],
)
def test_when_lightning_saves(checkpoints: Any, trainer: Any, saves: Any) -> None:
    callbacks = [model_checkpoint(**each) for each in checkpoints]
    found = lightning.trainer_length(lightning_trainer(Data(100), checkpoint_callbacks=callbacks, **trainer))
    pace = found["saves"]
    assert (pace and (pace["rhythm"], evaluated(pace | {"batches": 0}, found["total"], 200)[0])) == saves


def test_when_keras_saves() -> None:
    each, often = SimpleNamespace(save_freq="epoch"), SimpleNamespace(save_freq=200, save_best_only=False)
    assert keras.saves_of([SimpleNamespace(), each]) == {"rhythm": "epoch", "every": 1}
    assert keras.saves_of([often]) == {"rhythm": "steps", "every": 200}
    assert keras.saves_of([SimpleNamespace(save_freq="epoch", save_best_only=True)]) is None


@pytest.mark.parametrize(("file", "name"), [("lr_finder", "_lr_find"), ("batch_size_scaling", "_scale_batch_size")])
@pytest.mark.parametrize("package", ["lightning.pytorch", "pytorch_lightning"])
def test_steps_of_lightning_s_tuner_are_preparation(package: str, file: str, name: str) -> None:
    told: list[str] = []
    recorder = SimpleNamespace(tuning_begins=lambda: told.append("begins"), tuning_ends=lambda: told.append("ends"))
    module = SimpleNamespace(**{name: lambda trainer: (trainer, list(told))})
    lightning.hooks(recorder)[f"{package}.tuner.{file}"](module)
    assert getattr(module, name)("trainer") == ("trainer", ["begins"])
    assert told == ["begins", "ends"]


def test_what_is_saved_inside_of_another_saving_counts_once() -> None:
    class Trainer:
        def save_all(self) -> str:
            return self.save_part()

        def save_part(self) -> str:
            return "saved"

    seconds: list[float] = []
    timer = saving(SimpleNamespace(saved=seconds.append))
    timer.time(Trainer, "save_all")
    timer.time(Trainer, "save_part")
    assert Trainer().save_all() == "saved"
    assert len(seconds) == 1
    assert not timer.inside
