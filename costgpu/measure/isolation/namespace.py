"""A program of its own: runs a command in a copy-on-write view of this machine's files (Linux 5.12 or newer).

    python -I -S namespace.py SPEC.json COMMAND [ARGUMENT ...]

It imports nothing but the standard library and is one file, since it runs by itself. The command gets a user, a mount and
a PID namespace of its own, which needs no privilege. Its root is put together anew: an overlay lies over every folder that
may be written, devices and sockets are this machine's own, and the kernel's control files are read-only. One overlay over
all of ``/`` is not possible: what is mounted below it is locked in a user namespace. The namespaces end with their last
process, and that ends with costgpu, so that nothing is left mounted or running whoever is killed.

Bubblewrap would make the namespaces, but it is seldom installed, and what is hard (which overlays, which sockets and
devices) would be left to us.

The spec: ``layers`` (folder for what is written), ``open`` (folders that are really written), ``needed`` (folders that
must be writable, else it fails), ``wanted`` (others that should be, if they are now), ``report`` (file descriptor to which
``ready``, or the stage that failed and why, is written), ``parent`` (process with which it ends), ``own_processes``
(whether there is to be a PID namespace), and ``watch`` (folders of which inotify is to tell, if there are any).
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import select
import signal
import stat
import sys
from collections.abc import Callable

CLONE_NEWNS, CLONE_NEWIPC, CLONE_NEWUSER, CLONE_NEWPID = 0x20000, 0x8000000, 0x10000000, 0x20000000  # linux/sched.h
MS_RDONLY, MS_NOSUID, MS_NODEV, MS_NOEXEC, MS_BIND, MS_REC, MS_PRIVATE = (
    1,
    2,
    4,
    8,
    4096,
    16384,
    1 << 18,
)  # linux/mount.h
MNT_DETACH = 2
PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_CAPBSET_DROP, CAP_SYS_ADMIN = 1, 4, 24, 21  # linux/prctl.h, linux/capability.h
SYS_MOUNT_SETATTR, AT_FDCWD, AT_RECURSIVE, MOUNT_ATTR_RDONLY = 442, -100, 0x8000, 1  # the same on every architecture
SYS_PIVOT_ROOT = {"x86_64": 155, "aarch64": 41, "riscv64": 41, "ppc64le": 203, "s390x": 217}
KERNEL_FILES = frozenset(
    "sysfs cgroup cgroup2 debugfs tracefs securityfs pstore bpf configfs efivarfs fusectl binfmt_misc nsfs"
    " rpc_pipefs mqueue hugetlbfs selinuxfs".split()
)
PROC_CONTROLS = ("sys", "sysrq-trigger", "irq", "bus", "fs", "acpi", "scsi", "driver")
# Devices that a program may use, by how their names begin. Others could reach disks past their file systems.
DEVICES = tuple(
    "null zero full random urandom tty ptmx nvidia dri kfd accel vfio dxg infiniband gdrdrv habanalabs hl neuron davinci"
    " devmm_svm hisi_hdc apex mali snd video media userfaultfd".split()
)
NO_DEVICES = ("ttyS", *(f"tty{digit}" for digit in range(10)))  # other terminals
MAX_PARTS = 2000  # entries of a folder with mounts beneath that are put together one by one, about 0.5 ms each
MAX_COPIED = (
    1 << 20
)  # bytes of a file in such a folder that is copied, while half the memory is free; others are read-only
SKELETON_BYTES = 64 << 20  # of memory, for those copies and for new files in such folders
MAX_SOCKETS = 256
SET_UP_FAILED = 125  # exit status

libc = ctypes.CDLL(None, use_errno=True)


class MountAttributes(ctypes.Structure):
    """``struct mount_attr`` of linux/mount.h."""

    _fields_ = [(name, ctypes.c_uint64) for name in ("set", "clear", "propagation", "userns")]


def checked(result: int, what: str) -> int:
    """Return the result of a call of the C library.

    Raises:
        OSError: It failed.
    """
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")
    return result


def mount(source: str, target: str, kind: str, flags: int = 0, options: str = "") -> None:
    """Mounts a file system."""
    words = [os.fsencode(word) for word in (source, target, kind)]
    checked(libc.mount(*words, ctypes.c_ulong(flags), os.fsencode(options)), f"mount {kind} {target}")


def bind(source: str, target: str, *, read_only: bool = False) -> None:
    """Show `source` at `target`, with everything that is mounted beneath."""
    mount(source, target, "none", MS_BIND | MS_REC)
    if read_only:
        protect(target)


def protect(target: str) -> None:
    """Make a mount and all beneath read-only; devices in it can still be used."""
    attributes = MountAttributes(set=MOUNT_ATTR_RDONLY)
    size = ctypes.c_size_t(ctypes.sizeof(attributes))
    path = os.fsencode(target)
    call = libc.syscall(SYS_MOUNT_SETATTR, AT_FDCWD, path, AT_RECURSIVE, ctypes.byref(attributes), size)
    checked(call, f"protect {target}")


def die_with_parent(parent: int) -> None:
    """Have this process killed when its parent ends, even if that has happened already."""
    libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(SET_UP_FAILED)


def leave_the_old_root() -> None:
    """Nothing in this process, or forked from it, shows the command a way to the real files.

    Its program, folder and descriptors are of the old root, and the command may look into it through ``/proc``, as root
    at least; into a process that may not be dumped, only who was privileged outside may.
    """
    checked(libc.prctl(PR_SET_DUMPABLE, 0), "prctl")
    os.chdir("/")  # moves with the root


def has_no_reader(pipe: int) -> bool:
    """Return whether all who could read from a pipe have closed it, or have ended."""
    poll = select.poll()
    poll.register(pipe, 0)
    return bool(poll.poll(0))


def write_text(path: str, text: str) -> None:
    """Write a file of the kernel in one call."""
    file = os.open(path, os.O_WRONLY)
    try:
        os.write(file, text.encode())
    finally:
        os.close(file)


def enter_namespaces(flags: int) -> None:
    """User and mount namespace of our own, with the same user and groups inside as outside."""
    uid, gid, pid = os.geteuid(), os.getegid(), os.getpid()
    if uid != 0:
        checked(libc.unshare(flags), "unshare")
        write_text("/proc/self/setgroups", "deny")
        write_text("/proc/self/uid_map", f"{uid} {uid} 1")
        write_text("/proc/self/gid_map", f"{gid} {gid} 1")
        return
    # All ids as they are: files of everybody stay root's to read and write. Only a process outside may map them.
    hear, tell = os.pipe()
    mapper = os.fork()
    if mapper == 0:
        try:
            os.close(tell)
            os.read(hear, 1)
            for name in ("uid_map", "gid_map"):
                with open(f"/proc/self/{name}") as file:
                    known = [line.split() for line in file]
                write_text(f"/proc/{pid}/{name}", "".join(f"{inside} {inside} {count}\n" for inside, _, count in known))
            os._exit(0)
        except OSError:
            os._exit(1)
    os.close(hear)
    try:
        checked(libc.unshare(flags), "unshare")
    finally:
        os.close(tell)
        _, status = os.waitpid(mapper, 0)
    if status != 0:
        raise PermissionError("the user's ids cannot be mapped")


class World:
    """The new root, put together beneath a folder of the old one."""

    def __init__(self, layers: str, writable: list[str], needed: list[str], wanted: list[str]) -> None:
        self.layers, self.root = layers, os.path.join(layers, "root")
        self.writable, self.needed, self.wanted = writable, needed, wanted
        self.mounts = read_mounts()
        self.laid: list[str] = []  # folders over which an overlay lies
        self.kept: list[str] = []  # what could be shown read-only only
        self.over: list[str] = []  # folders in there that are shown over it
        self.why: dict[str, str] = {}  # folder -> why no overlay lies over it

    def build(self) -> None:
        """Everything but ``/proc``."""
        mount("none", "/", "none", MS_REC | MS_PRIVATE)
        for name in ("root", "upper", "work"):
            os.makedirs(os.path.join(self.layers, name), exist_ok=True)
        mount("costgpu", self.root, "tmpfs", MS_NOSUID | MS_NODEV, f"mode=755,size={SKELETON_BYTES}")
        self._fill("/")
        self._add_sockets()
        for path in self.writable:
            bind(path, self.root + path)
        mount("costgpu", self.root + self.layers, "tmpfs", MS_RDONLY | MS_NOSUID | MS_NODEV, "mode=700,size=4096")
        for path in self.needed:
            above, over = (innermost(path, folders) for folders in (self.kept, self.over))
            if above is not None and (over is None or len(over) <= len(above)):
                raise PermissionError(f"{path} cannot be written ({self.why.get(above, 'it is mounted read-only')})")

    def _show(self, path: str) -> None:
        """One folder, as a part of the new root."""
        target, kind = self.root + path, self.mounts.get(path, ("", False))[0]
        beneath = path + "/"
        if path in ("/proc", self.layers):
            return
        if path == "/dev":
            mount("costgpu", target, "tmpfs", MS_NOSUID, f"mode=755,size={SKELETON_BYTES}")
            self._add_devices(path)
        elif kind in KERNEL_FILES:
            bind(path, target, read_only=True)
        elif any(other.startswith(beneath) for other in self.mounts):
            self._fill(path)
        elif self.mounts.get(path, ("", False))[1] or not self._overlay(path):
            self.kept.append(path)
            bind(path, target, read_only=True)

    def _prepare(self, path: str) -> None:
        """Copy the folders that are to be written, and those above them, to the upper layer.

        The kernel would copy them with their owner, and somebody else cannot be named in our user namespace.
        """
        for needed in [*self.needed, *self.wanted] if os.geteuid() != 0 else ():
            for folder in sorted(part for part in ancestors(needed) if part.startswith(path.rstrip("/") + "/")):
                copy = self.layers + "/upper" + folder
                if not os.path.isdir(copy):
                    os.makedirs(os.path.dirname(copy), exist_ok=True)
                    os.mkdir(copy)
                    self._same_owner(folder, copy)

    def _overlay(self, path: str) -> bool:
        """Lays an overlay over a folder without mounts beneath; returns whether that was possible."""
        upper, work = self.layers + "/upper" + path, f"{self.layers}/work/{len(self.laid)}"
        self.laid.append(path)
        descriptors = []
        try:
            os.makedirs(upper, exist_ok=True)
            os.mkdir(work)
            self._prepare(path)
            self._same_owner(path, upper)
            descriptors = [os.open(folder, os.O_PATH | os.O_DIRECTORY) for folder in (path, upper, work)]
            # Descriptors, since the names of folders may have colons, commas and backslashes.
            lower_, upper_, work_ = (f"/proc/self/fd/{number}" for number in descriptors)
            options = f"lowerdir={lower_},upperdir={upper_},workdir={work_},userxattr"
            mount("overlay", self.root + path, "overlay", MS_NOSUID | MS_NODEV, options)
        except OSError as error:
            self.why[path] = str(error)
            return False
        finally:
            for number in descriptors:
                os.close(number)
        return True

    @staticmethod
    def _same_owner(original: str, copy: str) -> None:
        """Give a copy, or the upper folder that stands for an overlay, the owner and mode of the original."""
        found = os.stat(original)
        try:
            os.chown(copy, found.st_uid, found.st_gid)
            os.chmod(copy, stat.S_IMODE(found.st_mode))
        except OSError:  # somebody else's, who cannot be named here: it is ours now, to write only where it was
            writable = os.access(original, os.W_OK)
            os.chmod(copy, stat.S_IMODE(found.st_mode) & (0o1777 if writable else 0o1555))
        os.utime(copy, ns=(found.st_atime_ns, found.st_mtime_ns))

    def _fill(self, path: str) -> None:
        """Fill a folder that has mounts beneath it, entry by entry."""
        try:
            entries = sorted(os.listdir(path))
        except OSError:
            return
        if self.mounts.get(path, ("", False))[0] == "autofs":  # shows what could be mounted, too, or shows nothing
            entries = [name for name in entries if os.path.join(path, name) in self.mounts]
        target = self.root + path
        if len(entries) > MAX_PARTS:
            self.kept.append(path)
            self.why[path] = f"something is mounted in it, and it has more than {MAX_PARTS:,} entries"
            bind(path, target, read_only=True)
            self._show_over(path)
            return
        for name in (os.path.join(path, entry) for entry in entries):
            try:
                self._add(name, os.lstat(name))
            except OSError:
                continue  # what cannot be shown is not there: no access, or it has just gone
        self._same_owner(path, target)

    def _show_over(self, path: str) -> None:
        """Show what leads to folders that are to be written, over a crowded folder that is read-only itself."""
        beneath = path.rstrip("/") + "/"
        leading = [folder for folder in [*self.needed, *self.wanted, *self.writable] if folder.startswith(beneath)]
        for child in sorted({beneath + folder[len(beneath) :].partition("/")[0] for folder in leading}):
            if any(other.startswith(child + "/") for other in self.mounts):
                mount("costgpu", self.root + child, "tmpfs", MS_NOSUID | MS_NODEV, f"mode=755,size={SKELETON_BYTES}")
            self.over.append(child)
            self._show(child)

    def _add(self, path: str, found: os.stat_result) -> None:
        target = self.root + path
        if stat.S_ISLNK(found.st_mode):
            os.symlink(os.readlink(path), target)
        elif stat.S_ISDIR(found.st_mode):
            os.mkdir(target)
            self._show(path)
        elif not (stat.S_ISREG(found.st_mode) and path not in self.mounts and self._copy(path, found.st_size)):
            os.close(os.open(target, os.O_CREAT | os.O_TRUNC | os.O_WRONLY, 0o600))
            bind(path, target, read_only=True)  # which is no matter to who connects to a socket
            if stat.S_ISREG(found.st_mode):
                self.kept.append(path)

    def _copy(self, path: str, size: int) -> bool:
        """Copy a file, unless it is large or the memory is half full: new files need some. Returns whether it did."""
        room = os.statvfs(os.path.dirname(self.root + path))
        if size > MAX_COPIED or room.f_bavail * room.f_frsize < SKELETON_BYTES // 2:
            return False
        try:
            with open(path, "rb") as source, open(self.root + path, "wb") as copy:
                copy.write(source.read(MAX_COPIED))
        except OSError:
            return False
        self._same_owner(path, self.root + path)
        return True

    def _add_devices(self, path: str) -> None:
        """Devices that are used by the byte, such as GPUs: all but disks. Their nodes themselves cannot be changed."""
        for entry in os.scandir(path):
            if path == "/dev" and not self._is_used(entry):
                continue
            name, target = os.path.join(path, entry.name), os.path.join(self.root + path, entry.name)
            found = entry.stat(follow_symlinks=False)
            if name == "/dev/ptmx":
                os.symlink("pts/ptmx", target)
            elif stat.S_ISLNK(found.st_mode):
                os.symlink(os.readlink(name), target)
            elif name == "/dev/shm":  # noqa: S108 - a fresh one: what others share there is theirs
                os.mkdir(target)
                space = os.statvfs(name)
                size = space.f_blocks * space.f_frsize
                mount("costgpu", target, "tmpfs", MS_NOSUID | MS_NODEV, f"mode=1777,size={size}")
            elif stat.S_ISDIR(found.st_mode):
                os.mkdir(target)
                if name == "/dev/pts":  # the terminals of others are theirs, too
                    mount("costgpu", target, "devpts", MS_NOSUID | MS_NOEXEC, "newinstance,ptmxmode=0666,mode=0620")
                elif name in self.mounts:
                    bind(name, target, read_only=True)
                else:
                    self._add_devices(name)
            elif stat.S_ISCHR(found.st_mode):
                os.close(os.open(target, os.O_CREAT | os.O_WRONLY, 0o600))
                bind(name, target, read_only=True)

    @staticmethod
    def _is_used(entry: os.DirEntry[str]) -> bool:
        """Return True for what to show of ``/dev``: entries of `DEVICES`, links, and folders that the system mounts."""
        if entry.is_symlink() or entry.name in ("pts", "shm", "hugepages"):
            return True
        return entry.name.startswith(DEVICES) and not entry.name.startswith(NO_DEVICES)

    def _add_sockets(self) -> None:
        """Through an overlay, nobody listens at a socket; so each is shown itself."""
        with open("/proc/net/unix", errors="surrogateescape") as file:
            words = [line.rstrip("\n").split(" ", 7)[-1] for line in file]
        for path in sorted({word for word in words if word.startswith("/")})[:MAX_SOCKETS]:
            try:
                if stat.S_ISSOCK(os.lstat(path).st_mode) and stat.S_ISSOCK(os.lstat(self.root + path).st_mode):
                    bind(path, self.root + path, read_only=True)  # its mode and owner; one can connect all the same
            except OSError:
                continue

    def add_processes(self, *, own: bool) -> None:
        """``/proc``: of our PID namespace, or the one that is there."""
        target = self.root + "/proc"
        if own:
            mount("proc", target, "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC)
        else:
            bind("/proc", target)
        for name in PROC_CONTROLS:
            path = os.path.join(target, name)
            if os.path.exists(path):
                bind(path, path, read_only=True)

    def enter(self) -> None:
        """Make it the root of every process in this namespace; the old one goes."""
        os.chdir(self.root)
        number = SYS_PIVOT_ROOT.get(os.uname().machine)
        if number is None:
            raise OSError(f"the root cannot be changed on {os.uname().machine}")
        checked(libc.syscall(number, b".", b"."), "pivot_root")
        checked(libc.umount2(b".", MNT_DETACH), "umount")
        os.chdir("/")


def ancestors(path: str) -> list[str]:
    """Return the path itself and every folder above it, but the root."""
    parts = path.strip("/").split("/")
    return ["/" + "/".join(parts[:count]) for count in range(1, len(parts) + 1)]


def innermost(path: str, folders: list[str]) -> str | None:
    """Return the innermost of the folders that hold a path, or are it."""
    return max((one for one in folders if path == one or path.startswith(one.rstrip("/") + "/")), key=len, default=None)


def read_mounts() -> dict[str, tuple[str, bool]]:
    """Mount point -> type of the file system, and whether it is mounted read-only."""
    found = {}
    with open("/proc/self/mountinfo", "rb") as file:
        for line in file:
            fields, _, rest = line.partition(b" - ")
            words = fields.split()
            path = os.fsdecode(words[4].decode("unicode_escape").encode("latin-1"))
            kind, _, options = rest.split()[:3]
            found[path] = (kind.decode(), b"ro" in words[5].split(b",") or b"ro" in options.split(b","))
    return found


def drop_capabilities() -> None:
    """Leaves this process nothing that a process without privileges does not have."""
    header = (ctypes.c_uint32 * 2)(0x20080522, 0)  # _LINUX_CAPABILITY_VERSION_3, of linux/capability.h
    checked(libc.capset(header, (ctypes.c_uint32 * 6)()), "capset")


def watch_folders(world: World, descriptor: int, folders: list[str], mask: int, told: str) -> None:
    """Has inotify tell what is opened in these folders, to whoever gave us the descriptor; the command does not get it.

    The numbers of the watches are written to the file `told`. What no overlay shows is left out: others may open it, too.
    """
    shown = [one for one in folders if innermost(one, world.laid) and not innermost(one, world.kept)]
    added = {libc.inotify_add_watch(descriptor, os.fsencode(world.root + one), mask): one for one in shown}
    with open(told, "w") as file:
        json.dump(added, file)
    os.close(descriptor)


def run_command(command: list[str], folder: str, report: int) -> None:
    """Becomes the command; does not return."""
    os.setsid()
    os.chdir(folder)
    os.write(report, b"ready")
    os.close(report)
    os.execv(command[0], command)


def pass_on_end(send: Callable[[int, int], None], pid: int) -> None:
    """Whoever is asked to end asks the next one, down to the command."""

    def ask(number: int, frame: object) -> None:
        with contextlib.suppress(ProcessLookupError):
            send(pid, number)

    signal.signal(signal.SIGTERM, ask)


def supervise(child: int, alone: bool) -> int:
    """Wait for the command, as its init if it has a PID namespace of its own; return its wait status."""
    while True:
        pid, status = os.wait() if alone else os.waitpid(child, 0)
        if pid == child:
            return status


def end_like(status: int) -> None:
    """End as the command did; do not return."""
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        if number != signal.SIGKILL:
            signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)
    os._exit(os.waitstatus_to_exitcode(status) if os.WIFEXITED(status) else SET_UP_FAILED)


def main(arguments: list[str]) -> None:
    """Set everything up, run the command, and end as it does."""
    with open(arguments[0]) as file:
        spec = json.load(file)
    report, folder, own = spec["report"], os.getcwd(), spec["own_processes"]
    os.set_inheritable(report, False)
    stage = "namespaces"
    try:
        die_with_parent(spec["parent"])
        enter_namespaces(CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWIPC | (CLONE_NEWPID if own else 0))
        die_with_parent(spec["parent"])  # changed credentials forget it
        leave_the_old_root()
        stage = "overlays"
        world = World(spec["layers"], spec["open"], spec["needed"], spec["wanted"])
        world.build()
        if spec.get("watch") is not None:
            watch_folders(world, **spec["watch"])
        parent, (hear, tell) = os.getpid(), os.pipe()
        first = os.fork()
        if first == 0:
            die_with_parent(0 if own else parent)
            os.close(hear)
            if has_no_reader(tell):  # in a PID namespace, the parent has no number: it may have ended meanwhile
                os._exit(SET_UP_FAILED)
            _run_first(world, arguments[1:], folder, report, tell, own)
    except Exception as error:
        os.write(report, f"{stage}: {error}".encode()[:2000])
        os._exit(SET_UP_FAILED)
    pass_on_end(os.kill, first)
    os.close(tell)
    os.close(report)
    told = os.read(hear, 16)
    _, status = os.waitpid(first, 0)
    end_like(int(told) if told else status)


def _run_first(world: World, command: list[str], folder: str, report: int, tell: int, own: bool) -> None:
    """Run as first process of the world: start the command, wait for it, and report how it ended."""
    try:
        world.add_processes(own=own)
        world.enter()
        libc.prctl(PR_CAPBSET_DROP, CAP_SYS_ADMIN)  # with it, root could unmount what protects the files
        parent, child = os.getpid(), os.fork()
        if child != 0:
            drop_capabilities()  # the command may trace this process, and would get what it has
        else:
            die_with_parent(parent)
            os.close(tell)
            run_command(command, folder, report)
        pass_on_end(os.killpg, child)
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # of Python's own doing; the command would end its world with it
        os.close(report)
        status = supervise(child, own)
        os.write(tell, str(status).encode())
        os._exit(0)
    except BaseException as error:
        try:
            os.write(report, f"processes: {error}".encode()[:2000])
        finally:
            os._exit(SET_UP_FAILED)


if __name__ == "__main__":
    main(sys.argv[1:])
