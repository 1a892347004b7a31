"""The command line and the Python interface on the fake cloud, in this process and in simulated time."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from costgpu.clock import ManualClock
from costgpu.pricing import hardware
from costgpu.providers import registry
from tests.fake_cloud import SPEC, FakeCloud, JobScript

OFFERS = Path(__file__).parent / "fake_offers.csv"
CPUS = Path(__file__).parent / "fake_cpus.csv"
ON_FAKE = ("--infra", "fake", "-t", "f1.gpu")
JOB = JobScript(seconds=60, stdout=[(1.0, b"step 1\n")], outputs={"model.pt": b"weights"}, checkpoint={"part.pt": b"1"})


@pytest.fixture
def cloud(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeCloud]:
    """A cloud with one machine type; the current folder has a script `train.py`."""
    found = FakeCloud(ManualClock(), script=JOB)
    spec = replace(
        SPEC,
        adapter=lambda _config: found.provider(),
        has_credentials=lambda: True,
        offers_file=OFFERS,
        cpus_file=CPUS,
    )
    monkeypatch.setitem(registry._registered, SPEC.name, spec)
    hardware.cpus.cache_clear()
    monkeypatch.setattr("costgpu.clock.SystemClock", lambda: found.clock)
    monkeypatch.setattr("costgpu.runner.machine.connect.connect", found.connect)
    monkeypatch.setenv("COSTGPU_CALLER_ADDRESS", "192.0.2.1/32")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    project = tmp_path / "project"
    project.mkdir()
    (project / "train.py").write_text("print('step 1')\n")
    monkeypatch.chdir(project)
    yield found
    hardware.cpus.cache_clear()
    assert not [instance for instance in found.provider().list_owned(None).instances if instance.state.alive]
