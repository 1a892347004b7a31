"""Credentials, the project, and clients: one of each kind, made on first use, used from several threads."""

from __future__ import annotations

import contextlib
import os
import re
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from typing import Any, TypeVar

import tenacity

from costgpu.clock import Clock
from costgpu.errors import AuthError, ProviderError, Unreachable
from costgpu.models.instance import Identity
from costgpu.providers.common import another_address, date_in, unknown_region
from costgpu.providers.gcp import sdk
from costgpu.providers.gcp.sdk import refusal_of, refused, translate

T = TypeVar("T")
ENDPOINT = "COSTGPU_GCP_ENDPOINT"
"""Another address of Compute Engine, such as that of a private endpoint. Google's Python client has no variable for it."""
SCOPES = ("https://www.googleapis.com/auth/cloud-platform",)
SECONDS = 20.0  # for one answer; the client's own default is ten minutes
READ_TRIES, READ_WAIT = 3, 0.3
POLL_FIRST, POLL_MOST = 0.2, 2.0


class Clients:
    """Clients of one project.

    Args:
        project: Whose machines; None for the project of the credentials, or of gcloud.
    """

    def __init__(self, clock: Clock, project: str | None = None, credentials: Any | None = None) -> None:
        self.clock = clock
        self._asked = project
        self._credentials = credentials
        self._project = ""
        self._lock = threading.RLock()
        self._clients: dict[str, Any] = {}
        self._regions: frozenset[str] = frozenset()
        self._date = ""

    @property
    def project(self) -> str:
        """Its id.

        Raises:
            AuthError: There are no credentials, or nothing says which project is meant.
        """
        with self._lock:
            if not self._project:
                self._sign_in()
            return self._project

    def client(self, kind: str) -> Any:
        """Return a client such as ``Instances`` or ``ZoneOperations``."""
        with self._lock:
            if kind not in self._clients:
                self._sign_in()
                options = {"api_endpoint": endpoint()} if endpoint() else None
                self._clients[kind] = getattr(sdk.compute(), f"{kind}Client")(
                    credentials=self._credentials, client_options=options, transport="rest"
                )
                http = getattr(self._clients[kind].transport, "_session", None)  # a session of requests
                if http is not None:
                    http.hooks["response"].append(self._note_time)
            return self._clients[kind]

    def _note_time(self, response: Any, *_: Any, **__: Any) -> None:
        """Google says the time with every answer."""
        self._date = response.headers.get("Date") or self._date

    def told_at(self) -> datetime | None:
        """Return the time of Google's last answer, by its clock; None before one."""
        return date_in(self._date)

    def _sign_in(self) -> None:
        if self._project:
            return
        found: str | None = None
        with self._speaking("sign in to Google Cloud"):
            if self._credentials is None:
                self._credentials, found = sign_in(endpoint())
        own = getattr(self._credentials, "project_id", "")
        project = str(self._asked or os.environ.get("GOOGLE_CLOUD_PROJECT") or found or own or "")
        if not project:
            raise AuthError(
                "Nothing says which Google Cloud project is meant.",
                hint="gcloud config set project PROJECT, or set gcp_project in the settings (COSTGPU_GCP_PROJECT).",
            )
        self._project = project

    @contextlib.contextmanager
    def _speaking(self, doing: str) -> Iterator[None]:
        try:
            yield
        except sdk.foreign() as exc:
            raise translate(exc, doing, project=self._project) from exc

    def read(self, doing: str, kind: str, method: str, **question: Any) -> Any:
        """One question, asked again if no answer comes.

        Args:
            question: The request's fields; the project is added.
        """
        return self._again(doing, lambda: self._call(kind, method, question))

    def pages(self, doing: str, kind: str, method: str, **question: Any) -> list[Any]:
        """Return all pages of an answer."""
        return list(self._again(doing, lambda: list(self._call(kind, method, question).pages)))

    def rows(self, doing: str, kind: str, **question: Any) -> list[Any]:
        """Return what all pages of a list have."""
        return [row for page in self.pages(doing, kind, "list", **question) for row in page.items]

    def maybe(self, doing: str, kind: str, method: str, **question: Any) -> Any | None:
        """One question about one thing; None if Google does not know it."""
        try:
            return self.read(doing, kind, method, **question)
        except ProviderError as error:
            if sdk.is_missing(error.__cause__):
                return None
            raise

    def write(self, doing: str, kind: str, method: str, **request: Any) -> Any:
        """One request that changes something, made once: whether to repeat it is the caller's decision."""
        with self._speaking(doing):
            return self._call(kind, method, request)

    def _call(self, kind: str, method: str, fields: dict[str, Any]) -> Any:
        request = {"project": self.project, **fields}
        return getattr(self.client(kind), method)(request=request, timeout=SECONDS, retry=None)

    def asked(self, doing: str, method: str, url: str, document: Any = None, *, seconds: float = SECONDS) -> Any:
        """Return the HTTP response of an API that has no client here, signed in as the clients are.

        Args:
            seconds: How long an answer is waited for.

        Raises:
            ProviderError: It is a refusal, or there is none.
        """
        self._sign_in()
        with self._speaking(doing):
            with sdk.session(self._credentials) as session:
                response = session.request(method, url, json=document, timeout=seconds)
            if not response.ok:
                raise sdk.api_errors().from_http_response(response)
            return response

    def _again(self, doing: str, call: Callable[[], T]) -> T:
        def ask() -> T:
            with self._speaking(doing):
                return call()

        return repeated(self.clock, ask, (Unreachable,), tries=READ_TRIES, first_wait=READ_WAIT)

    def finished(self, doing: str, operation: Any, *, seconds: float) -> bool:
        """Wait for an operation; whether it is done in time.

        Raises:
            ProviderError: It failed: the error that is written in it.
        """
        until, wait = self.clock.monotonic() + seconds, POLL_FIRST
        while not is_done(operation):
            if self.clock.monotonic() > until:
                return False
            self.clock.sleep(wait)
            wait = min(wait * 1.5, POLL_MOST)
            operation = self.operation(doing, operation)
        said = refusal_of(operation)
        if said is not None:
            raise refused(said, doing, project=self.project)
        return True

    def operation(self, doing: str, operation: Any) -> Any:
        """Return an operation as it is now."""
        kind, where = "GlobalOperations", {}
        if operation.zone:
            kind, where = "ZoneOperations", {"zone": last_part(operation.zone)}
        elif operation.region:
            kind, where = "RegionOperations", {"region": last_part(operation.region)}
        return self.read(doing, kind, "get", operation=operation.name, **where)

    def require(self, region: str) -> None:
        """Raise `InvalidRequest`, with near names, if Google has no such region."""
        if region in self.regions():
            return
        raise unknown_region("Google Cloud", region, self._regions, ("us-central1", "us-east1", "europe-west4"))

    def regions(self) -> frozenset[str]:
        """Return the regions that the project can use."""
        if not self._regions:
            self._regions = frozenset(str(row.name) for row in self.rows("list the regions of the project", "Regions"))
        return self._regions

    def identity(self) -> Identity:
        """Project, principal and where the credentials came from; asks nobody.

        Raises:
            AuthError: There are none.
        """
        project = self.project
        given = self._credentials
        email = str(getattr(given, "service_account_email", "") or getattr(given, "account", "") or "")
        return Identity(
            provider="gcp",
            account=project,
            principal=email if "@" in email else _kind_of(given),
            source=_source_of(given),
        )


def repeated(
    clock: Clock,
    call: Callable[[], T],
    errors: type[Exception] | tuple[type[Exception], ...],
    *,
    tries: int,
    first_wait: float,
) -> T:
    """Make a call again while it fails with such errors; the waits double, and the last error is raised."""
    retrying = tenacity.Retrying(
        retry=tenacity.retry_if_exception_type(errors),
        stop=tenacity.stop_after_attempt(tries),
        wait=tenacity.wait_exponential(multiplier=first_wait),
        sleep=clock.sleep,
        reraise=True,
    )
    return retrying(call)


def sign_in(url: str) -> tuple[Any, str | None]:
    """Return the credentials and, if they tell, their project.

    Args:
        url: Who is asked; a server without encryption asks for none.
    """
    return (sdk.anonymous(), None) if url.startswith("http://") else sdk.auth().default(scopes=list(SCOPES))


def endpoint() -> str:
    """Return the address that is asked instead of the public one; empty for that."""
    return another_address(ENDPOINT, private=True)


def _kind_of(credentials: Any) -> str:
    """Return what to call credentials that do not tell whose they are."""
    if type(credentials).__module__.startswith("google.oauth2.credentials"):
        return "a user, signed in with gcloud"
    return "anonymous" if type(credentials).__name__ == "AnonymousCredentials" else "application default credentials"


def _source_of(credentials: Any) -> str:
    """Return where credentials came from, in words."""
    if type(credentials).__name__ == "AnonymousCredentials":
        return ENDPOINT
    if os.environ.get("GOOGLE_APPLICATION_CREDENTIALS"):
        return "GOOGLE_APPLICATION_CREDENTIALS"
    if type(credentials).__module__.startswith("google.auth.compute_engine"):
        return "the service account of this machine"
    return "gcloud's application default credentials"


def is_done(operation: Any) -> bool:
    """Return whether it is over, well or not."""
    return getattr(operation.status, "name", str(operation.status)) == "DONE"


def last_part(url: str) -> str:
    """Return the name at the end of a resource's URL."""
    return url.rsplit("/", 1)[-1]


def region_of(zone: str) -> str:
    """``us-central1`` of ``us-central1-a``."""
    return zone.rsplit("-", 1)[0]


PARALLEL = 8


def list_all_places(
    clients: Clients, kind: str, scope: str, expression: str
) -> tuple[list[tuple[str, Any]], dict[str, str]]:
    """Return place and row of everything of one kind that a filter leaves, and why some places do not answer.

    One question for all places. If Google fails it, as it can when a single zone is out, each place is asked by itself.

    Args:
        kind: Such as ``ResourcePolicies``.
        scope: ``zone`` or ``region``: what a place is.
    """
    field = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", kind).lower()
    question: dict[str, Any] = {"filter": expression}
    if "return_partial_success" in getattr(sdk.compute(), f"AggregatedList{kind}Request").meta.fields:  # not in 1.57
        question["return_partial_success"] = True
    try:
        pages = clients.pages(f"list {field} ({expression})", kind, "aggregated_list", **question)
    except Unreachable as error:
        if sdk.status_of(error.__cause__) < 500:
            raise
        return _one_by_one(clients, kind, scope, expression)
    rows: list[tuple[str, Any]] = []
    silent: dict[str, str] = {}
    for page in pages:
        silent |= {last_part(str(place)): "no answer" for place in page.unreachables}
        for place, scoped in page.items.items():
            if str(scoped.warning.code) == "UNREACHABLE":
                silent[last_part(place)] = str(scoped.warning.message) or "no answer"
            rows += [(last_part(place), row) for row in getattr(scoped, field)]
    return rows, silent


def _one_by_one(
    clients: Clients, kind: str, scope: str, expression: str
) -> tuple[list[tuple[str, Any]], dict[str, str]]:
    places = [str(row.name) for row in clients.rows(f"list the {scope}s of the project", f"{scope.title()}s")]
    silent: dict[str, str] = {}

    def ask(place: str) -> list[tuple[str, Any]]:
        try:
            rows = clients.rows(f"list {kind} in {place}", kind, **{scope: place, "filter": expression})
        except ProviderError as error:
            silent[place] = error.message
            return []
        return [(place, row) for row in rows]

    with ThreadPoolExecutor(max_workers=PARALLEL, thread_name_prefix="costgpu-gcp") as pool:
        rows = [row for rows in pool.map(ask, places) for row in rows]
    return rows, silent
