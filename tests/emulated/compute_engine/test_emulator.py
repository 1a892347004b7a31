"""The emulated Compute Engine is as strict as Google: what costgpu must not send is refused, through Google's own client."""

import subprocess
import sys
from typing import Any

import pytest

from tests.cli.here import alive
from tests.emulators.compute_engine.client import RunningComputeEngine
from tests.emulators.compute_engine.google_client import Google, refused, soon
from tests.emulators.emulator_client import ROOT
from tests.until import until


def _ends(seconds: float = 600, **more: Any) -> dict[str, Any]:
    base = {"termination_time": soon(seconds), "instance_termination_action": "DELETE"}
    return {**base, "on_host_maintenance": "TERMINATE", "automatic_restart": False, **more}


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"name": "Upper"}, "resource.name"),
        ({"name": "x" * 64}, "resource.name"),
        ({"kind": "n9-standard-1"}, "does not exist in zone"),
        ({"kind": "a3-highgpu-8g", "zone": "us-central1-f"}, "does not exist in zone"),
        ({"labels": {"Owner": "x"}}, "Label key 'Owner' violates"),
        ({"labels": {"owner": "ann@laptop"}}, "Label value 'ann@laptop' violates"),
        ({"labels": {f"k{n}": "" for n in range(65)}}, "number of labels"),
        ({"tags": {"items": ["-no"]}}, "resource.tags"),
        ({"scheduling": _ends(-5)}, "at least 30 seconds"),
        ({"scheduling": _ends(20)}, "at least 30 seconds"),
        ({"scheduling": _ends(121 * 86400)}, "at most 120 days"),
        ({"scheduling": _ends(termination_time="tomorrow")}, "RFC 3339"),
        ({"scheduling": {"termination_time": soon(600)}}, "termination action"),
        ({"scheduling": {"instance_termination_action": "DELETE"}}, "can only be set"),
        ({"kind": "g2-standard-4"}, "do not support live migration"),
        ({"kind": "e2-standard-4", "gpu": "nvidia-tesla-t4"}, "not compatible"),
        ({"kind": "n1-standard-4", "gpu": "nvidia-tesla-t4", "gpus": 3}, "must be one of"),
        ({"scheduling": {"provisioning_model": "SPOT", "automatic_restart": True}}, "AutomaticRestart"),
        ({"script": "x" * 300_000}, "262144"),
        ({"zone": "us-central9-a"}, "Unknown zone"),
        ({"image": "projects/ubuntu-os-cloud/global/images/family/ubuntu-2404-lts-arm64"}, "architecture"),
        ({"image": "debian"}, "malformed"),
        ({"disks": []}, "boot disk"),
    ],
)
def test_wrong_values_are_refused_at_once(gce: RunningComputeEngine, fields: dict[str, Any], words: str) -> None:
    assert words in refused(Google(gce).insert, **fields)
    assert gce.instances() == []


def test_an_emulator_ends_with_its_starter() -> None:
    script = (
        "from tests.emulators.compute_engine.client import RunningComputeEngine; import os\n"
        "print(RunningComputeEngine.launch()._process.pid, flush=True); os._exit(0)"
    )
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True)
    until(lambda: not alive(int(done.stdout)))
