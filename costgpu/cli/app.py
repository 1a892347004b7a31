"""The command line: the only place that turns an error into an exit code."""

from __future__ import annotations

import contextlib
import errno
import os
import sys
from typing import Annotated

import typer

from costgpu.cli.lazy_group import LazyGroup
from costgpu.errors import EXIT_INTERRUPTED, CostGpuError
from costgpu.version import __version__

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
        typer.echo(f"costgpu {__version__}")
        raise typer.Exit


@app.callback()
def _main(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and end.")
    ] = False,
) -> None:
    """Should this script run on a CPU or on a GPU, on which machine, and for how much?"""


def main() -> None:
    """Entry point of the `costgpu` command."""
    try:
        app()
    except CostGpuError as error:
        typer.echo(f"costgpu: {error.message}", err=True)
        if error.hint:
            typer.echo(f"hint: {error.hint}", err=True)
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        sys.exit(EXIT_INTERRUPTED)
    except BrokenPipeError:
        sys.exit(_nobody_reads())
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EIO):
            raise
        typer.echo(f"costgpu: the disk or terminal cannot be written: {error.strerror}", err=True)
        sys.exit(_nobody_reads())


def _nobody_reads() -> int:
    """The reader of stdout has gone, as `head` does: the interpreter is not to try again when it ends."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return CostGpuError.exit_code
