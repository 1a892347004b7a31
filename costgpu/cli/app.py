"""The command line: the only place that turns an error into an exit code."""

from __future__ import annotations

import contextlib
import errno
import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from costgpu.cli.lazy_group import LazyGroup
from costgpu.cli.terminal_reporter import print_error, print_note, say
from costgpu.errors import EXIT_INTERRUPTED, CannotWrite, CostGpuError
from costgpu.render import safe_text
from costgpu.version import __version__

_UNWRITABLE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)
_SHOWN = 200  # characters of a path that is too long

app = typer.Typer(
    name="costgpu",
    cls=LazyGroup,
    help="Should this script run on a CPU or on a GPU, on which machine, and for how much?",
    no_args_is_help=True,
    rich_markup_mode=None,  # half of the start-up time of --help
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 80},
)


def _version(wanted: bool) -> None:
    if wanted:
        say(f"costgpu {__version__}")
        raise typer.Exit


@app.callback()
def _main(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and end.")
    ] = False,
) -> None:
    """Say whether a script should run on a CPU or on a GPU, on which machine, and for how much."""


def main() -> None:
    """Entry point of the `costgpu` command."""
    _open_standard_streams()
    with safe_text.protected():
        _run()


def _open_standard_streams() -> None:
    """Open what the caller has closed: no file that is opened later becomes stdout, neither here nor in a child."""
    for name in ("stdin", "stdout", "stderr"):
        if getattr(sys, name) is None:  # the lowest free descriptor is the one that was closed
            null = os.open(os.devnull, os.O_RDWR)
            os.set_inheritable(null, null <= 2)
            setattr(sys, name, os.fdopen(null, "r" if name == "stdin" else "w", encoding="utf-8"))


def _run() -> None:
    try:
        try:
            app()
        finally:
            if sys.stdout is not None:
                sys.stdout.flush()  # here, where an error of it has words and an exit code
    except CostGpuError as error:
        try:
            print_error(error)
        except OSError:
            _nobody_reads()
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        sys.exit(EXIT_INTERRUPTED)
    except BrokenPipeError:
        sys.exit(_nobody_reads())
    except OSError as error:
        with contextlib.suppress(OSError):
            print_note(*_words(error))
        code = _nobody_reads()
        sys.exit(CannotWrite.exit_code if error.errno in _UNWRITABLE and error.filename is None else code)


def _words(error: OSError) -> tuple[str, str]:
    """Return what the system has refused, and what to do about it."""
    try:
        Path.cwd()
    except FileNotFoundError:
        return "The current folder is not there any more.", "Change to another one, and repeat the command."
    except OSError:
        pass
    where = "the disk or terminal" if error.filename is None else os.fsdecode(str(error.filename))
    if error.errno == errno.ENAMETOOLONG:
        where = f"{where[:_SHOWN]}..."
    return f"{where} cannot be read or written: {error.strerror or error}", ""


def _nobody_reads() -> int:
    """Nobody takes what is said, as after `head`, or on a full disk: the interpreter does not try again when it ends."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError, AttributeError):
            with contextlib.suppress(OSError, ValueError, AttributeError):
                os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
    return CostGpuError.exit_code
