"""The provider's word that it takes a spot machine back."""

from __future__ import annotations

import os
import threading
import urllib.error
import urllib.request

POLL_SECONDS = 5.0
_AWS = "http://169.254.169.254"
_GCP = "http://metadata.google.internal"
_SECONDS = 2.0


def _get(url: str, method: str = "GET", **headers: str) -> str | None:
    """The body; None if there is nothing there or no answer. Never through a proxy."""
    request = urllib.request.Request(url, method=method, headers={k.replace("_", "-"): v for k, v in headers.items()})
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(request, timeout=_SECONDS) as answer:
            return str(answer.read(4096).decode("utf-8", "replace"))
    except (OSError, ValueError):
        return None


def read_notice(provider: str) -> str:
    """What the provider says; empty if it says nothing.

    AWS: instance metadata version 2, ``spot/instance-action`` (docs.aws.amazon.com, 2026-11). Google: ``preempted``
    (cloud.google.com/compute/docs/instances/create-use-spot, 2026-11).
    """
    base = os.environ.get("COSTGPU_AGENT_METADATA_URL")
    if provider == "aws":
        root = (base or _AWS) + "/latest/"
        token = _get(root + "api/token", "PUT", X_aws_ec2_metadata_token_ttl_seconds="60")
        if token is None:
            return ""
        return (_get(root + "meta-data/spot/instance-action", X_aws_ec2_metadata_token=token) or "").strip()
    if provider == "gcp":
        answer = _get((base or _GCP) + "/computeMetadata/v1/instance/preempted", Metadata_Flavor="Google")
        return "preempted" if (answer or "").strip().upper() == "TRUE" else ""
    return ""


class NoticeWatch(threading.Thread):
    """Asks every few seconds, beside the daemon's own work; `words` is what came."""

    def __init__(self, provider: str, seconds: float = POLL_SECONDS) -> None:
        super().__init__(daemon=True)
        self.provider, self.seconds = provider, seconds
        self.words = ""
        self._stop_it = threading.Event()

    def run(self) -> None:
        """Until there is a notice, or nobody wants to know any more."""
        while not self.words and not self._stop_it.is_set():
            self.words = read_notice(self.provider)
            self._stop_it.wait(self.seconds)

    def stop(self) -> None:
        """Ends it soon."""
        self._stop_it.set()
