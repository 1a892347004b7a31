"""Words of other tools are answered with costgpu's own: one table, every word of which is true."""

import pytest

from costgpu.cli.lazy_group import COMMANDS
from costgpu.cli.peer_words import peer_words
from tests.cli.here import told
from tests.unit.house.test_words_are_real import commands, unreal

WORDS = {**peer_words("commands"), **peer_words("options")}
ISSUE = {
    "commands": "launch status ssh stop down ps autostop cost-report exec check show-gpus apply volume fleet gpus",
    "options": "--down --max-price --image-id -r -i --idle-minutes-to-autostop --gpus-per-node --num-nodes"
    " --cloud --zone --use-spot --cpus --memory --secret",
}


@pytest.mark.parametrize("words", WORDS)
def test_every_sentence_names_what_there_is(words: str) -> None:
    assert unreal(WORDS[words].removeprefix("In costgpu ")) == []
    assert WORDS[words].startswith("In costgpu ")


@pytest.mark.parametrize("kind", ISSUE)
def test_what_people_type_is_there(kind: str) -> None:
    assert set(ISSUE[kind].split()) <= set(peer_words(kind))


def test_no_word_is_one_that_is_understood() -> None:
    """A command of costgpu's own is called; an option that every command has is never answered."""
    assert not set(peer_words("commands")) & set(COMMANDS)
    everywhere = [name for name in peer_words("options") if all(name in options for options in commands().values())]
    assert everywhere == []


@pytest.mark.parametrize(
    ("line", "message", "hint"),
    [
        ("launch task.yaml", "There is no command launch.", "In costgpu this is costgpu run train.py"),
        ("jobs launch task.yaml", "There is no command jobs launch.", "In costgpu this is costgpu run train.py"),
        ("status", "There is no command status.", "In costgpu this is costgpu jobs"),
        ("down mine --yes", "There is no command down.", "In costgpu this is costgpu cancel RUN"),
        ("run --down train.py", "No such option: --down", "the machine ends with its job"),
        ("run --gpus L4 -i 10 train.py", "No such option: -i", "--idle-duration 10m"),
        ("run --max-price 2 train.py", "No such option: --max-price", "costgpu run --max-cost 5"),
        ("run -r train.py", "No such option: -r", "costgpu run --retry-until-up"),
        ("estimate --image-id x train.py", "No such option: --image-id", "docs/settings.md"),
        ("jobs --down", "No such option: --down", "the machine ends with its job"),
        ("--down", "No such option: --down", "the machine ends with its job"),
        (
            "offers --max-price",
            "Option '--max-price' requires an argument",
            "costgpu offers --max-price 2 is for an hour",
        ),
        ("budget show --down", "No such option: --down", "the machine ends with its job"),
    ],
)
def test_an_answer(line: str, message: str, hint: str) -> None:
    code, out, err = told(*line.split())
    assert (code, out) == (2, "")
    said = " ".join(err.split())
    assert f"costgpu: {message}" in said
    assert f"hint: {hint}" in said or f"{hint}" in said.partition("hint: ")[2]


@pytest.mark.parametrize("line", ["nonsense", "run --nonsense train.py", "jobs nonsense"])
def test_other_words_are_answered_as_before(line: str) -> None:
    code, _, err = told(*line.split())
    assert code == 2
    assert "In costgpu" not in err
