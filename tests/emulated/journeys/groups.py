"""What journeys of jobs on two machines share in any cloud."""

from tests.emulated.journeys.journey import WAITS, Client, Person

TWO = ("--nodes", "2")
BARE = (*TWO, "--launcher", "none")


def both_begun(person: Person, *options: str, cap: str) -> Client:
    """A job that waits, which has begun on both machines."""
    person.write(WAITS)
    client = person.launch(*BARE, *options, cap=cap)
    client.until(lambda: b"begun" in client.out, 120, "the job runs on machine 0")
    there = ("test", "-e", "/opt/costgpu/work/partial")
    second = person.guest(run_id=person.run_ids()[1])
    client.until(lambda: second.run(*there, check=False).returncode == 0, what="the job runs on machine 1")
    return client
