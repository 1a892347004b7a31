"""What is said of a job's exit code and of what it left running."""

import pytest

from costgpu.job.agent.end_words import exit_words, leftover_words

PYTHON, SHELL = ("/usr/bin/python3", "train.py"), ("/bin/bash", "launch.sh")


@pytest.mark.parametrize("code", [1, 127, 128, 129, 137, 159, 160, 255])
def test_a_code_of_a_python_script_is_no_signal(code: int) -> None:
    assert exit_words(code, PYTHON, by_signal=False) == ""


def test_a_signal_is_told() -> None:
    assert exit_words(137, PYTHON, by_signal=True) == "The job was ended by signal 9."
    assert exit_words(128 + 34, SHELL, by_signal=True) == "The job was ended by signal 34."


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (0, ""),
        (127, "Exit code 127, as when a command is not found."),
        (128, ""),
        (137, "Exit code 137, as after signal 9 (SIGKILL)."),
        (139, "Exit code 139, as after signal 11 (SIGSEGV)."),
        (160, ""),
        (255, ""),
    ],
)
def test_a_shell_passes_signals_on_as_codes(code: int, words: str) -> None:
    assert exit_words(code, SHELL, by_signal=False) == words


def test_a_command_whose_interpreter_is_not_there() -> None:
    assert "not found" in exit_words(127, ("./launch.sh",), by_signal=False)
    assert exit_words(137, ("./tool",), by_signal=False) == ""


def test_what_was_left_running_is_counted_and_named() -> None:
    assert leftover_words([], []) == ""
    one = leftover_words(["python train2.py"], [])
    assert one == "1 process that it had started was still running and was ended: python train2.py"
    four = leftover_words([f"python {n}.py" for n in range(4)], [])
    assert four.startswith("4 processes that it had started were still running and were ended: python 0.py; ")
    assert four.endswith("python 2.py; ...")
    assert "3.py" not in four
    same = leftover_words(["worker", "worker"], [])
    assert same == "2 processes that it had started were still running and were ended: worker"


def test_values_of_variables_are_not_told() -> None:
    words = leftover_words(["serve-abcdef abcdefgh/3/train3.py"], ["abcdef", "abcdefgh", "", "3"])
    assert words.endswith("serve-*** ***/***/train3.py")
    long = leftover_words(["x" * 118 + "secret"], ["secret"])  # what is cut off is cut off afterwards
    assert "se" not in long.partition("ended: ")[2]


def test_odd_bytes_and_lines_make_one_line_of_text() -> None:
    assert leftover_words(["a\n\t\udcff.py"], []).endswith(": a ?.py")


@pytest.mark.parametrize(
    ("command", "shown"),
    [
        ("python train2.py --token hf_literal", "python train2.py"),
        ("python -u /a/b/train2.py hf_literal", "python"),
        ("python -m torch.serve --key hf_literal", "python -m torch.serve"),
        ("serve hf_literal", "serve"),
        ("bash -c 'TOKEN=hf_literal run.sh'", "bash"),
        ("curl https://u:hf_literal@host/x.py", "curl"),
        ("", ""),
    ],
)
def test_arguments_of_what_was_left_running_are_not_told(command: str, shown: str) -> None:
    assert leftover_words([command], []).endswith(f"ended: {shown}")
