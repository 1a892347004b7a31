"""Outputs by way of a bucket: presigned uploads, verified downloads."""

import urllib.request
from pathlib import Path

import pytest

from costgpu.errors import AuthError, InvalidRequest, Unreachable
from costgpu.providers.aws import sdk
from costgpu.providers.aws.bucket import S3Bucket
from tests.emulators.ec2.client import RunningEc2

boto3 = sdk.boto3()


@pytest.fixture
def bucket(cloud: RunningEc2) -> S3Bucket:
    boto3.client("s3").create_bucket(Bucket="costgpu-lab")
    return S3Bucket("s3://costgpu-lab/team/runs/")


def put(url: str, data: bytes) -> None:
    with urllib.request.urlopen(urllib.request.Request(url, data=data, method="PUT"), timeout=10) as reply:
        assert reply.status == 200


def test_what_is_put_comes_home_as_it_was(bucket: S3Bucket, tmp_path: Path) -> None:
    data = bytes(range(256)) * 9000
    assert not bucket.exists("r1/outputs.tar")
    url = bucket.presign_put("r1/outputs.tar", 3600)
    assert "X-Amz-Signature" in url
    assert "/team/runs/r1/outputs.tar?" in url
    put(url, data)
    assert bucket.exists("r1/outputs.tar")
    bucket.download("r1/outputs.tar", tmp_path / "outputs.tar")
    assert (tmp_path / "outputs.tar").read_bytes() == data
    assert [path.name for path in tmp_path.iterdir()] == ["outputs.tar"]


def test_a_bucket_without_a_prefix(cloud: RunningEc2) -> None:
    boto3.client("s3").create_bucket(Bucket="costgpu-plain")
    put(S3Bucket("s3://costgpu-plain").presign_put("a", 60), b"x")
    assert boto3.client("s3").get_object(Bucket="costgpu-plain", Key="a")["Body"].read() == b"x"


def test_the_region_of_the_bucket_signs(cloud: RunningEc2) -> None:
    boto3.client("s3", region_name="eu-west-1").create_bucket(
        Bucket="costgpu-eu", CreateBucketConfiguration={"LocationConstraint": "eu-west-1"}
    )
    assert "%2Feu-west-1%2Fs3%2F" in S3Bucket("s3://costgpu-eu").presign_put("a", 60)


@pytest.mark.parametrize("url", ["costgpu-lab", "s3://", "s3:///key", "gs://costgpu-lab", "s3://UPPER/x", "s3://a b"])
def test_what_is_no_bucket(url: str) -> None:
    with pytest.raises(InvalidRequest, match="is not a bucket"):
        S3Bucket(url)


def test_a_bucket_that_is_not_there(cloud: RunningEc2) -> None:
    with pytest.raises(InvalidRequest, match="no bucket costgpu-nowhere"):
        S3Bucket("s3://costgpu-nowhere/x").presign_put("a", 60)


def test_an_object_that_is_not_there_leaves_no_file(bucket: S3Bucket, tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest, match="NoSuchKey"):
        bucket.download("nothing", tmp_path / "file")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("seconds", [0, -1, 7 * 24 * 3600 + 1])
def test_how_long_a_url_can_hold(bucket: S3Bucket, seconds: float) -> None:
    with pytest.raises(InvalidRequest, match="presigned URL"):
        bucket.presign_put("a", seconds)


def test_a_name_that_another_one_begins_with(bucket: S3Bucket) -> None:
    put(bucket.presign_put("r1/logs.tar.gz.part", 60), b"x")
    assert not bucket.exists("r1/logs.tar.gz")
    assert bucket.exists("r1/logs.tar.gz.part")


def test_credentials_and_network_are_told_apart(cloud: RunningEc2, bucket: S3Bucket, tmp_path: Path) -> None:
    bucket.presign_put("a", 60)
    cloud.fault({"action": "ListObjects", "drop": True, "times": -1})
    with pytest.raises(Unreachable):
        bucket.exists("a")
    cloud.fault({"action": "GetObject", "code": "AccessDenied", "message": "no", "status": 403})
    with pytest.raises(AuthError, match="GetObject is not allowed"):
        bucket.download("a", tmp_path / "a")
    cloud.fault()
    cloud.expire("AKIAEMULATED")
    for question in (lambda: bucket.exists("a"), lambda: S3Bucket("s3://costgpu-lab").presign_put("a", 60)):
        with pytest.raises(AuthError, match="expired"):
            question()
    assert bucket.credentials_expire_at() is None
