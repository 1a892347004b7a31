"""The provider's word that it takes a spot machine back."""

from __future__ import annotations

import os
import threading
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable
from typing import NamedTuple

POLL_SECONDS = 5.0
_BASE = "COSTGPU_AGENT_METADATA_URL"
_LINK_LOCAL = "http://169.254.169.254"
_BY_NAME = "http://metadata.google.internal"
_SECONDS = 2.0
_WAIT_SECONDS = 20  # how long one question to Google's metadata server stays open
_PAUSE_SECONDS = 1.0  # between two of those, should a server answer at once that nothing has changed


class MetadataAnswer(NamedTuple):
    """What the provider says, empty if nothing; and what to ask with next, so that the answer comes with the change."""

    words: str
    mark: str = ""


def _get(url: str, method: str = "GET", seconds: float = _SECONDS, **headers: str) -> MetadataAnswer | None:
    """Body and ETag. None if there is nothing there or no answer. Never through a proxy."""
    request = urllib.request.Request(url, method=method, headers={k.replace("_", "-"): v for k, v in headers.items()})
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(request, timeout=seconds) as reply:
            body = str(reply.read(4096).decode("utf-8", "replace"))
            return MetadataAnswer(body.strip(), str(reply.headers.get("ETag") or ""))
    except (OSError, ValueError):
        return None


def read_notice(kind: str, mark: str = "") -> MetadataAnswer:
    """Return what the provider says now.

    With the mark of an earlier answer, a server that can do so waits until there is news. The kind is that of the order:
    a key of `READERS`, or empty for a provider without notices.
    """
    return READERS[kind](mark) if kind in READERS else MetadataAnswer("")


def _imdsv2(_mark: str) -> MetadataAnswer:
    """Instance metadata version 2, ``spot/instance-action``, two minutes ahead (docs.aws.amazon.com, 2026-11)."""
    root = (os.environ.get(_BASE) or _LINK_LOCAL) + "/latest/"
    token = _get(root + "api/token", "PUT", X_aws_ec2_metadata_token_ttl_seconds="60")
    if token is None:
        return MetadataAnswer("")
    said = _get(root + "meta-data/spot/instance-action", X_aws_ec2_metadata_token=token.words)
    return MetadataAnswer(said.words if said else "")


def _computemetadata(mark: str) -> MetadataAnswer:
    """Metadata server, ``preempted``, at most 30 seconds ahead if no longer notice was asked for, and ``wait_for_change``.

    Source: cloud.google.com/compute/docs/instances/create-use-spot and .../metadata/querying-metadata (2026-11).
    """
    url, seconds = (os.environ.get(_BASE) or _BY_NAME) + "/computeMetadata/v1/instance/preempted", _SECONDS
    if mark:
        query = {"wait_for_change": "true", "timeout_sec": str(_WAIT_SECONDS), "last_etag": mark}
        url += "?" + urllib.parse.urlencode(query)
        seconds += _WAIT_SECONDS
    said = _get(url, seconds=seconds, Metadata_Flavor="Google")
    if said is None:
        return MetadataAnswer("")
    return MetadataAnswer("preempted" if said.words.upper() == "TRUE" else "", said.mark)


READERS: dict[str, Callable[[str], MetadataAnswer]] = {"imdsv2": _imdsv2, "computemetadata": _computemetadata}


class NoticeWatch(threading.Thread):
    """Asks again and again, beside the daemon's own work; `words` is what came."""

    def __init__(self, kind: str, seconds: float = POLL_SECONDS) -> None:
        super().__init__(daemon=True)
        self.kind, self.seconds = kind, seconds
        self.words = ""
        self._stop_it = threading.Event()

    def run(self) -> None:
        """Until there is a notice, or nobody wants to know any more."""
        mark = ""
        while not self.words and not self._stop_it.is_set():
            self.words, mark = read_notice(self.kind, mark)
            self._stop_it.wait(min(_PAUSE_SECONDS, self.seconds) if mark else self.seconds)

    def stop(self) -> None:
        """End it soon."""
        self._stop_it.set()
