"""A provider from a package of its own: offers, plan, run and reap on the command line, without a change in costgpu."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

pytestmark = pytest.mark.packaging
Costgpu = Callable[..., "subprocess.CompletedProcess[str]"]
RUN = ("run", "--infra", "lab", "--no-estimate", "-t", "bench-2", "--python", sys.executable, "--max-cost", "1", "-y")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The example as it is installed: a wheel, built without the network."""
    target = tmp_path_factory.mktemp("site")
    options = ["--quiet", "--no-deps", "--no-index", "--no-build-isolation", "--no-cache-dir", "--target", str(target)]
    source = tmp_path_factory.mktemp("source") / "example"
    subprocess.run(["cp", "-r", str(Path(__file__).parent), str(source)], check=True)
    subprocess.run([sys.executable, "-m", "pip", "install", *options, str(source)], check=True)
    return target


@pytest.fixture
def costgpu(site: Path, root: Path, tmp_path: Path) -> Costgpu:
    """The command line of somebody who has installed it, in a folder with a script."""
    project = tmp_path / "project"
    project.mkdir()
    (project / "train.py").write_text(
        "from pathlib import Path\nPath('out.txt').write_text('trained')\nprint('done')\n"
    )
    (project / "endless.py").write_text("import time\nprint('going on', flush=True)\nwhile True: time.sleep(60)\n")
    environment = {**os.environ, "PYTHONPATH": f"{site}:{root}", "COSTGPU_LAB_FOLDER": str(tmp_path / "machines")}

    def call(*words: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "costgpu", *words]
        return subprocess.run(
            command, check=False, cwd=project, env=environment, capture_output=True, text=True, timeout=120
        )

    return call


def test_its_offers_and_what_the_doctor_says(costgpu: Costgpu, tmp_path: Path) -> None:
    told = costgpu("offers", "--infra", "lab", "--json")
    offers = json.loads(told.stdout)["offers"]
    assert {(offer["instance_type"], offer["region"]) for offer in offers} == {
        ("bench-2", "basement"),
        ("bench-8", "basement"),
    }, told.stderr
    assert str(tmp_path / "machines") in costgpu("doctor", "--infra", "lab").stdout
    assert "does not" not in costgpu("prices").stderr


def test_plan_run_and_reap(costgpu: Costgpu, tmp_path: Path) -> None:
    plan = costgpu(*RUN, "--dry-run", "--json", "train.py")
    assert plan.returncode == 0, plan.stderr
    (option, *_) = json.loads(plan.stdout)["plan"]["options"]
    assert option["offer"]["provider"] == "lab"
    assert float(option["extras_usd_per_hour"]) == pytest.approx(50 * 0.02 / 730, abs=1e-6)  # the disk's price
    assert not list((tmp_path / "machines").glob("local-*"))

    done = costgpu(*RUN, "--outputs", "out.txt", "train.py")
    assert done.returncode == 0, done.stderr
    assert "done" in done.stdout + done.stderr
    assert (tmp_path / "project" / "out.txt").read_text() == "trained"
    rows = costgpu("ledger", "export", "--format", "focus").stdout
    assert "The Lab" in rows
    assert "lab:bench-2" in rows
    assert costgpu("reap", "--infra", "lab").returncode == 0

    started = costgpu(*RUN, "--detach", "endless.py")
    assert started.returncode == 0, started.stderr
    (home,) = [path for path in (tmp_path / "machines").glob("local-*") if not (path / "terminated.json").exists()]
    facts = json.loads((home / "instance.json").read_text())
    facts["tags"]["costgpu-lease-until"] = "1000000000"  # somebody's clock, or somebody's hand: its lease is over
    (home / "instance.json").write_text(json.dumps(facts))
    found = costgpu("reap", "--infra", "lab")
    assert (found.returncode, home.name in found.stdout) == (48, True), found.stderr
    assert costgpu("reap", "--infra", "lab", "--yes").returncode == 48
    assert (home / "terminated.json").exists()
    assert costgpu("reap", "--infra", "lab").returncode == 0
