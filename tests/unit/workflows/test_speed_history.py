"""Earlier runs of a job count where it ran on as many machines, and only there."""

from datetime import UTC, datetime

from costgpu.ledger import Ledger
from costgpu.models.workload import key_on
from costgpu.workflows.estimate.speed_history import SpeedHistory
from tests.job.examples import offer
from tests.unit.ledger.closed import Closed, plant
from tests.unit.workflows.reporter import ListReporter

AT = datetime(2026, 11, 20, 8, tzinfo=UTC)


def test_a_speed_is_that_of_so_many_machines() -> None:
    place = offer("us-east-1", provider="aws", kind="g5.xlarge")
    with Ledger.open("sqlite://") as ledger:
        plant(
            ledger,
            [
                Closed(started=AT, job_seconds=3000.0, workload=key_on("w", 1)),
                Closed(started=AT, job_seconds=1600.0, workload=key_on("w", 2)),
            ],
        )
        history = SpeedHistory("w", ListReporter(), ledger=ledger)
        found = {nodes: history.speed(place, nodes) for nodes in (1, 2, 4)}
    seconds = {nodes: None if speed is None else speed.job_seconds for nodes, speed in found.items()}
    assert seconds == {1: 3000.0, 2: 1600.0, 4: None}
    assert key_on("", 2) == ""
