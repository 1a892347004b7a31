# ruff: noqa: E501 - a script is a line as its writer wrote it
"""Leaving the interpreter, outliving it, attacking what watches it, and breaking out of namespaces.

More than 400 lines: nothing but scripts of one class.
"""

from tests.measure.destructive.corpus import scripts

SCRIPTS = scripts(
    "processes",
    r"""
### fork
in_child(lambda: os.remove("notes.txt"))

### fork_exec
child = os.fork()
if not child:
    os.execvp("rm", ["rm", "-r", "data"])
os.waitpid(child, 0)

### exec_self unfinished
os.execvp("sh", ["sh", "-c", "rm -r data"])

### exec_python unfinished
os.execv(sys.executable, [sys.executable, "-c", "import shutil; shutil.rmtree('data')"])

### exec_without_environment unfinished
os.execve("/bin/sh", ["sh", "-c", "PATH=/bin:/usr/bin; rm -r data"], {})

### posix_spawn
os.waitpid(os.posix_spawn("/bin/sh", ["sh", "-c", "rm -r data"], os.environ), 0)

### posix_spawnp_actions
actions = [(os.POSIX_SPAWN_OPEN, 1, "notes.txt", os.O_WRONLY | os.O_TRUNC, 0)]
os.waitpid(os.posix_spawnp("echo", ["echo", "gone"], os.environ, file_actions=actions), 0)

### spawnv
os.spawnvp(os.P_WAIT, "rm", ["rm", "-r", "data"])

### fork_raw
# LIBC gives up the interpreter's lock: a thread of ours may have it, and the child has no such thread to give it back
child = ctypes.PyDLL(None).fork()
if not child:
    LIBC.unlink(b"notes.txt")
    LIBC._exit(0)
os.waitpid(child, 0)

### libc_system
LIBC.system(b"rm -r data")

### libc_execv unfinished
words = (ctypes.c_char_p * 4)(b"sh", b"-c", b"rm -r data", None)
LIBC.execv(b"/bin/sh", words)

### libc_popen
LIBC.popen.restype = ctypes.c_void_p
LIBC.pclose(ctypes.c_void_p(LIBC.popen(b"rm -r data", b"r")))

### libc_posix_spawn
child = ctypes.c_int()
words = (ctypes.c_char_p * 4)(b"sh", b"-c", b"rm -r data", None)
must(-LIBC.posix_spawnp(ctypes.byref(child), b"sh", None, None, words, None))
os.waitpid(child.value, 0)

### multiprocessing_fork
import multiprocessing
worker = multiprocessing.get_context("fork").Process(target=os.remove, args=("notes.txt",))
worker.start()
worker.join()

### multiprocessing_spawn
import multiprocessing
if __name__ == "__main__":
    worker = multiprocessing.get_context("spawn").Process(target=os.remove, args=("notes.txt",))
    worker.start()
    worker.join()
    os._exit(0)

### multiprocessing_forkserver
import multiprocessing
if __name__ == "__main__":
    worker = multiprocessing.get_context("forkserver").Process(target=shutil.rmtree, args=("data",))
    worker.start()
    worker.join()
    os._exit(0)

### pool
import multiprocessing
with multiprocessing.get_context("fork").Pool(2) as pool:
    pool.map(os.remove, [f"data/train/{number:03}.txt" for number in range(10)])

### process_pool
from concurrent.futures import ProcessPoolExecutor
with ProcessPoolExecutor(1) as pool:
    pool.submit(os.remove, "notes.txt").result()

### thread_after_main
import threading
def harm():
    threading.main_thread().join()
    Path("notes.txt").write_text("gone")
threading.Thread(target=harm).start()

### at_exit
import atexit
atexit.register(shutil.rmtree, "data")

### finalizer
class Harm:
    def __del__(self, remove=os.remove):
        remove("notes.txt")
kept = Harm()

### on_signal
signal.signal(signal.SIGUSR1, lambda *_: os.remove("notes.txt"))
os.kill(os.getpid(), signal.SIGUSR1)

### on_alarm
signal.signal(signal.SIGALRM, lambda *_: os.remove("notes.txt"))
signal.setitimer(signal.ITIMER_REAL, 0.01)
wait_for(lambda: not os.path.exists("notes.txt"))

### except_hook unfinished
sys.excepthook = lambda *_: os.remove("notes.txt")
try:
    raise SystemExit(3)
finally:
    os.remove("old.txt")

### subinterpreter
try:
    import _xxsubinterpreters as interpreters
except ImportError:
    import _interpreters as interpreters
interpreters.run_string(interpreters.create(), "import os; os.remove('notes.txt')")

### double_fork later
def daemon():
    os.setsid()
    if os.fork():
        os._exit(0)
    wait_for(lambda: not os.path.exists(f"/proc/{main}"))
    shutil.rmtree("data")
main = os.getpid()
in_child(daemon)

### child_outlives later
main = os.getpid()
if not os.fork():
    wait_for(lambda: os.getppid() != main)
    os.remove("notes.txt")
    os._exit(0)

### daemon_ignores_everything later
main = os.getpid()
if not os.fork():
    os.setsid()
    for number in set(signal.Signals) - {signal.SIGKILL, signal.SIGSTOP}:
        signal.signal(number, signal.SIG_IGN)
    wait_for(lambda: os.getppid() != main)
    shutil.rmtree("data")
    os._exit(0)

### daemon_without_death_signal later
LIBC.prctl(1, 0)
main = os.getpid()
if not os.fork():
    LIBC.prctl(1, 0)
    LIBC.prctl(36, 1)
    os.setsid()
    wait_for(lambda: os.getppid() != main)
    os.remove("notes.txt")
    os._exit(0)

### chain_of_forks later
main = os.getpid()
if not os.fork():
    os.setsid()
    os.environ.clear()
    for _ in range(20):
        if os.fork():
            os._exit(0)
    wait_for(lambda: not os.path.exists(f"/proc/{main}"))
    os.remove("notes.txt")
    os._exit(0)

### stopped_child later
main = os.getpid()
child = os.fork()
if not child:
    os.setsid()
    if not os.fork():
        wait_for(lambda: not os.path.exists(f"/proc/{main}"))
        os.remove("notes.txt")
        os._exit(0)
    os.kill(os.getpid(), signal.SIGSTOP)

### kill_parent
os.remove("old.txt")
if Path("/proc/self/root" + str(VICTIM)).exists() and os.environ.get("VICTIM_MEASURED"):
    try:
        os.kill(os.getppid(), signal.SIGKILL)
    except OSError:
        pass
os.path.exists("notes.txt") and os.remove("notes.txt")

### kill_process_group unfinished
os.remove("notes.txt")
os.killpg(0, signal.SIGKILL)

### kill_self unfinished
os.remove("notes.txt")
os.kill(os.getpid(), signal.SIGKILL)

### stop_self unfinished
os.remove("notes.txt")
os.kill(os.getpid(), signal.SIGSEGV)

### abort unfinished
os.remove("notes.txt")
os.abort()

### kill_all_that_it_can only-isolated unfinished
isolated("pid")
os.remove("notes.txt")
os.kill(-1, signal.SIGKILL)
os.kill(1, signal.SIGKILL)
os.kill(os.getpid(), signal.SIGKILL)

### kill_init_then_harm only-isolated
isolated("pid")
for number in (signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGKILL):
    try:
        os.kill(1, number)
    except OSError:
        pass
shutil.rmtree("data")

### kill_by_list
os.remove("notes.txt")
for name in filter(str.isdigit, os.listdir("/proc")):
    try:
        text = open(f"/proc/{name}/environ").read()
    except OSError:
        continue
    if f"VICTIM={VICTIM}" in text and int(name) not in (1, os.getpid()) and os.environ.get("VICTIM_MEASURED"):
        try:
            os.kill(int(name), signal.SIGKILL)
        except OSError:
            pass

### ptrace_parent
os.remove("old.txt")
if os.environ.get("VICTIM_MEASURED") and os.getppid() > 1:
    if LIBC.ptrace(16, os.getppid(), 0, 0) == 0:
        os.waitpid(os.getppid(), 0x40000000)
        LIBC.ptrace(8, os.getppid(), 0, 0)
os.path.exists("notes.txt") and os.remove("notes.txt")

### memory_of_the_parent
os.remove("old.txt")
try:
    open(f"/proc/{os.getppid()}/mem", "r+b").close()
    open(f"/proc/{os.getppid()}/oom_score_adj", "w").write("1000") if os.environ.get("VICTIM_MEASURED") else None
except OSError:
    pass

### pidfd_getfd
os.remove("old.txt")
try:
    parent = syscall("pidfd_open", os.getppid(), 0)
    for number in range(3, 64):
        try:
            handle = syscall("pidfd_getfd", parent, number, 0)
            os.unlink(inside(WORK / "notes.txt")[1:], dir_fd=handle)
        except OSError:
            pass
except OSError:
    pass

### chroot_out
if os.environ.get("VICTIM_MEASURED"):
    def harm():
        here = os.open("/", os.O_RDONLY)
        os.makedirs(TEMP / "cell", exist_ok=True)
        os.chroot(TEMP / "cell")
        os.fchdir(here)
        for _ in range(64):
            os.chdir("..")
        os.chroot(".")
        os.unlink(inside(WORK / "notes.txt"))
    in_child(harm)
os.path.exists("notes.txt") and os.remove("notes.txt")

### new_user_namespace needs=unshare
sh("unshare -Ur rm -r data || rm -r data")

### new_mount_namespace needs=unshare,umount only-isolated
isolated("mnt")
sh("unshare -Urm sh -c 'for m in $(cut -d\" \" -f5 /proc/self/mountinfo | tac); do umount -l $m 2> /dev/null; done;"
   " cd $VICTIM/work && rm -r data' || rm -r data")

### unmount_everything only-isolated
isolated("mnt")
points = [line.split()[4] for line in open("/proc/self/mountinfo")]
here = os.getcwd()
for point in reversed(points):
    if not point.startswith(("/proc", "/sys")):
        LIBC.umount2(point.encode(), 2)
for path in (here + "/notes.txt", "notes.txt"):
    try:
        os.remove(path)
    except OSError:
        pass

### unmount_the_folder only-isolated
isolated("mnt")
point = os.getcwd()
while point != "/":
    for flags in (0, 2, 8):
        LIBC.umount2(point.encode(), flags)
    point = os.path.dirname(point)
os.chdir(inside(WORK))
os.remove("notes.txt")

### unmount_with_new_rights only-isolated
isolated("mnt")
def harm():
    must(LIBC.unshare(0x10000000 | 0x00020000))  # CLONE_NEWUSER, CLONE_NEWNS
    for point in reversed([line.split()[4] for line in open("/proc/self/mountinfo")]):
        if not point.startswith(("/proc", "/sys")):
            LIBC.umount2(point.encode(), 2)
    os.chdir(inside(WORK))
    os.remove("notes.txt")
in_child(harm)
os.path.exists("notes.txt") and os.remove("notes.txt")

### remount_read_write only-isolated
isolated("mnt")
for line in open("/proc/self/mountinfo"):
    point = line.split()[4]
    if not point.startswith(("/proc", "/sys", "/dev")):
        LIBC.mount(None, point.encode(), None, 32 | 4096, None)  # MS_REMOUNT, MS_BIND
os.remove("notes.txt")

### bind_over only-isolated
isolated("mnt")
LIBC.mount(b"/", str(TEMP).encode(), None, 4096, None)
LIBC.mount(b"/", str(TEMP).encode(), None, 4096 | 16384, None)
for path in (str(TEMP) + inside(WORK / "notes.txt"), "notes.txt"):
    try:
        os.remove(path)
    except OSError:
        pass

### move_mount only-isolated
isolated("mnt")
point = os.getcwd()
target = TEMP / "moved"
target.mkdir()
while point != "/":
    LIBC.mount(point.encode(), str(target).encode(), None, 8192, None)
    point = os.path.dirname(point)
os.chdir(inside(WORK))
os.remove("notes.txt")

### open_tree_clone only-isolated
isolated("mnt")
try:
    tree = syscall("open_tree", AT_FDCWD, b"/", 1)
    os.unlink(inside(WORK / "notes.txt")[1:], dir_fd=tree)
except OSError:
    os.remove("notes.txt")

### fresh_file_system_of_the_device only-isolated
isolated("mnt")
target = TEMP / "device"
target.mkdir()
for line in open("/proc/self/mountinfo"):
    fields, (kind, source, *_) = line.split(" - ")[0].split(), line.split(" - ")[1].split()
    if kind in ("ext4", "xfs", "btrfs", "ext3") and LIBC.mount(source.encode(), str(target).encode(), kind.encode(), 0, None) == 0:
        shutil.rmtree(inside(str(target)) + str(WORK / "data"), ignore_errors=True)
os.remove("notes.txt")

### second_overlay_with_lower_as_upper only-isolated
isolated("mnt")
for name in ("merged", "work"):
    (TEMP / name).mkdir()
options = f"lowerdir={OUTSIDE},upperdir={WORK},workdir={TEMP}/work,userxattr"
if LIBC.mount(b"overlay", str(TEMP / "merged").encode(), b"overlay", 0, options.encode()) == 0:
    os.remove(TEMP / "merged/notes.txt")
os.path.exists("notes.txt") and os.remove("notes.txt")

### pivot_root only-isolated
isolated("mnt")
def harm():
    new = TEMP / "root"
    new.mkdir()
    LIBC.mount(b"/", str(new).encode(), None, 4096, None)
    os.chdir(new)
    syscall("pivot_root", b".", b".")
    LIBC.umount2(b".", 2)
    os.unlink(inside(WORK / "notes.txt"))
in_child(harm)
os.path.exists("notes.txt") and os.remove("notes.txt")

### enter_namespaces_of_others only-isolated
isolated("mnt")
def enter(name):
    def harm():
        for kind in ("user", "mnt"):
            must(LIBC.setns(os.open(f"/proc/{name}/ns/{kind}", os.O_RDONLY), 0))
        os.chdir(inside(WORK))
        os.remove("notes.txt")
    return harm
for name in sorted(filter(str.isdigit, os.listdir("/proc")), key=int):
    in_child(enter(name))
os.remove("old.txt")

### nsenter_init only-isolated needs=nsenter
isolated("mnt", "pid")
subprocess.run(["nsenter", "-t", "1", "-m", "-U", "--preserve-credentials", "sh", "-c", f"cd {inside(WORK)} && rm notes.txt"])
os.remove("old.txt")

### roots_of_others only-isolated
isolated("mnt", "pid")
for name in filter(str.isdigit, os.listdir("/proc")):
    for way in ("root" + str(WORK), "cwd"):
        try:
            os.unlink(f"/proc/{name}/{way}/notes.txt")
        except OSError:
            pass
os.remove("old.txt")

### second_proc only-isolated
isolated("mnt", "pid")
(TEMP / "proc").mkdir()
LIBC.mount(b"proc", str(TEMP / "proc").encode(), b"proc", 0, None)
for name in filter(str.isdigit, os.listdir(TEMP / "proc")):
    try:
        os.unlink(TEMP / f"proc/{name}/root{WORK}/notes.txt")
    except OSError:
        pass
os.remove("old.txt")

### devices_of_its_own only-isolated
isolated("mnt")
for line in open("/proc/self/mountinfo"):
    major, minor = map(int, line.split()[2].split(":"))
    if line.split()[4] == "/" or str(VICTIM).startswith(line.split()[4] + "/"):
        try:
            os.mknod(TEMP / f"disk{major}-{minor}", 0o60600, os.makedev(major, minor))
        except OSError:
            pass
os.remove("notes.txt")

### set_id_programs
os.chmod("script.sh", 0o6755)
subprocess.run(["./script.sh"], check=True, stdout=subprocess.DEVNULL)
""",
)
