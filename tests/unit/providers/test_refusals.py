"""What the clouds' refusals become: class, where to try again, and the hint, from a table for each cloud.

A row is the name of the error, the HTTP status (0 where none is told), and the phase: in the answer to a call, in the end
of an operation, or at the launch of a machine that was granted. The texts are our own words for what the clouds
document. What only a name decides has no row: each name in ``error_codes.toml`` becomes the class of its meaning.
"""

import json
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from costgpu import errors
from costgpu.clock import SystemClock
from costgpu.errors import ProviderError, Retry
from costgpu.providers.aws import sdk as aws
from costgpu.providers.gcp import sdk as gcp
from costgpu.retry import retry_provider_call
from tests.unit.providers.test_gcp_translate import URL, answer

Row = dict[str, Any]
DOING = "create a g5.xlarge in us-east-1a"


def table(cloud: str) -> list[Row]:
    """Return the rows of a cloud."""
    rows: list[Row] = json.loads((Path(__file__).parent / f"{cloud}_refusals.json").read_text(encoding="utf-8"))
    return rows


AWS, GCP = table("aws"), table("gcp")


def called(row: Row) -> str:
    """Return what to call a row in the name of a test."""
    return f"{row['phase']}-{row['code']}-{row['status']}-{row['text'][:30]}"


def from_aws(row: Row) -> ProviderError | None:
    """Return the error for a row of AWS's table."""
    if row["phase"] == "launch":
        return aws.refusal_at_launch(row["code"], row["text"], DOING)
    answer = {
        "Error": {"Code": row["code"], "Message": row["text"]},
        "ResponseMetadata": {"HTTPStatusCode": row["status"]},
    }
    return aws.translate(aws.exceptions().ClientError(answer, "RunInstances"), DOING)


def from_gcp(row: Row) -> ProviderError | None:
    """Return the error for a row of Google's table."""
    if row["phase"] == "call":
        raised = answer(row["status"], row["text"], row["code"], info=row.get("info"))
        return gcp.translate(raised, DOING, project="research-42")
    failure: Row = {"http_error_status_code": row["status"], "http_error_message": row["text"]}
    if row["code"]:
        failure["error"] = {"errors": [{"code": row["code"], "message": row["text"]}]}
    over = gcp.compute().Operation({"name": "operation-1", "status": "DONE", "operation_type": "insert", **failure})
    said = gcp.refusal_of(over)
    return gcp.refused(said, DOING, project="research-42") if said else None


def check(row: Row, error: ProviderError | None) -> None:
    if not row["class"]:
        assert error is None
        return
    assert error is not None
    assert (type(error), error.retry) == (getattr(errors, row["class"]), Retry(row["retry"]))
    assert DOING in error.message or type(error) is errors.AuthError
    assert " ".join(str(row.get("says", row["text"])).split()) in error.message
    assert row["hint"] in error.hint
    assert bool(error.hint) or type(error) not in (errors.AuthError, errors.QuotaExceeded)
    if row["phase"] == "launch":
        assert error.message.count(row["code"]) == 1, "AWS's text often begins with the code"


@pytest.mark.parametrize("row", AWS, ids=called)
def test_each_refusal_of_aws(row: Row) -> None:
    check(row, from_aws(row))


@pytest.mark.parametrize("row", GCP, ids=called)
def test_each_refusal_of_google(row: Row) -> None:
    error = from_gcp(row)
    check(row, error)
    assert error is not None
    assert URL not in error.message


MEANINGS: dict[str, type[ProviderError]] = {
    **dict.fromkeys(("expired", "bad_key", "denied", "account"), errors.AuthError),
    **dict.fromkeys(("billing", "disabled", "quota_project", "scope"), errors.AuthError),
    "no_capacity": errors.NoCapacity,
    "refused_here": errors.RefusedHere,
    "quota": errors.QuotaExceeded,
    "throttled": errors.Throttled,
    "uncertain": errors.Unreachable,
    "later": errors.RefusedHere,  # of an operation that is over
    "invalid": errors.InvalidRequest,
}
NO_REFUSALS = {"credentials", "unanswered", "gone", "still_used"}  # of AWS: never an answer, and what is tolerated


@pytest.mark.parametrize(
    ("cloud", "meaning"),
    [(cloud, meaning) for cloud in (aws, gcp) for meaning in sorted(set(cloud.codes()) - NO_REFUSALS)],
)
def test_each_name_becomes_the_class_of_its_meaning(cloud: Any, meaning: str) -> None:
    kind = MEANINGS[meaning]
    for name in cloud.codes()[meaning]:
        row = {"phase": "operation" if cloud is gcp else "call", "code": name, "status": 400, "text": "Something."}
        says = "AWS" if cloud is aws and kind is errors.AuthError else "Something."
        error = from_gcp(row) if cloud is gcp else from_aws(row)
        check({**row, "class": kind.__name__, "retry": kind.retry.value, "hint": "", "says": says}, error)


def test_no_name_has_two_meanings_and_each_hint_has_a_row() -> None:
    for cloud in (aws, gcp):
        names = [name for meaning, names in cloud.codes().items() if meaning not in NO_REFUSALS for name in names]
        assert len(set(names)) == len(names)
    assert set(aws.hints()) <= {row["code"] for row in AWS}


def test_what_botocore_takes_for_throttling_is_throttling_here() -> None:
    standard = import_module("botocore.retries.standard")
    names = set(standard.ThrottledRetryableChecker._THROTTLED_ERROR_CODES)
    assert names
    assert names <= aws.codes()["throttled"]


class Ticking(SystemClock):
    """A clock on which only sleeping takes time."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def monotonic(self) -> float:
        return self.seconds

    def sleep(self, seconds: float) -> None:
        self.seconds += seconds


def below(kind: type[ProviderError]) -> Iterator[type[ProviderError]]:
    """Yield a class and all that are derived from it, in the product."""
    yield kind
    for each in kind.__subclasses__():
        yield from below(each)


@pytest.mark.parametrize("kind", [each for each in below(ProviderError) if each.__module__ == errors.__name__])
def test_only_what_may_be_retried_here_is_asked_again(kind: type[ProviderError]) -> None:
    calls = 0

    def call() -> None:
        nonlocal calls
        calls += 1
        raise kind("No.")

    with pytest.raises(kind):
        retry_provider_call(Ticking(), call, limit_seconds=60.0)
    assert (calls > 1) is (kind.retry is Retry.HERE)
