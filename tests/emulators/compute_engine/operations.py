"""Operations: what every change of the Compute Engine API returns, PENDING, then RUNNING, then DONE."""

import json
import secrets
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tests.emulators.compute_engine.project import USER, ProjectState, Row, new_id
from tests.emulators.compute_engine.wire import HOST, invalid, not_found
from tests.emulators.wire import ApiCall

Work = Callable[[], None]
_SCOPES = {"zone": "zones", "region": "regions"}


class OperationFailed(Exception):
    """What was accepted cannot be done."""

    def __init__(self, status: int, words: str, error: Row) -> None:
        super().__init__(error["message"])
        self.status, self.words, self.error = status, words, error


@dataclass(frozen=True, slots=True)
class Scope:
    """Where an operation is: a zone, a region, or everywhere."""

    project: str
    kind: str  # zone, region or global
    place: str = ""  # which; empty for global

    @property
    def path(self) -> str:
        """``projects/p/zones/z``."""
        inside = f"{_SCOPES[self.kind]}/{self.place}" if self.place else "global"
        return f"projects/{self.project}/{inside}"


class Operations:
    """All of a project's, finished ones included."""

    def __init__(self, world: ProjectState) -> None:
        self._world = world
        self.clear()

    def clear(self) -> None:
        self._rows: dict[str, tuple[Scope, Row]] = {}
        self._requests: dict[tuple[str, str], tuple[str, Row]] = {}

    def once(self, call: ApiCall, execute: Callable[[], Row]) -> Row:
        """The operation of a request: the first one's, if a request with this id has come before.

        Raises:
            GoogleError: The id was used for something else, or is none. A refused request does not use it up.
        """
        wanted = str(call.params.get("requestId", ""))
        if not wanted:
            return execute()
        try:
            if uuid.UUID(wanted).int == 0:
                raise ValueError
        except ValueError:
            raise invalid("requestId", wanted, "Must be a valid UUID that is not zero.") from None
        said = json.dumps([call.method, call.path, call.params["body"]], sort_keys=True)
        with self._world.lock:
            before = self._requests.get((call.params["project"], wanted))
            if before is None:
                row = execute()
                row["clientOperationId"] = wanted
                self._requests[call.params["project"], wanted] = (said, row)
                return row
        if before[0] != said:
            raise invalid("requestId", wanted, "The request ID was already used for a different request.")
        return before[1]

    def start(self, scope: Scope, kind: str, target: Row, work: Work) -> Row:
        """Accepts something that `work` does in a while; it may raise `OperationFailed`."""
        row = self._new(scope, kind, target, USER)
        self._world.after("pending_seconds", self._run, row, work, self._world.generation)
        return row

    def note(self, scope: Scope, kind: str, target: Row) -> Row:
        """Something that Google does itself is running; `finish` ends it."""
        row = self._new(scope, kind, target, "system")
        row.update(status="RUNNING", startTime=self._world.stamp())
        return row

    def finish(self, row: Row, failure: OperationFailed | None = None) -> None:
        """It is DONE."""
        with self._world.lock:
            if failure is not None:
                row["error"] = {"errors": [failure.error]}
                row.update(httpErrorStatusCode=failure.status, httpErrorMessage=failure.words)
            row.update(status="DONE", progress=100, endTime=self._world.stamp())

    def _new(self, scope: Scope, kind: str, target: Row, user: str) -> Row:
        name = f"operation-{time.time_ns() // 1_000_000}-{'-'.join(secrets.token_hex(each) for each in (6, 4, 4))}"
        row: Row = {
            "kind": "compute#operation",
            "id": new_id(),
            "name": name,
            "operationType": kind,
            "status": "PENDING",
            "user": user,
            "progress": 0,
            "insertTime": self._world.stamp(),
            "targetLink": target["selfLink"],
            "targetId": target["id"],
            "selfLink": f"{HOST}/{scope.path}/operations/{name}",
        }
        if scope.place:
            row[scope.kind] = f"{HOST}/{scope.path}"
        with self._world.lock:
            self._rows[name] = (scope, row)
        return row

    def _run(self, row: Row, work: Work, generation: int) -> None:
        if generation != self._world.generation:
            return  # of an earlier project
        row.update(status="RUNNING", startTime=self._world.stamp())
        try:
            work()
        except OperationFailed as failure:
            self.finish(row, failure)
        else:
            self.finish(row)

    # -- the API's side ------------------------------------------------------------------------------------------------

    def get(self, scope: Scope, name: str) -> Row:
        found = self._rows.get(name)
        if found is None or found[0] != scope:
            raise not_found(f"{scope.path}/operations/{name}")
        with self._world.lock:
            return dict(found[1])

    def wait(self, scope: Scope, name: str, seconds: float = 120.0) -> Row:
        """One, when it is DONE or two minutes are over."""
        deadline = time.monotonic() + seconds
        while (row := self.get(scope, name))["status"] != "DONE" and time.monotonic() < deadline:
            time.sleep(0.02)
        return row

    def newest(self, scope: Scope) -> list[Row]:
        with self._world.lock:
            return [dict(row) for where, row in reversed(self._rows.values()) if where == scope]

    def all(self) -> list[tuple[Scope, Row]]:
        with self._world.lock:
            return [(scope, dict(row)) for scope, row in self._rows.values()]


def pool_exhausted(project: str, zone: str, kind: str, attachment: str, others: list[str]) -> OperationFailed:
    """No capacity, as users have seen it (github.com/kubernetes/k8s.io/issues/9834, 2026-08)."""
    name, _, count = attachment.partition(":")
    what = f"A {kind} VM instance" + (f" with {count} {name} accelerator(s)" if attachment else "")
    consider = (
        f"Consider trying your request in the {', '.join(others)} zone(s), which currently has capacity to accommodate "
        "your request. "
        if others
        else ""
    )
    words = (
        f"{what} is currently unavailable in the {zone} zone. {consider}Alternatively, you can try your request again with "
        "a different VM hardware configuration or at a later time. For more information, see the troubleshooting "
        "documentation."
    )
    guide = {
        "description": "Troubleshooting documentation",
        "url": "https://cloud.google.com/compute/docs/resource-error",
    }
    facts = {"vmType": kind, "attachment": attachment, "zone": zone, "zonesAvailable": ",".join(others)}
    info = {"reason": "resource_availability", "domain": "compute.googleapis.com", "metadatas": facts}
    localized = {"locale": "en-US", "message": words}
    details = [{"help": {"links": [guide]}}, {"localizedMessage": localized}, {"errorInfo": info}]
    where = (
        f"The zone 'projects/{project}/zones/{zone}' does not have enough resources available to fulfill the request."
    )
    if attachment:
        code, message = "ZONE_RESOURCE_POOL_EXHAUSTED_WITH_DETAILS", f"{where}  '(resource type:compute)'."
    else:
        code, message = "ZONE_RESOURCE_POOL_EXHAUSTED", f"{where}  Try a different zone, or try again later."
    return OperationFailed(503, "SERVICE UNAVAILABLE", {"code": code, "message": message, "errorDetails": details})


def quota_exceeded(metric: str, limit: float, region: str) -> OperationFailed:
    """A quota; `region` is empty for one that holds everywhere."""
    where = f"in region {region}" if region else "globally"
    info: dict[str, Any] = {
        "metricName": f"compute.googleapis.com/{metric.lower()}",
        "limit": limit,
        "limitName": f"{metric.replace('_', '-')}-per-project" + ("-region" if region else ""),
        "dimensions": {"region": region or "global"},
    }
    message = f"Quota '{metric}' exceeded.  Limit: {limit:.1f} {where}."
    return OperationFailed(
        403, "FORBIDDEN", {"code": "QUOTA_EXCEEDED", "message": message, "errorDetails": [{"quotaInfo": info}]}
    )
