"""The door to boto3 and botocore: imported on first use (0.3 s), and untyped from here on."""

from __future__ import annotations

import functools
import importlib
from typing import Any


@functools.cache
def boto3() -> Any:
    """The package."""
    return importlib.import_module("boto3")


@functools.cache
def exceptions() -> Any:
    """``botocore.exceptions``."""
    return importlib.import_module("botocore.exceptions")


@functools.cache
def foreign() -> tuple[type[Exception], ...]:
    """Everything that a call through botocore raises: refusals, failures on the way, answers that make no sense."""
    parsers = importlib.import_module("botocore.parsers")
    return (exceptions().ClientError, exceptions().BotoCoreError, parsers.ResponseParserError)


def config(**settings: Any) -> Any:
    """A ``botocore.config.Config``."""
    return importlib.import_module("botocore.config").Config(**settings)


def code_of(exc: Any) -> str:
    """AWS's own name of an error, such as ``InvalidInstanceID.NotFound``; empty for what is no answer of AWS."""
    response = getattr(exc, "response", None)
    return str(response.get("Error", {}).get("Code", "")) if isinstance(response, dict) else ""
