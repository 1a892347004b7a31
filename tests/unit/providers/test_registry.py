"""Providers by name, and what is not imported on the way."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from costgpu.clock import ManualClock
from costgpu.errors import InvalidRequest
from costgpu.providers import registry
from costgpu.providers.local import LocalProvider


def test_this_machine_lives_in_the_data_folder() -> None:
    found = registry.provider("local", clock=ManualClock(), subnet=None)
    assert isinstance(found, LocalProvider)
    assert found.folder.parent.name == "costgpu"
    assert not found.folder.exists()


def test_a_folder_of_ones_own(tmp_path: Path) -> None:
    found = registry.provider("local", clock=ManualClock(), local_folder=tmp_path, subnet="subnet-1")
    assert isinstance(found, LocalProvider)
    assert found.folder == tmp_path


def test_each_adapter_takes_its_own_options() -> None:
    found = registry.provider(
        "gcp", clock=ManualClock(), gcp_project="research-42", gcp_network="lab", subnet="subnet-1"
    )
    assert found.name == "gcp"
    with pytest.raises(InvalidRequest, match="no image"):
        registry.provider("gcp", clock=ManualClock(), gcp_image="ami-12345678")
    with pytest.raises(InvalidRequest, match="no network"):
        registry.provider("gcp", clock=ManualClock(), gcp_network="a/b/c")


@pytest.mark.parametrize("name", ["fake", "azure", ""])
def test_unknown_names(name: str) -> None:
    with pytest.raises(InvalidRequest, match="no provider") as caught:
        registry.provider(name, clock=ManualClock())
    assert "local" in caught.value.hint


def test_unknown_options() -> None:
    with pytest.raises(TypeError, match="subnett"):
        registry.provider("local", clock=ManualClock(), subnett="x")


def test_nothing_heavy_is_imported_before_it_is_needed() -> None:
    code = (
        "import sys\n"
        "from costgpu.clock import SystemClock\n"
        "from costgpu.providers import registry\n"
        "names = {registry.provider(name, clock=SystemClock()).name for name in ('local', 'aws', 'gcp')}\n"
        "heavy = {'boto3', 'botocore', 'google.cloud', 'google.auth', 'psutil', 'tests.fake_cloud'}\n"
        "print(registry.has_credentials('gcp'), sorted(names), sorted(heavy & set(sys.modules)))"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "False ['aws', 'gcp', 'local'] []"


def test_credentials_are_looked_for_in_the_usual_places(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    assert registry.has_credentials("local")
    assert not registry.has_credentials("gcp")
    assert not registry.has_credentials("aws")
    monkeypatch.setenv("AWS_PROFILE", "research")
    assert registry.has_credentials("aws")
    monkeypatch.delenv("AWS_PROFILE")
    (tmp_path / "config").write_text("[default]\n")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    assert registry.has_credentials("aws")


def test_googles_credentials_are_looked_for_without_google(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("NO_GCE_CHECK", "true")
    assert not registry.has_credentials("gcp")
    monkeypatch.setenv("CLOUDSDK_CONFIG", str(tmp_path))
    assert not registry.has_credentials("gcp")
    (tmp_path / "application_default_credentials.json").write_text("{}")
    assert registry.has_credentials("gcp")
    monkeypatch.delenv("CLOUDSDK_CONFIG")
    usual = Path("~/.config/gcloud").expanduser()
    usual.mkdir(parents=True)
    assert not registry.has_credentials("gcp")
    (usual / "application_default_credentials.json").write_text("{}")
    assert registry.has_credentials("gcp")
    (usual / "application_default_credentials.json").unlink()
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", "/somewhere.json")
    assert registry.has_credentials("gcp")
