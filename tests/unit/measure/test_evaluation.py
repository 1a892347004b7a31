"""Where an evaluation amid training ends, by stand-ins for torch and its modules."""

from types import SimpleNamespace
from typing import Any

import pytest

from costgpu.measure.probe import evaluation

probe: Any = evaluation  # for Python 3.8, without types


class Script:
    """Does to a module what a script does, and notes what is traced."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, trains: bool = True) -> None:
        self.now, self.gradients, self.phase = 0.0, True, "forward"
        monkeypatch.setattr(probe, "work_clock", lambda: self.now)
        self.events: dict[str, float] = {}
        self.before: list[float] = []  # seconds of evaluations before the first step
        self.model = SimpleNamespace(training=True)
        recorder = SimpleNamespace(
            trains=trains,
            thread=probe.threading.get_ident(),
            events=self.events,
            add=lambda kind, seconds: self.events.update({kind: self.events.get(kind, 0.0) + seconds}),
            trace_as=lambda phase: setattr(self, "phase", phase),
            module_hooks=SimpleNamespace(attach=lambda: None, compiled=False),
            upcoming_work=SimpleNamespace(note_evaluating=lambda frame: None, note_evaluated=self.before.append),
            torch=SimpleNamespace(is_grad_enabled=lambda: self.gradients),
        )
        self.evaluation = probe.Evaluation(recorder)

    def do(self, *actions: str) -> Any:
        """Each takes a second; returns the seconds of evaluations, None for none."""
        for action in actions:
            if action in ("eval", "train"):
                self.model.training = action == "train"
                self.evaluation.mode_changed(self.model, self.model.training)
            elif action in ("set", "unset"):
                self.model.training = action == "set"
            elif action in ("blind", "sighted"):
                self.gradients = action == "sighted"
            elif action == "step":
                self.evaluation.look()
                self.evaluation.step_made()
                self.evaluation.forget()
            else:
                self.evaluation.look()
            self.now += 1
        return self.events.get("validation")


@pytest.mark.parametrize(
    ("actions", "seconds"),
    [
        ("eval blind batch call batch call sighted train batch call step", 7),
        ("eval batch call batch call train batch call step", 5),
        ("eval blind batch call sighted set batch call step", 6),  # Lightning
        ("eval batch call set call step", 4),
        ("eval blind batch call sighted batch call step", 5),  # it stays in eval mode
        ("eval blind batch sighted call blind batch call sighted batch call step", 9),  # and looks at gradients
        ("eval blind batch sighted call train batch call step", 5),
        ("eval train call step", None),  # loaded by `from_pretrained`
        ("eval call step", None),  # trained in eval mode
        ("train eval batch call step eval batch call step", None),  # a frozen part
        ("unset blind batch call sighted set batch call step", None),  # by its batches, in another place
        ("eval blind call sighted step", 4),
    ],
)
def test_an_evaluation_ends_where_training_goes_on(
    monkeypatch: pytest.MonkeyPatch, actions: str, seconds: float | None
) -> None:
    script = Script(monkeypatch)
    assert script.do(*actions.split()) == seconds
    assert script.evaluation.began is None
    assert script.phase == "forward" or seconds is None


def test_before_the_training_it_begins_with_its_first_call(monkeypatch: pytest.MonkeyPatch) -> None:
    """The model was put into eval mode when it was loaded, and then the data were read."""
    script = Script(monkeypatch, trains=False)
    script.do("eval")
    script.now += 60
    assert script.do("blind", "call", "sighted", "train") == 2
    assert script.before == [2]


def test_what_is_saved_amid_an_evaluation_is_none_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    script = Script(monkeypatch)
    script.do("eval", "blind", "batch")
    script.events["save"] = 1.5
    assert script.do("sighted", "train") == 2.5


def test_ops_of_an_evaluation_are_traced_as_such(monkeypatch: pytest.MonkeyPatch) -> None:
    script = Script(monkeypatch)
    for action, phase in [("eval", "validation"), ("blind", "validation"), ("call", "validation")]:
        script.do(action)
        assert script.phase == phase
    script.do("sighted", "batch")
    assert script.phase == "forward"
    script.do("blind", "call")
    assert script.phase == "validation"
