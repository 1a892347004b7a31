"""What a report of a first run must not say, in the words of both clouds."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from costgpu.workflows.first_run.redact import Redactor
from tests.properties import examples

KNOWN = ("research-42", "123456789012", "ann@example.org", "/home/ann", "s3://lab-bucket/runs", "k3v9x2m5q8w1")
REDACTOR = Redactor(KNOWN)


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("Compute Engine answers for research-42 (40 regions)", "Compute Engine answers for <private> (40 regions)"),
        ("arn:aws:iam::999988887777:user/bob may not", "<arn> may not"),
        (
            "arn:aws-us-gov:kms:us-gov-west-1:999988887777:key/1234abcd-12ab-34cd-56ef-1234567890ab, which",
            "<arn>, which",
        ),
        ("account 999988887777 has none", "account <number> has none"),
        ("account 9999-8888-7777 has none", "account <number> has none"),
        ("bob.miller+gpu@lab.example.com is not allowed", "<email> is not allowed"),
        ("sa@other-99.iam.gserviceaccount.com", "<email>"),
        ("from 203.0.113.7/32 to 10.0.0.5", "from <address> to <address>"),
        ("from 2001:db8::1 and fe80:0:0:0:1:2:3:4", "from <address> and <address>"),
        ("from ::1", "from <address>"),
        ("i-0123456789abcdef0 in subnet-0a1b2c3d", "<id> in <id>"),
        ("'projects/other-99/global/networks/x' was not found", "'projects/<project>/global/networks/x' was not found"),
        ("https://console.cloud.google.com/x?project=other-99 says", "<url> says"),
        ("gcloud services enable --project other-99", "gcloud services enable --project <project>"),
        ("AKIAIOSFODNN7EXAMPLE", "<key>"),
        ("ssh-ed25519 AAAAC3NzaC1lZDI1 x", "<key> x"),
        ("-----BEGIN OPENSSH PRIVATE KEY-----\nabc\n-----END OPENSSH PRIVATE KEY-----.", "<key>."),
        ("us-central1-a/costgpu-k3v9x2m5q8w1-1 is gone", "us-central1-a/costgpu-<private>-1 is gone"),
        ("costgpu-a1b2c3d4-1 is gone", "<run> is gone"),
        ("the key alias/acme-prod of the account", "the key <key> of the account"),
        ("disks have alias/aws/ebs", None),
        ("mrk-0123456789abcdef0123456789abcdef", "<key>"),
        ("ann@laptop, at ip-10-0-0-1.ec2.internal", "<email>, at <address>"),
        ("not in project lab-77", "not in project <project>"),
        ("User initiated (2026-11-21 10:00:00 GMT)", "User initiated (2026-11-21 10:00:00 GMT)"),
        ("Client.InstanceInitiatedShutdown: Instance initiated shutdown", None),
        ("compute.instances.migrateOnHostMaintenance", None),
        ("NVIDIA L4, 580.65.06, 23034 MiB; python 3.12.3, kernel 6.8.0-1015-gcp", None),
        ("L-DB2E81BA in us-east-1: 64 vCPUs", None),
    ],
)
def test_a_text_without_what_is_private(text: str, wanted: str | None) -> None:
    assert REDACTOR.text(text) == (text if wanted is None else wanted)


PRIVATE = st.sampled_from(
    [*KNOWN, "123456789012", "i-0123456789abcdef0", "198.51.100.7", "eve@example.com", "arn:aws:iam::1:role/x"]
)
WORDS = st.text("abcXYZ ,.:;/()'-", max_size=12)


@examples(400)
@given(st.lists(st.tuples(WORDS, PRIVATE), max_size=4), WORDS)
def test_nothing_private_is_left_wherever_it_stands(parts: list[tuple[str, str]], end: str) -> None:
    text = "".join(f"{words} {private} " for words, private in parts) + end
    clean = REDACTOR.value({"words": [text]})["words"][0]
    assert [private for _, private in parts if private in clean] == []
