"""An S3 bucket for outputs and logs: the machine gets presigned addresses, never credentials."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from costgpu.errors import InvalidRequest
from costgpu.providers.aws import sdk
from costgpu.providers.aws.sdk import Clients

URL = re.compile(r"s3://(?P<bucket>[a-z0-9][a-z0-9.-]{1,61}[a-z0-9])(?:/(?P<prefix>.*))?")
MOST_SECONDS = 7 * 24 * 3600  # Source: Amazon S3 user guide, presigned URLs with Signature Version 4 (2026-11)
CHUNK_BYTES = 1 << 20
MISSING = frozenset({"404", "NoSuchKey", "NotFound"})


class S3Bucket:
    """One bucket, under one prefix.

    Args:
        url: ``s3://name`` or ``s3://name/prefix``.

    Raises:
        InvalidRequest: Not such a URL.
    """

    def __init__(self, url: str) -> None:
        match = URL.fullmatch(url)
        if match is None:
            raise InvalidRequest(f"{url!r} is not a bucket.", hint="Write it as s3://name or s3://name/prefix.")
        self.url = url
        self._bucket = match["bucket"]
        self._prefix = (match["prefix"] or "").strip("/")
        self._clients = Clients()
        self._made: Any = None

    def _key(self, name: str) -> str:
        return f"{self._prefix}/{name}" if self._prefix else name

    def _client(self) -> Any:
        """Return a client for the region that the bucket is in: a presigned address holds only there."""
        if self._made is None:
            client = self._in(self._clients.home())
            try:
                reply = client.head_bucket(Bucket=self._bucket)
            except sdk.exceptions().ClientError as exc:
                reply = exc.response
                if sdk.code_of(exc) in MISSING:
                    raise InvalidRequest(
                        f"There is no bucket {self._bucket}.", hint=f"aws s3 mb s3://{self._bucket}"
                    ) from exc
                if sdk.code_of(exc) == "400":  # S3 gives no reason in an answer without a body; STS does
                    self._clients.identity()
                if not _region_in(reply):
                    raise
            region = _region_in(reply) or client.meta.region_name
            self._made = client if region == client.meta.region_name else self._in(region)
        return self._made

    def _in(self, region: str) -> Any:
        return self._clients.new_client("s3", region, signature_version="s3v4")

    def presign_put(self, name: str, seconds: float) -> str:
        """Return a URL to which anybody who has it can PUT this one object. It is a secret.

        Args:
            seconds: How long it holds; at most seven days, and never longer than the credentials that signed it.
        """
        if not 0 < seconds <= MOST_SECONDS:
            raise InvalidRequest(f"A presigned URL can hold for {MOST_SECONDS} seconds at most, not for {seconds:g}.")
        with self._clients.speaking(f"sign an upload to {self.url}"):
            return str(
                self._client().generate_presigned_url(
                    "put_object", Params={"Bucket": self._bucket, "Key": self._key(name)}, ExpiresIn=int(seconds)
                )
            )

    def credentials_expire_at(self) -> datetime | None:
        """When the credentials that sign end, and every URL with them; None if they do not end."""
        moment = getattr(self._clients.session().get_credentials(), "_expiry_time", None)
        return moment.astimezone(UTC) if isinstance(moment, datetime) else None

    def exists(self, name: str) -> bool:
        """Return whether the object is there."""
        with self._clients.speaking(f"look for {self._key(name)} in {self.url}"):
            reply = self._client().list_objects_v2(Bucket=self._bucket, Prefix=self._key(name), MaxKeys=1)
        return any(row["Key"] == self._key(name) for row in reply.get("Contents", ()))

    def download(self, name: str, path: Path) -> None:
        """Bring an object home; `path` appears complete or not at all.

        Raises:
            InvalidRequest: There is no such object.
        """
        partial = path.with_name(f".{path.name}.part")
        try:
            with self._clients.speaking(f"download {self._key(name)} from {self.url}"), partial.open("wb") as file:
                body = self._client().get_object(Bucket=self._bucket, Key=self._key(name))["Body"]
                for chunk in body.iter_chunks(CHUNK_BYTES):
                    file.write(chunk)
            partial.replace(path)
        finally:
            partial.unlink(missing_ok=True)


def _region_in(reply: Any) -> str:
    """Return the bucket's region, which S3 also says in a refusal; empty if it does not."""
    return str(reply["ResponseMetadata"].get("HTTPHeaders", {}).get("x-amz-bucket-region", ""))
