"""No cloud is named in the code outside its adapter: whatever is special about one stands in its `ProviderSpec`."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

CLOUD = re.compile(r"(aws|gcp)(_\w+)?|AWS|GCP|Amazon.*|Google Cloud.*")
ADAPTERS = ("providers/aws/", "providers/gcp/")
REGISTRY = "providers/registry.py"


def named(source: str) -> Iterator[str]:
    """The clouds that a module's code names: as a whole text, or as the beginning of an identifier."""
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and CLOUD.fullmatch(node.value):
            yield node.value
        if isinstance(node, ast.Attribute) and re.match(r"(aws|gcp)_", node.attr):
            yield node.attr
        if isinstance(node, ast.keyword) and re.match(r"(aws|gcp)_", node.arg or ""):
            yield str(node.arg)
        if isinstance(node, ast.ImportFrom) and re.match(r"costgpu\.providers\.(aws|gcp)\b", node.module or ""):
            yield str(node.module)


def breaches(root: Path) -> dict[str, list[str]]:
    """File -> the clouds that it names."""
    found = {}
    for folder in ("costgpu", "providers", "pricing"):
        for path in sorted((root / folder).rglob("*.py")):
            name = str(path.relative_to(root))
            clouds = list(named(path.read_text()))
            if clouds and not name.startswith(ADAPTERS):
                found[name] = clouds
    return found


def test_no_cloud_is_named_outside_its_adapter(root: Path) -> None:
    assert breaches(root) == {REGISTRY: ["aws", "gcp"]}


@pytest.mark.parametrize(
    "line",
    [
        'if provider == "aws":',
        'PRICES = {"gcp": 0.1}',
        'NAMES = ["Google Cloud"]',
        "settings.aws_subnet",
        "load(gcp_project=project)",
        'value = found["gcp_project"]',
        "from costgpu.providers.aws.bucket import S3Bucket",
    ],
)
def test_a_planted_breach_is_seen(tmp_path: Path, line: str) -> None:
    place = tmp_path / "pricing" / "catalog.py"
    place.parent.mkdir()
    place.write_text(f"{line}\n    pass\n" if line.endswith(":") else f"{line}\n")
    assert list(breaches(tmp_path)) == ["pricing/catalog.py"]


def test_examples_for_people_are_no_breach() -> None:
    assert not list(named('"""As aws/us-east-1."""\nhelp="Place: aws, aws/us-east-1."'))
