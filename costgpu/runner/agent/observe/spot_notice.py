"""The provider's word that it takes a spot machine back."""

from __future__ import annotations

import os
import threading
import urllib.error
import urllib.parse
import urllib.request
from typing import NamedTuple

POLL_SECONDS = 5.0
_AWS = "http://169.254.169.254"
_GCP = "http://metadata.google.internal"
_SECONDS = 2.0
_WAIT_SECONDS = 20  # how long one question to Google's metadata server stays open
_PAUSE_SECONDS = 1.0  # between two of those, should a server answer at once that nothing has changed


class Answer(NamedTuple):
    """What the provider says, empty if nothing; and what to ask with next, so that the answer comes with the change."""

    words: str
    mark: str = ""


class _Reply(NamedTuple):
    body: str
    etag: str


def _get(url: str, method: str = "GET", seconds: float = _SECONDS, **headers: str) -> _Reply | None:
    """None if there is nothing there or no answer. Never through a proxy."""
    request = urllib.request.Request(url, method=method, headers={k.replace("_", "-"): v for k, v in headers.items()})
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(request, timeout=seconds) as reply:
            body = str(reply.read(4096).decode("utf-8", "replace"))
            return _Reply(body.strip(), str(reply.headers.get("ETag") or ""))
    except (OSError, ValueError):
        return None


def read_notice(provider: str, mark: str = "") -> Answer:
    """What the provider says now; with the mark of an earlier answer, Google's server waits until there is news.

    AWS: instance metadata version 2, ``spot/instance-action``, two minutes ahead (docs.aws.amazon.com, 2026-11).
    Google: ``preempted``, at most 30 seconds ahead, and ``wait_for_change``
    (cloud.google.com/compute/docs/instances/create-use-spot and .../metadata/querying-metadata, 2026-11).
    """
    base = os.environ.get("COSTGPU_AGENT_METADATA_URL")
    if provider == "aws":
        root = (base or _AWS) + "/latest/"
        token = _get(root + "api/token", "PUT", X_aws_ec2_metadata_token_ttl_seconds="60")
        if token is None:
            return Answer("")
        said = _get(root + "meta-data/spot/instance-action", X_aws_ec2_metadata_token=token.body)
        return Answer(said.body if said else "")
    if provider == "gcp":
        url, seconds = (base or _GCP) + "/computeMetadata/v1/instance/preempted", _SECONDS
        if mark:
            query = {"wait_for_change": "true", "timeout_sec": str(_WAIT_SECONDS), "last_etag": mark}
            url += "?" + urllib.parse.urlencode(query)
            seconds += _WAIT_SECONDS
        said = _get(url, seconds=seconds, Metadata_Flavor="Google")
        if said is not None:
            return Answer("preempted" if said.body.upper() == "TRUE" else "", said.etag)
    return Answer("")


class NoticeWatch(threading.Thread):
    """Asks again and again, beside the daemon's own work; `words` is what came."""

    def __init__(self, provider: str, seconds: float = POLL_SECONDS) -> None:
        super().__init__(daemon=True)
        self.provider, self.seconds = provider, seconds
        self.words = ""
        self._stop_it = threading.Event()

    def run(self) -> None:
        """Until there is a notice, or nobody wants to know any more."""
        mark = ""
        while not self.words and not self._stop_it.is_set():
            self.words, mark = read_notice(self.provider, mark)
            self._stop_it.wait(min(_PAUSE_SECONDS, self.seconds) if mark else self.seconds)

    def stop(self) -> None:
        """Ends it soon."""
        self._stop_it.set()
