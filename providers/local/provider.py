"""The Provider protocol on this machine. It is as long as the protocol is: one method for each of its promises."""

from __future__ import annotations

import contextlib
import functools
import getpass
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, TypeVar

from costgpu.clock import Clock
from costgpu.errors import InvalidRequest, ProviderError, Unreachable
from costgpu.models.instance import CreateRequest, Endpoint, Identity, Instance, InstanceRef, InstanceState, Safeguard
from costgpu.models.offer import Offer
from costgpu.portable import clock
from costgpu.providers.base import OUR_TAGS, TAG_RUN, OrphanedResource, OwnedResources
from costgpu.providers.common import facts_in, leftover_from, our_tags
from costgpu.providers.local import retention
from costgpu.providers.local.folder import Folder, locked
from costgpu.providers.local.keeper import button, command, finish
from costgpu.providers.local.records import INSTANCE_ID, PREFIX, DamagedDocument, Facts, fingerprint, id_of

STUCK_SECONDS = 5.0  # an end that was asked for and has not come by then must be asked for again
_KEPT_VARIABLES = frozenset({"PATH", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH"})  # of the client's, for the keeper
_LOCK_SECONDS = 30.0  # another process that makes an instance takes much less
_CONSOLE_BYTES = 64 * 1024  # the last ones are shown

P = ParamSpec("P")
T = TypeVar("T")


def _translated(
    method: Callable[Concatenate[LocalProvider, P], T],
) -> Callable[Concatenate[LocalProvider, P], T]:
    @functools.wraps(method)
    def wrapped(self: LocalProvider, /, *args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return method(self, *args, **kwargs)
        except OSError as exc:
            words = os.strerror(exc.errno) if exc.errno else str(exc)
            raise ProviderError(
                f"The folder of local instances, {self.folder}, cannot be used: {words}.",
                hint="Free some space, or set XDG_DATA_HOME to a folder that you may write.",
            ) from exc

    return wrapped


class LocalProvider:
    """Instances on this machine.

    Args:
        folder: Holds one folder for each instance; made if need be.
        clock: Tells when an instance is launched. Their keepers go by the system's time.
    """

    name = "local"  # or that of a provider whose machines are processes here, too
    region = "local"

    def __init__(self, folder: Path, clock: Clock) -> None:
        self.folder = folder.absolute()
        self._clock = clock

    def identity(self) -> Identity:
        """User and host."""
        try:
            user = getpass.getuser()
        except (KeyError, OSError):
            user = str(os.getuid())
        return Identity(provider=self.name, account=socket.gethostname(), principal=user, source="this machine")

    @_translated
    def check(self, request: CreateRequest) -> None:
        """Check that an instance can live here: Linux with a shell, and a folder that can be written."""
        if sys.platform != "linux" or shutil.which("sh", path="/bin:/usr/bin") is None:
            raise InvalidRequest("Runs on this computer need Linux, with /bin/sh.")
        if request.offer.region != self.region or request.zone is not None:
            place = request.zone or request.offer.region
            raise InvalidRequest(f"There is no {place!r} on this machine: its only region is {self.region!r}.")
        if taken := set(request.tags) & set(OUR_TAGS):
            raise InvalidRequest(f"The tag {min(taken)} is costgpu's own.")
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=self.folder):
            pass

    def layers(self, request: CreateRequest) -> tuple[Safeguard, ...]:
        """Name the keeper, and the shell that starts it again."""
        until = request.lease_until
        return (
            Safeguard(
                name="create call",
                armed=True,
                detail="its keeper ends everything of the instance at the lease, by either clock",
                deadline=until,
            ),
            Safeguard(
                name="watchdog",
                armed=True,
                detail="a loop of its own starts the keeper again if that is killed",
                deadline=until,
            ),
        )

    def zones(self, offer: Offer) -> tuple[str | None, ...]:
        """Return no zone, which is the only place here."""
        if offer.region != self.region:
            raise InvalidRequest(
                f"There is no region {offer.region!r} on this machine: its only one is {self.region!r}."
            )
        return (None,)

    @_translated
    def create(self, request: CreateRequest) -> Instance:
        """Make the folder and start its keeper; the same token gets the same instance as long as its folder is there."""
        self.check(request)
        instance_id = id_of(request.token)
        home = Folder(self.folder / instance_id)
        with locked(self.folder / ".lock", _LOCK_SECONDS) as alone:
            if not alone:
                raise Unreachable(f"{self.folder} is locked by another process.")
            facts = self._read_facts(home)
            if facts is None:
                retention.forget_old(self._homes())
                self._write(home, request)
            elif facts.fingerprint != fingerprint(request):
                raise InvalidRequest(f"The token {request.token} was used with other parameters.")
            if not home.has("keeper.json") and not home.has("terminated.json"):
                self._start_keeper(home)
        found = self._describe(home)
        if found is None:
            raise Unreachable(f"{home.path} vanished while it was made.")
        return found

    @_translated
    def find(self, request: CreateRequest) -> Instance | None:
        """By token."""
        return self._describe(Folder(self.folder / id_of(request.token)))

    @_translated
    def describe(self, ref: InstanceRef) -> Instance | None:
        """By the instance's folder."""
        return self._describe(self._home(ref)) if INSTANCE_ID.fullmatch(ref.instance_id) else None

    @_translated
    def terminate(self, ref: InstanceRef) -> None:
        """End everything of it here and now; its keeper goes on where this process is killed meanwhile."""
        home = self._home(ref)
        if not INSTANCE_ID.fullmatch(ref.instance_id) or (facts := self._facts(home)) is None:
            return
        if not _is_over(home, facts):
            _finish(home, {"by": "client", "reason": "user initiated", "at": time.time()})

    @_translated
    def open_access(self, instance: Instance, allow_from: str) -> None:  # noqa: ARG002 - there is no port to open
        """Nothing is closed on this machine."""
        home = self._home(instance.ref)
        if self._facts(home) is None:
            raise _not_ours(home)

    @_translated
    def clean_up(self, run_id: str, region: str) -> tuple[OrphanedResource, ...]:
        """Empty the folders of the run's terminated instances, except logs, and except outputs that nobody fetched."""
        left: list[OrphanedResource] = []
        for home in self._homes():
            is_named = home.path.name.startswith(f"{PREFIX}{run_id}-")
            try:
                facts = self._facts(home)
            except ProviderError:
                if is_named:
                    raise
                continue  # another run's: `list_owned` names it
            if facts is None or facts.tags[TAG_RUN] != run_id or facts.region != region:
                continue
            instance = self._describe(home)
            if instance is not None and instance.state.alive:
                left.append(leftover_from(self.name, region, "folder", str(home.path), facts.tags))
            else:
                retention.clean(home)
        return tuple(left)

    def remove(self, leftover: OrphanedResource) -> bool:
        """There is nothing to remove: a run leaves nothing here but the folder of its instance, with its logs.

        Raises:
            InvalidRequest: It is something else.
        """
        raise InvalidRequest(f"{leftover.resource_id} is nothing that costgpu leaves behind on this machine.")

    @_translated
    def list_owned(self, regions: Sequence[str] | None = None) -> OwnedResources:
        """Return every instance folder. One that another machine writes (a shared home) is named, and left alone."""
        found: list[Instance] = []
        closed = [(region, "no such region") for region in regions or () if region != self.region]
        unreadable: list[str] = []
        for home in self._homes() if regions is None or self.region in regions else ():
            try:
                instance = self._describe(home)
            except InvalidRequest:
                continue
            except ProviderError as error:
                unreadable.append(error.message)
                continue
            except (OSError, ValueError) as error:  # one that cannot be read keeps none of the others alive
                unreadable.append(f"{home.path} cannot be read: {error}.")
                continue
            if instance is not None:
                found.append(instance)
        if unreadable:
            closed.append((self.region, " ".join(unreadable)))
        return OwnedResources(
            instances=tuple(found),
            unreachable=tuple(closed),
            told_at=datetime.fromtimestamp(clock.system_time(), UTC),
        )

    @_translated
    def console(self, ref: InstanceRef) -> str:
        """Return what the keeper and the agent said."""
        if not INSTANCE_ID.fullmatch(ref.instance_id):
            return ""
        try:
            with (self._home(ref).path / "console.log").open("rb") as file:
                file.seek(max(0, os.fstat(file.fileno()).st_size - _CONSOLE_BYTES))
                return file.read(_CONSOLE_BYTES).decode(errors="replace")
        except OSError:
            return ""

    # -- the folder -----------------------------------------------------------------------------------------------------

    def _home(self, ref: InstanceRef) -> Folder:
        return Folder(self.folder / ref.instance_id)

    def _homes(self) -> Iterator[Folder]:
        if self.folder.is_dir():
            for path in sorted(self.folder.iterdir()):
                if INSTANCE_ID.fullmatch(path.name) and path.is_dir() and not path.is_symlink():
                    yield Folder(path)

    def _write(self, home: Folder, request: CreateRequest) -> None:
        """Write the whole folder, and only then give it its name."""
        now = self._clock.now()
        lifetime = (request.lease_until - now).total_seconds()
        tags = {**request.tags, **our_tags(request)}
        facts = {
            "tags": tags,
            "region": request.offer.region,
            "instance_type": request.offer.instance_type,
            "launched_epoch": now.timestamp(),
            "lease_epoch": request.lease_until.timestamp(),
            "lifetime_seconds": lifetime,
            "fingerprint": fingerprint(request),
            "host": socket.gethostname(),
            "boot_id": clock.boot_id(),
        }
        with tempfile.TemporaryDirectory(dir=self.folder, prefix=".new-") as name:
            fresh = Folder(Path(name) / "home")
            fresh.path.mkdir(mode=0o700)
            switch = fresh.path / "poweroff"
            switch.write_text(button(home.path), encoding="utf-8")
            switch.chmod(0o700)
            fresh.write_once("instance.json", facts)
            if home.path.is_dir():
                raise _not_ours(home)
            fresh.path.rename(home.path)

    def _start_keeper(self, home: Folder) -> None:
        """By way of a shell that ends at once: the keeper is nobody's child, and no client ever waits for it."""
        loop = 'until "$@"; do [ -e "$0" ] || exit; sleep 1; done </dev/null >/dev/null 2>>keeper.log &'
        with contextlib.suppress(subprocess.TimeoutExpired):
            subprocess.run(
                ["/bin/sh", "-c", loop, str(home.path), *command("keep", home.path)],
                cwd=home.path,
                env={key: value for key, value in os.environ.items() if key in _KEPT_VARIABLES},
                check=True,
                start_new_session=True,
                timeout=30,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )

    def _read_facts(self, home: Folder) -> Facts | None:
        """Return what it is; None if that is not written.

        Raises:
            ProviderError: Its record is damaged.
        """
        try:
            return home.facts()
        except DamagedDocument as error:
            raise ProviderError(
                f"What is known of the local instance {home.path.name} cannot be read ({error}). Its keeper ends it at its"
                " lease all the same.",
                hint=f"To end it now: sh {home.path / 'poweroff'}. If nothing of it is needed after that, remove the folder"
                f" {home.path}.",
            ) from error

    def _facts(self, home: Folder) -> Facts | None:
        """Return what it is; None if there is none of the name, or it is over and its job has removed its record.

        Raises:
            InvalidRequest: It is not ours.
            Unreachable: Another machine's.
            ProviderError: Its record is damaged, or gone while something of it runs.
        """
        if not home.path.is_dir():
            return None
        facts = self._read_facts(home)
        if facts is None:
            if running := " ".join(str(one.pid) for one in home.members()):
                raise ProviderError(
                    f"The record of the local instance {home.path.name} is gone, and processes of it run: {running}.",
                    hint=f"End them by hand: kill -9 {running}",
                )
            if home.has("terminated.json"):
                return None
        if facts is None or TAG_RUN not in facts.tags:
            raise _not_ours(home)
        if facts.host != socket.gethostname():
            raise Unreachable(f"{home.path.name} lives on {facts.host}, not on this machine: ask there.")
        return facts

    def _describe(self, home: Folder) -> Instance | None:
        facts = self._facts(home)
        if facts is None:
            return None
        state = self._state(home, facts)
        over = home.ending("terminated.json")
        return Instance(
            ref=InstanceRef(provider=self.name, region=facts.region, instance_id=home.path.name),
            zone=None,
            instance_type=facts.instance_type,
            state=state,
            reason=retention.reason_of(home, over) if state is InstanceState.TERMINATED else "",
            launched_at=datetime.fromtimestamp(facts.launched_epoch, UTC),
            ended_at=datetime.fromtimestamp(over.at, UTC) if over is not None else None,
            endpoint=Endpoint(kind="local", folder=str(home.path)) if state is InstanceState.RUNNING else None,
            private_address="127.0.0.1",
            **facts_in(facts.tags),
        )

    def _state(self, home: Folder, facts: Facts) -> InstanceState:
        """Return the truth, also if the keeper was killed, or the machine restarted."""
        if _is_over(home, facts):
            return InstanceState.TERMINATED
        same_boot = clock.boot_id() == facts.boot_id
        with locked(home.path / "keeper.lock", 0.0) as alone:  # no keeper begins while this decides
            begun, asked = home.has("keeper.json"), home.ending("end.json")
            if same_boot and (not alone or home.members()):
                if asked is not None and time.time() - asked.at <= STUCK_SECONDS:
                    return InstanceState.TERMINATING
                return InstanceState.RUNNING if alone or begun or asked is not None else InstanceState.PENDING
            if same_boot and asked is None and not begun and time.time() < facts.lease_epoch:
                return InstanceState.PENDING  # nothing was started: the same create call does it
            if _is_over(home, facts):
                return InstanceState.TERMINATED
            reason = "its processes are gone" if begun else "lease expired"
            lost = {"by": "lost", "reason": reason if same_boot else "this machine was restarted", "at": time.time()}
            return InstanceState.TERMINATED if _finish(home, lost) else InstanceState.RUNNING


def _is_over(home: Folder, facts: Facts) -> bool:
    """Return whether it is written that it is over, and true: a job can write it, too."""
    return home.has("terminated.json") and (clock.boot_id() != facts.boot_id or not home.members())


def _finish(home: Folder, ending: dict[str, Any]) -> bool:
    """End what runs; whether nothing runs any more. Where that cannot be written down, it is asked again next time."""
    try:
        return finish(home, ending)
    except OSError:
        return not home.members()


def _not_ours(home: Folder) -> InvalidRequest:
    return InvalidRequest(f"{home.path} does not carry the tag {TAG_RUN}: it is not ours, and stays as it is.")
