"""The end of a run: outputs home, the machine ended and confirmed, the receipt."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from costgpu.errors import CostGpuError, HostUnreachable, OutputsMissing, ProviderError, RunError
from costgpu.models.job import EndReason
from costgpu.models.run import EndedBy, EventKind
from costgpu.runner.drive import termination
from costgpu.runner.drive.collect import land, landed, unreadable, write_entries
from costgpu.runner.drive.follow import gone, lost_for_now
from costgpu.runner.drive.provision import created, find
from costgpu.runner.drive.receipt import close, request_of

if TYPE_CHECKING:
    from costgpu.runner.drive.loop import Driver

COLLECT_SECONDS = 600.0  # how long a lost connection may keep the outputs from coming home


def collect(driver: Driver) -> None:
    """Brings the outputs home, verified; then the machine has done its work."""
    status = driver.view.status
    assert status is not None  # noqa: S101 - collecting begins with it
    if not driver.view.collected:
        try:
            _bring_home(driver)
        except HostUnreachable as error:
            now = driver.tools.clock.monotonic()
            driver.lost_since = now if driver.lost_since is None else driver.lost_since
            if now - driver.lost_since > COLLECT_SECONDS:
                _keep_there(driver, error)
            lost_for_now(driver, error)
            return
        except ProviderError:
            raise
        except CostGpuError as error:  # no space here, a damaged file: the outputs stay safe where they are
            _keep_there(driver, error)
        except OSError as error:
            _keep_there(driver, RunError(f"The logs and outputs cannot be kept here: {error.strerror or error}."))
    if not driver.view.spec.auto_shutdown and not driver.cancelling:
        ref = driver.view.instance
        assert ref is not None  # noqa: S101 - collecting has one
        if not gone(driver, driver.provider().describe(ref)):
            driver.leave()
        return
    driver.end(status.reason or EndReason.SUCCEEDED, EndedBy.CLIENT, None)


def terminate(driver: Driver) -> None:
    """Asks, waits for proof, cleans up, closes."""
    driver.let_go()
    view, clock, provider = driver.view, driver.tools.clock, driver.provider()
    if view.instance is None:
        found = find(driver)
        if found is None:
            left = termination.clean_up(provider, view.run_id, request_of(driver).offer.region, clock)
            close(driver, view.reason or EndReason.PROVISION_FAILED, EndedBy.NOTHING_CREATED, left)
        else:
            created(driver, found)
        return
    if view.confirmed_at is None:
        driver.observer.waiting(view, f"ending {view.instance.instance_id}")
        termination.terminate(provider, view.instance, clock)
        instance = termination.confirm(provider, view.instance, clock, known_since=view.known_since or clock.now())
        termination.confirmed(driver, instance, view.reason or EndReason.CANCELLED, "")
    left = termination.clean_up(provider, view.run_id, view.instance.region, clock)
    reason = driver.view.reason or EndReason.INSTANCE_LOST
    close(driver, reason, driver.view.ending_by or EndedBy.SOMEBODY_ELSE, left)


def _bring_home(driver: Driver) -> None:
    view, host = driver.view, driver.talk()
    driver.observer.waiting(view, "bringing outputs home")
    host.fetch_logs(driver.folder)
    outputs = host.outputs()
    if outputs.missing and view.status is not None and view.status.exit_code == 0:
        driver.error = driver.error or OutputsMissing(
            f"The job ended well, but {', '.join(outputs.missing)} is not there.",
            hint="--outputs are paths or patterns relative to the working folder.",
        )
    write_entries(driver.folder, outputs.files)
    if outputs.unreadable:
        land(driver, host, outputs.files)
        raise unreadable(outputs)
    landed(driver, host, outputs.files, outputs.missing)
    with contextlib.suppress(CostGpuError):
        host.collected()


def _keep_there(driver: Driver, error: CostGpuError) -> None:
    until = driver.view.lease_until
    assert until is not None  # noqa: S101 - a machine has a lease
    error.hint = (
        f"{error.hint} The outputs wait on the machine until {until:%Y-%m-%d %H:%M} UTC, when it is ended:"
        f" costgpu fetch {driver.view.run_id}; to give them up: costgpu cancel --now {driver.view.run_id}"
    ).strip()
    driver.record.add(EventKind.DETACHED, because=error.message)
    raise error
