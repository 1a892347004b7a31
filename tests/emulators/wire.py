"""One API request as it came over the wire, and the ways in which each protocol says no."""

import json
import re
import urllib.parse
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from xml.sax.saxutils import escape

_CREDENTIAL = re.compile(r"Credential=([^/]+)/\d+/([^/]+)/([^/]+)/aws4_request")
_SCHEDULER_ACTIONS = {"POST": "CreateSchedule", "PUT": "UpdateSchedule", "DELETE": "DeleteSchedule"}
_S3_ACTIONS = {"PUT": "PutObject", "GET": "GetObject", "HEAD": "HeadObject", "DELETE": "DeleteObject"}
_QUERY_XML = ("sts", "iam")
_RETRIED_AS_SERVER_ERROR = {
    "InsufficientInstanceCapacity": 500,
    "InternalError": 500,
    "Unavailable": 503,
    "RequestLimitExceeded": 503,
    "ServiceUnavailable": 503,
}
"""Codes of the EC2 API that come with a 5xx status."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiCall:
    """A request, before anything is done about it.

    Attributes:
        params: Flat form parameters, or the JSON document; user data is left out.
    """

    service: str  # as it is signed: ec2, ssm, scheduler, servicequotas, s3, sts,
    action: str
    region: str  # that it is signed for
    access_key: str  # that it is signed with; empty if it is not signed
    params: Mapping[str, Any] = field(default_factory=dict)
    method: str
    path: str

    @property
    def name(self) -> str:
        """``ec2:RunInstances``; a dry run is ``ec2:RunInstances?``."""
        return f"{self.service}:{self.action}" + ("?" if str(self.params.get("DryRun", "")).lower() == "true" else "")


def parse(environ: Mapping[str, Any], body: bytes) -> ApiCall:
    query = dict(urllib.parse.parse_qsl(environ.get("QUERY_STRING", "")))
    signed = _CREDENTIAL.search(
        environ.get("HTTP_AUTHORIZATION", "") or f"Credential={query.get('X-Amz-Credential', '')}"
    )
    access_key, region, service = signed.groups() if signed else ("", "us-east-1", "s3")
    method, path = environ["REQUEST_METHOD"], environ["PATH_INFO"]
    target = environ.get("HTTP_X_AMZ_TARGET", "")
    params: dict[str, Any] = {}
    if environ.get("CONTENT_TYPE", "").startswith("application/x-www-form-urlencoded"):
        params = dict(urllib.parse.parse_qsl(body.decode(errors="replace"), keep_blank_values=True))
        action = params.get("Action", "")
    elif service == "scheduler":
        action = _SCHEDULER_ACTIONS.get(method, "GetSchedule" if path.count("/") > 1 else "ListSchedules")
        params = {**query, **_json(body)}
    elif service == "s3":
        parts = [part for part in path.split("/") if part]
        bucket = {"PUT": "CreateBucket", "GET": "ListObjects", "HEAD": "HeadBucket", "DELETE": "DeleteBucket"}
        action = (_S3_ACTIONS if len(parts) > 1 else bucket).get(method, method)
    else:
        action, params = target.rpartition(".")[2] or path.rpartition("/")[2], _json(body)
    if "UserData" in params:
        params["UserData"] = f"<{len(params['UserData'])} characters>"
    return ApiCall(
        service=service, action=action, region=region, access_key=access_key, params=params, method=method, path=path
    )


def _json(body: bytes) -> dict[str, Any]:
    try:
        document = json.loads(body)
    except ValueError:
        return {}
    return document if isinstance(document, dict) else {}


@dataclass(frozen=True, slots=True)
class Reply:
    """An answer: status, headers, body."""

    status: str
    headers: list[tuple[str, str]]
    body: bytes

    @property
    def code(self) -> int:
        return int(self.status.split()[0])


def refusal(call: ApiCall, code: str, message: str, status: int | None = None) -> Reply:
    """An error, in the form that the service's protocol has for it."""
    number = status or _RETRIED_AS_SERVER_ERROR.get(code, 400)
    line = f"{number} {'Server Error' if number >= 500 else 'Bad Request'}"
    code, message = escape(code), escape(message)
    if call.service == "ec2":
        text = (
            f"<Response><Errors><Error><Code>{code}</Code><Message>{message}</Message></Error></Errors>"
            "<RequestID>00000000-0000-0000-0000-000000000000</RequestID></Response>"
        )
        return Reply(line, [("Content-Type", "text/xml")], f'<?xml version="1.0" encoding="UTF-8"?>{text}'.encode())
    if call.service in _QUERY_XML:
        error = f"<Error><Type>Sender</Type><Code>{code}</Code><Message>{message}</Message></Error>"
        text = f"<ErrorResponse>{error}</ErrorResponse>"
        return Reply(line, [("Content-Type", "text/xml")], text.encode())
    if call.service == "s3":
        text = f"<Error><Code>{code}</Code><Message>{message}</Message></Error>"
        return Reply(line, [("Content-Type", "application/xml")], b"" if call.method == "HEAD" else text.encode())
    document = json.dumps({"__type": code, "message": message, "Message": message})
    return Reply(line, [("Content-Type", "application/json"), ("x-amzn-ErrorType", code)], document.encode())


def settle(call: ApiCall, reply: Reply) -> Reply:
    """What moto answers, as AWS would: no HTML pages, and server errors with a server's status."""
    if reply.code >= 500 and reply.body.lstrip()[:9].lower() in (b"<!doctype", b"<html>"):
        return refusal(call, "UnsupportedOperation", f"{call.action} is not implemented by the emulator.")
    if call.service == "ec2" and reply.code == 400:
        found = re.search(rb"<Code>([^<]+)</Code>", reply.body)
        status = _RETRIED_AS_SERVER_ERROR.get(found.group(1).decode()) if found else None
        if status:
            return Reply(f"{status} Server Error", reply.headers, reply.body)
    if reply.code >= 400 and call.service not in ("ec2", "s3", *_QUERY_XML) and reply.body.lstrip().startswith(b"<"):
        code, message = (_tag(reply.body, name) for name in ("Code", "Message"))
        return refusal(call, code, message, reply.code)
    return reply


def _tag(body: bytes, name: str) -> str:
    found = re.search(f"<{name}>([^<]*)</{name}>".encode(), body)
    return found.group(1).decode() if found else ""
