"""The error tree is part of the interface: its exit codes are unique, documented and never those of a signal."""

import inspect
import re
from pathlib import Path

from costgpu import errors
from costgpu.errors import EXIT_INTERRUPTED, CostGpuError, ScriptError, exit_codes

OURS = [
    error
    for _, error in inspect.getmembers(errors, inspect.isclass)
    if error.__module__ == errors.__name__ and issubclass(error, CostGpuError)
]


def test_every_class_has_an_exit_code_of_its_own() -> None:
    assert all("exit_code" in vars(error) for error in OURS), "an inherited exit code is not the class's own"
    assert len(exit_codes()) == len(OURS) > 15
    assert {error for error, _ in exit_codes().values()} == set(OURS)


def test_exit_codes_are_no_ones_elses() -> None:
    """0 is success, 126 and 127 are the shell's, from 128 on they mean signals; a byte holds no more."""
    assert all(0 < code < 126 for code in exit_codes())
    assert EXIT_INTERRUPTED == 130


def test_all_trouble_with_the_script_is_a_script_error() -> None:
    for code, (error, _) in exit_codes().items():
        assert (20 <= code < 40) == issubclass(error, ScriptError), error.__name__


def test_the_table_of_the_documentation_is_the_tree(root: Path) -> None:
    """Each class says in its first line, word for word, what the documentation says about its exit code."""
    rows = re.findall(r"^\| (\d+) \| (.+) \|$", (root / "docs" / "exit-codes.md").read_text(), re.MULTILINE)
    told = [(int(code), f"{meaning}.".replace("*", "").lower()) for code, meaning in rows]
    known = [(code, meaning.lower()) for code, (_, meaning) in exit_codes().items()]
    assert told[1:-1] == known
    assert (told[0][0], told[-1][0]) == (0, EXIT_INTERRUPTED)


def test_an_error_carries_message_and_hint() -> None:
    for error in OURS:
        raised = error("What happened.", hint="What to do.")
        assert (raised.message, raised.hint, str(raised)) == ("What happened.", "What to do.", "What happened.")
        assert error("Alone.").hint == ""
