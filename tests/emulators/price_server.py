"""Price lists on one port, for the unpatched clients: Cloud Billing Catalog, AWS Price List, EC2 spot price history, and
AWS's public files.

By hand:

    python -m tests.emulators.price_server --port 8700
    export COSTGPU_GCP_BILLING_ENDPOINT=http://127.0.0.1:8700
    export AWS_ENDPOINT_URL_PRICING=http://127.0.0.1:8700 AWS_ENDPOINT_URL_EC2=http://127.0.0.1:8700
    export AWS_ACCESS_KEY_ID=test AWS_SECRET_ACCESS_KEY=test AWS_EC2_METADATA_DISABLED=true
    costgpu prices refresh --infra aws --infra gcp
    export COSTGPU_AWS_PUBLIC_PRICES_ENDPOINT=http://127.0.0.1:8700
    costgpu prices refresh --public

Prices are those that ship with costgpu (AWS), and those of ``data/gcp_rates.csv`` (Google).
"""

import argparse
import json
import re
import threading
import urllib.parse
from collections.abc import Callable, Iterable, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from xml.sax.saxutils import escape

from costgpu.pricing import snapshot
from tests.emulators.price_documents import (
    Document,
    aws_bulk_list,
    aws_products,
    aws_spot_page,
    aws_spot_rows,
    google_skus,
)

_SERVICE = "services/6F81-5844-456A"
_ATTRIBUTE = "TERM_MATCH"
_BULK = re.compile(r"/offers/v1\.0/aws/AmazonEC2/current/([a-z0-9-]+)/index\.csv")
_REGION = re.compile(r"Credential=[^/]+/\d+/([^/]+)/")


class PriceServer:
    """Answers on a port of this machine until it is closed.

    Attributes:
        refusals: Answers (status, headers, body) to the next questions instead, by the API's name of the question.
    """

    def __init__(self, port: int = 0) -> None:
        self.skus: list[Document] = []  # of Google's list
        self.products: list[Document] = []  # of AWS's list
        self.spots: list[Document] = []  # rows of the spot price history, of all regions
        self.requests: list[str] = []  # what was asked: the API's name of each question
        self.refusals: dict[str, list[tuple[int, bytes]]] = {}
        self.page = 5000  # at most so many rows at once
        self.cut: list[int] = []  # the next answers with a public file break off after so many bytes
        self.ranges: list[str] = []  # what part of a public file was asked for, if not for the whole
        self.modified = "Sat, 21 Nov 2026 09:00:00 GMT"  # when the public files were written; empty to say nothing
        self.etag = '"1"'
        self._server = ThreadingHTTPServer(("127.0.0.1", port), self._handler())
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def environment(self) -> dict[str, str]:
        return {
            "COSTGPU_GCP_BILLING_ENDPOINT": self.url,
            "COSTGPU_AWS_PUBLIC_PRICES_ENDPOINT": self.url,
            "AWS_ENDPOINT_URL_PRICING": self.url,
            "AWS_ENDPOINT_URL_EC2": self.url,
            "AWS_ACCESS_KEY_ID": "AKIAIOSFODNN7EXAMPLE",
            "AWS_SECRET_ACCESS_KEY": "secret",
            "AWS_EC2_METADATA_DISABLED": "true",
            "AWS_CONFIG_FILE": "/nonexistent",
            "NO_GCE_CHECK": "true",
        }

    def _handler(server) -> type[BaseHTTPRequestHandler]:  # noqa: N805
        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                split = urllib.parse.urlsplit(self.path)
                if split.path == "/spot.json":
                    self.send_file("SpotPage", lambda: json.dumps(aws_spot_page(server.spots)).encode())
                    return
                if bulk := _BULK.fullmatch(split.path):
                    self.send_file("BulkList", lambda: server.bulk_list(bulk[1]))
                    return
                self.answer("ListSkus", lambda: server.list_skus(split.path, dict(urllib.parse.parse_qsl(split.query))))

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                target = self.headers.get("X-Amz-Target", "")
                if target:
                    self.answer(target.rpartition(".")[2], lambda: server.get_products(target, json.loads(body)))
                else:
                    form = dict(urllib.parse.parse_qsl(body.decode()))
                    signed = _REGION.search(self.headers.get("Authorization", ""))
                    region = signed[1] if signed else ""
                    self.answer(form.get("Action", "?"), lambda: server.spot_history(region, form))

            def send_file(self, name: str, make: Callable[[], bytes]) -> None:
                """Sends a file as a store of files does: whole, or from some byte on if it is still the same file."""
                server.requests.append(name)
                waiting = server.refusals.get(name)
                status, content = waiting.pop(0) if waiting else (200, make())
                wanted = re.fullmatch(r"bytes=(\d+)-", self.headers.get("Range", ""))
                if status == 200 and wanted:
                    server.ranges.append(wanted[0])
                    if self.headers.get("If-Range") == server.etag:
                        status, content = 206, content[int(wanted[1]) :]
                self.send_response(status)
                self.send_header("Content-Length", str(len(content)))
                self.send_header("ETag", server.etag)
                if server.modified:
                    self.send_header("Last-Modified", server.modified)
                self.end_headers()
                if status < 300 and name == "BulkList" and server.cut:
                    content = content[: server.cut.pop(0)]
                    self.close_connection = True
                self.wfile.write(content)

            def answer(self, name: str, make: Any) -> None:
                server.requests.append(name)
                waiting = server.refusals.get(name)
                status, content = waiting.pop(0) if waiting else make()
                self.send_response(status)
                self.send_header("Content-Type", "text/xml" if content.startswith(b"<") else "application/json")
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, *_: object) -> None: ...

        return Handler

    def list_skus(self, path: str, query: Mapping[str, str]) -> tuple[int, bytes]:
        if path != f"/v1/{_SERVICE}/skus":
            return google_refusal(404, "NOT_FOUND", f"The service in {path} was not found.")
        rows, token = self._page(self.skus, int(query.get("pageSize") or 5000), query.get("pageToken", ""))
        return 200, json.dumps({"skus": rows, "nextPageToken": token}).encode()

    def bulk_list(self, region: str) -> bytes:
        here = [one for one in self.products if one["product"]["attributes"]["regionCode"] == region]
        return aws_bulk_list(here)

    def get_products(self, target: str, question: Mapping[str, Any]) -> tuple[int, bytes]:
        if target != "AWSPriceListService.GetProducts" or question.get("ServiceCode") != "AmazonEC2":
            return aws_refusal("NotFoundException", f"There is no {target} of {question.get('ServiceCode')}.")
        wanted = {row["Field"]: row["Value"] for row in question.get("Filters", []) if row["Type"] == _ATTRIBUTE}
        found = [
            product
            for product in self.products
            if all(product["product"]["attributes"].get(name) == value for name, value in wanted.items())
        ]
        rows, token = self._page(found, min(int(question.get("MaxResults", 100)), 100), question.get("NextToken", ""))
        document: Document = {"FormatVersion": "aws_v1", "PriceList": [json.dumps(row) for row in rows]}
        return 200, json.dumps({**document, **({"NextToken": token} if token else {})}).encode()

    def spot_history(self, region: str, form: Mapping[str, str]) -> tuple[int, bytes]:
        if form.get("Action") != "DescribeSpotPriceHistory":
            return ec2_refusal(
                "InvalidAction", f"The action {form.get('Action')} is not valid for this web service.", 400
            )
        products = {value for name, value in form.items() if name.startswith("ProductDescription.")}
        found = [
            row
            for row in self.spots
            if row["AvailabilityZone"].startswith(region) and (not products or row["ProductDescription"] in products)
        ]
        rows, token = self._page(found, int(form.get("MaxResults", 1000)), form.get("NextToken", ""))
        items = "".join(
            f"<item><instanceType>{escape(row['InstanceType'])}</instanceType><productDescription>"
            f"{escape(row['ProductDescription'])}</productDescription><spotPrice>{row['SpotPrice']}</spotPrice><timestamp>"
            f"{row['Timestamp']:%Y-%m-%dT%H:%M:%S.000Z}</timestamp><availabilityZone>{row['AvailabilityZone']}"
            "</availabilityZone></item>"
            for row in rows
        )
        return 200, (
            '<?xml version="1.0" encoding="UTF-8"?><DescribeSpotPriceHistoryResponse'
            ' xmlns="http://ec2.amazonaws.com/doc/2016-11-15/"><requestId>emulated</requestId>'
            f"<spotPriceHistorySet>{items}</spotPriceHistorySet><nextToken>{token}</nextToken>"
            "</DescribeSpotPriceHistoryResponse>"
        ).encode()

    def _page(self, rows: list[Document], size: int, token: str) -> tuple[list[Document], str]:
        start, size = int(token or 0), min(size, self.page)
        return rows[start : start + size], str(start + size) if start + size < len(rows) else ""


def google_refusal(status: int, reason: str, message: str, **metadata: str) -> tuple[int, bytes]:
    """As Google's API front end says no."""
    canonical = {401: "UNAUTHENTICATED", 403: "PERMISSION_DENIED", 404: "NOT_FOUND", 429: "RESOURCE_EXHAUSTED"}
    info = {
        "@type": "type.googleapis.com/google.rpc.ErrorInfo",
        "reason": reason,
        "domain": "googleapis.com",
        "metadata": metadata,
    }
    error = {"code": status, "message": message, "status": canonical.get(status, "INTERNAL"), "details": [info]}
    return status, json.dumps({"error": error}).encode()


def aws_refusal(code: str, message: str, status: int = 400) -> tuple[int, bytes]:
    """As an AWS service that speaks JSON says no."""
    return status, json.dumps({"__type": code, "message": message}).encode()


def ec2_refusal(code: str, message: str, status: int = 403) -> tuple[int, bytes]:
    """As EC2 says no."""
    return status, (
        f"<Response><Errors><Error><Code>{code}</Code><Message>{escape(message)}</Message></Error></Errors>"
        "<RequestID>emulated</RequestID></Response>"
    ).encode()


def fill(server: PriceServer, skus: Iterable[Document] | None = None) -> PriceServer:
    shipped = snapshot.read_offers(snapshot.newest())
    server.skus = list(skus) if skus is not None else google_skus()
    server.products, server.spots = aws_products(shipped), aws_spot_rows(shipped)
    return server


def main() -> None:
    parser = argparse.ArgumentParser(description="Serve price lists on a port of this machine.")
    parser.add_argument("--port", type=int, default=0)
    server = fill(PriceServer(parser.parse_args().port))
    print(f"ready {server.url}", flush=True)
    try:
        threading.Event().wait()
    except KeyboardInterrupt:
        server.close()


if __name__ == "__main__":
    main()
