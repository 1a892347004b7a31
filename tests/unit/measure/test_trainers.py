"""What trainers say of their own length, and who may end them."""

import sys
from types import FunctionType, SimpleNamespace
from typing import Any

import pytest

from costgpu.measure.probe.frameworks import ignite_totals, stable_baselines3_totals, tianshou_totals, trainers
from costgpu.measure.probe.record import TrainerLength
from costgpu.measure.profile.profile_builder import told_total
from costgpu.models.workload import TotalKind

probe: Any = trainers  # for Python 3.8, without types
ignite: Any = ignite_totals
stable_baselines3: Any = stable_baselines3_totals
tianshou: Any = tianshou_totals


def ppo(**other: Any) -> Any:
    settings = {"n_steps": 2048, "n_envs": 1, "n_epochs": 10, "batch_size": 64, "_total_timesteps": 100_000}
    return SimpleNamespace(**settings | other)


@pytest.mark.parametrize(
    ("model", "steps"),
    [
        (ppo(), 49 * 10 * 32),
        (ppo(n_envs=4, batch_size=100), 13 * 10 * 82),
        (ppo(n_epochs=1, batch_size=None), 49),  # A2C
        (ppo(_num_timesteps_at_start=50_000), 25 * 320),
    ],
)
def test_rollouts_are_read_so_many_times(model: Any, steps: int) -> None:
    told = stable_baselines3.on_policy_length(model)
    assert (told["total"], told["acts"]) == (steps, True)


@pytest.mark.parametrize(("gradient_steps", "steps"), [(2, 1450), (-1, 725 * 4), (0, 0)])
def test_steps_after_every_few_moves(gradient_steps: int, steps: int) -> None:
    model = SimpleNamespace(train_freq=(4, "step"), n_envs=1, learning_starts=100, _total_timesteps=3000)
    model.gradient_steps = gradient_steps
    assert stable_baselines3.off_policy_length(model)["total"] == steps
    model.train_freq = (1, "TrainFrequencyUnit.EPISODE")
    assert stable_baselines3.off_policy_length(model) is None


@pytest.mark.parametrize(("per_sample", "collected", "each"), [(0.1, 10, 1000), (1.0, 12, 834 * 12), (0.1, None, None)])
def test_steps_for_every_sample(per_sample: float, collected: int | None, each: float | None) -> None:
    params = SimpleNamespace(
        max_epochs=10, epoch_num_steps=10_000, stop_fn=lambda mean: mean > 200, test_collector=object()
    )
    params.update_step_num_gradient_steps_per_sample = per_sample
    params.collection_step_num_env_steps = collected
    told = tianshou.trainer_length(SimpleNamespace(params=params))
    if each is None:
        assert told is None
        return
    assert (told["total"], told["per_epoch"], told["may_stop"]) == (10 * each, each, ["stop_fn"])
    assert (told["validation"]["rhythm"], told["validation"]["every"]) == ("epoch", 1.0)


class EarlyStopping:
    """By its name."""


class Ends:
    def on_step_end(self, control: Any) -> None:
        control.should_training_stop = True


class Logs:
    def on_step_end(self, control: Any) -> None:
        control.should_log = True


def test_what_may_stop_a_training() -> None:
    assert probe.stoppers([EarlyStopping(), Ends(), Logs(), None]) == ["EarlyStopping", "Ends"]
    code = Ends.on_step_end.__code__.replace(co_filename="/lib/site-packages/transformers/trainer_callback.py")
    flow = type("DefaultFlowCallback", (), {"on_step_end": FunctionType(code, {})})
    assert probe.stoppers([flow()]) == [], "a library's own keeps to the limits that the trainer tells"


def ends(engine: Any) -> None:
    engine.terminate()


def test_what_may_stop_an_engine_of_ignite(monkeypatch: pytest.MonkeyPatch) -> None:
    hanging = EarlyStopping()
    engine: Any = SimpleNamespace(
        state=SimpleNamespace(epoch_length=50, max_epochs=3),
        _event_handlers={"started": [(Logs().on_step_end, (), {})], "completed": [(ends, (), {})]},
    )
    assert ignite.engine_length(engine)["may_stop"] == ["ends"]
    monkeypatch.setitem(sys.modules, "ignite.handlers.early_stopping", SimpleNamespace(EarlyStopping=EarlyStopping))
    hanging.trainer = engine  # type: ignore[attr-defined]
    assert ignite.engine_length(engine)["may_stop"] == ["EarlyStopping", "ends"], (
        "on the evaluator, of which nothing is known"
    )
    hanging.trainer = None  # type: ignore[attr-defined]
    assert (ignite.engine_length(engine)["may_stop"], ignite.engine_length(engine)["total"]) == (["ends"], 150)


@pytest.mark.parametrize(
    ("total", "kind"),
    [
        ("inf", TotalKind.UNBOUNDED),
        (1e10, TotalKind.UNBOUNDED),
        (float(sys.maxsize), TotalKind.UNBOUNDED),
        (700.0, TotalKind.EXACT),
    ],
)
def test_a_limit_that_is_never_reached_is_no_total(total: Any, kind: TotalKind) -> None:
    told = TrainerLength(trainer="Trainer", total=total, per_epoch=1e10, may_stop=[], how="max_steps")
    found = told_total(told, 10)
    assert (found.kind, found.steps_per_epoch) == (kind, None)


@pytest.mark.parametrize(
    ("total", "kind", "steps", "words"),
    [
        ("inf", TotalKind.TIMED, None, "max_steps; max_time=2.0 h ends it"),
        (None, TotalKind.TIMED, None, "max_steps; max_time=2.0 h ends it"),
        (float(sys.maxsize), TotalKind.TIMED, None, "max_steps; max_time=2.0 h ends it"),
        (700.0, TotalKind.UPPER_BOUND, 700, "max_steps; max_time=2.0 h may stop it earlier"),
    ],
)
def test_a_trainer_with_a_clock(total: Any, kind: TotalKind, steps: Any, words: str) -> None:
    stops = ["max_time", "EarlyStopping"]
    told = TrainerLength(trainer="Trainer", total=total, per_epoch=100, may_stop=stops, how="max_steps", seconds=7200.0)
    found = told_total(told, 10)
    assert (found.kind, found.steps, found.seconds, found.steps_per_epoch) == (kind, steps, 7200, 100)
    assert found.how == f"Trainer: {words}"


class TimeLimit:
    limit_sec = 600


def test_the_clock_of_an_engine_of_ignite() -> None:
    handlers: Any = {"completed": [(TimeLimit(), (), {})]}
    engine = SimpleNamespace(state=SimpleNamespace(epoch_length=50, max_epochs=3), _event_handlers=handlers)
    assert (ignite.engine_length(engine)["seconds"], ignite.engine_length(engine)["may_stop"]) == (600, ["TimeLimit"])
    limit, some = TimeLimit(), lambda engine: None
    some._parent = lambda: limit  # type: ignore[attr-defined]
    handlers["completed"] = [(some, (), {})]
    assert ignite.engine_length(engine)["seconds"] == 600, "asked after some events only"
