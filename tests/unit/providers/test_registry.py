"""Providers by name, what is not imported on the way, and what other packages register."""

import subprocess
import sys
from dataclasses import replace
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from costgpu.clock import ManualClock
from costgpu.errors import ConfigError, InvalidRequest, PriceNotFound
from costgpu.models.instance import InstanceRef
from costgpu.providers import registry
from costgpu.providers.local.provider import LocalProvider
from costgpu.providers.spec import ProviderConfig


def config(folder: Path = Path("/nowhere"), **settings: str) -> ProviderConfig:
    return ProviderConfig(clock=ManualClock(), data_folder=lambda: folder, settings=settings)


def test_this_machine_lives_in_the_data_folder(tmp_path: Path) -> None:
    found = registry.spec("local").adapter(config(tmp_path / "data"))
    assert isinstance(found, LocalProvider)
    assert (
        [name for name in registry.BUILT_IN if registry.is_here(name)] == [registry.this_computer().name] == ["local"]
    )
    assert found.folder == tmp_path / "data" / "machines"
    assert not found.folder.exists()


def test_an_adapter_is_made_with_its_settings() -> None:
    spec = registry.spec("gcp")
    assert spec.adapter(config(project="research-42", network="lab", billing_table="a.b.c")).name == "gcp"
    with pytest.raises(InvalidRequest, match="no image"):
        spec.adapter(config(image="ami-12345678"))
    with pytest.raises(InvalidRequest, match="no network"):
        spec.adapter(config(network="a/b/c"))


@pytest.mark.parametrize("name", ["azure", ""])
def test_unknown_names(name: str) -> None:
    assert registry.find(name) is None
    assert (registry.is_here(name), registry.label(name)) == (False, "")
    with pytest.raises(InvalidRequest, match="no provider") as caught:
        registry.spec(name)
    assert "local" in caught.value.hint
    with pytest.raises(PriceNotFound, match="disk"):
        registry.costs(name)


def test_every_provider_has_prices_of_its_disk_and_names_for_focus() -> None:
    for spec in map(registry.spec, registry.BUILT_IN):
        assert registry.costs(spec.name).extras_usd_per_hour(100) >= (0.01 if spec.over_ssh else 0)
        assert spec.publisher
        assert spec.service
        assert registry.find(spec.name) is spec


def test_a_provider_without_a_price_of_its_disk_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    spec = replace(registry.spec("local"), name="mute", costs=None)
    monkeypatch.setattr(registry, "_registered", {"mute": spec})
    with pytest.raises(PriceNotFound, match="mute"):
        registry.costs("mute")
    ref = InstanceRef(provider="mute", region="r", instance_id="i-1")
    assert spec.end_by_hand(ref, "") == "costgpu cancel i-1"


def test_the_bucket_is_opened_by_its_scheme() -> None:
    assert type(registry.bucket("s3://results/x")).__name__ == "S3Bucket"
    for url in ("gs://results", "s3", "results"):
        with pytest.raises(InvalidRequest, match="not a bucket") as caught:
            registry.bucket(url)
        assert "s3://name/prefix" in caught.value.hint


def test_nothing_heavy_is_imported_before_it_is_needed() -> None:
    code = (
        "import sys\n"
        "from costgpu.clock import SystemClock\n"
        "from costgpu.providers import registry\n"
        "early = 'importlib.metadata' in sys.modules\n"
        "registry.spec('local').has_credentials()\n"
        "early |= 'importlib.metadata' in sys.modules\n"
        "heavy = {'boto3', 'botocore', 'google.cloud', 'google.auth', 'psutil', 'pydantic'}\n"
        "print(early, registry.spec('gcp').has_credentials(), registry.names(), sorted(heavy & set(sys.modules)))"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "False False ('aws', 'gcp', 'local') []"


def test_the_sdks_are_imported_on_first_use_only() -> None:
    code = (
        "import sys; from costgpu.clock import SystemClock\n"
        "from costgpu.providers.aws import bucket, diagnostics, prices, provider\n"
        "from costgpu.providers.gcp.provider import GcpProvider\n"
        "GcpProvider(clock=SystemClock())\n"
        "print([name for name in ('boto3', 'botocore', 'google.auth', 'google.cloud.compute_v1') if name in sys.modules])"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"


def test_a_package_that_registers_a_provider_is_noticed(tmp_path: Path) -> None:
    for name, group in (("one", "console_scripts"), ("two", registry.GROUP)):
        assert not registry._registers_a_provider(str(tmp_path))
        listed = tmp_path / f"{name}-1.dist-info" / "entry_points.txt"
        listed.parent.mkdir()
        listed.write_text(f"[{group}]\nlab = lab:SPEC\n")
    assert registry._registers_a_provider(str(tmp_path))
    assert not registry._registers_a_provider(str(tmp_path / "nowhere"))


def points(monkeypatch: pytest.MonkeyPatch, **places: str) -> None:
    found = [EntryPoint(name=name, value=value, group=registry.GROUP) for name, value in places.items()]
    monkeypatch.setattr("importlib.metadata.entry_points", lambda group: found)
    monkeypatch.setattr(registry, "_registers_a_provider", lambda _: True)
    registry._entry_points.cache_clear()


def test_a_broken_package_hides_no_other_provider(monkeypatch: pytest.MonkeyPatch) -> None:
    places = {"broken": "no.such.module:SPEC", "alias": "costgpu.providers.local:SPEC", "aws": "no.such.module:SPEC"}
    points(monkeypatch, **places)
    monkeypatch.setattr(registry, "_registered", {})
    try:
        assert registry.names() == ("aws", "gcp", "local")
        assert sorted(registry.load_failures()) == ["alias", "broken"]
        for name in ("broken", "alias"):
            with pytest.raises(ConfigError, match=name):
                registry.spec(name)
    finally:
        registry._entry_points.cache_clear()


def test_a_package_that_fails_to_say_whether_it_has_credentials_is_an_error_of_ours() -> None:
    def fails() -> bool:
        raise ZeroDivisionError("its own fault")

    with pytest.raises(ConfigError, match="local fails: ZeroDivisionError: its own fault"):
        registry.has_credentials(replace(registry.spec("local"), has_credentials=fails))


def test_credentials_are_looked_for_in_the_usual_places(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    has_credentials = registry.spec("aws").has_credentials
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    assert not has_credentials()
    monkeypatch.setenv("AWS_PROFILE", "research")
    assert has_credentials()
    monkeypatch.delenv("AWS_PROFILE")
    (tmp_path / "config").write_text("[default]\n")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    assert has_credentials()


def test_googles_credentials_are_looked_for_without_google(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    has_credentials = registry.spec("gcp").has_credentials
    assert not has_credentials()
    monkeypatch.setenv("CLOUDSDK_CONFIG", str(tmp_path))
    assert not has_credentials()
    (tmp_path / "application_default_credentials.json").write_text("{}")
    assert has_credentials()
    monkeypatch.delenv("CLOUDSDK_CONFIG")
    usual = Path("~/.config/gcloud").expanduser()
    usual.mkdir(parents=True)
    assert not has_credentials()
    (usual / "application_default_credentials.json").write_text("{}")
    assert has_credentials()
    (usual / "application_default_credentials.json").unlink()
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", "/somewhere.json")
    assert has_credentials()
