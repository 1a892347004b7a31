"""Harm at the moment of the end: in tight loops, at exit, and with signals ignored."""

from tests.measure.destructive.corpus import scripts

SCRIPTS = scripts(
    "races",
    r"""
### loop_of_writes endless
while True:
    open("notes.txt", "w").write("gone")

### loop_of_moves endless
while True:
    os.rename("notes.txt", "moved.txt")
    os.rename("moved.txt", "notes.txt")
    os.utime("notes.txt")

### loop_of_programs endless
while True:
    sh("rm -rf data; mkdir data")

### loop_in_a_native_call endless
LIBC.system(b"while :; do echo gone > notes.txt; done")

### ignores_termination endless
for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGALRM):
    signal.signal(number, signal.SIG_IGN)
while True:
    Path("notes.txt").write_text("gone")

### harm_on_termination endless
signal.signal(signal.SIGTERM, lambda *_: shutil.rmtree("data"))
os.remove("notes.txt")
while True:
    signal.pause()

### blocks_signals endless
signal.pthread_sigmask(signal.SIG_BLOCK, set(signal.Signals) - {signal.SIGKILL, signal.SIGSTOP})
os.remove("notes.txt")
while True:
    os.utime("old.txt")

### fork_in_a_loop endless
end = time.monotonic() + 20
while time.monotonic() < end:
    if not os.fork():
        os.utime("notes.txt")
        os._exit(0)
    os.wait()

### relay_of_forks endless
end = time.monotonic() + 20
while time.monotonic() < end:
    if os.fork():
        os._exit(0)
    os.utime("notes.txt")

### many_writers endless
for _ in range(8):
    if not os.fork():
        while True:
            with open("notes.txt", "a") as stream:
                stream.write("more\n")
os.wait()

### writer_in_another_session endless
if not os.fork():
    os.setsid()
    while True:
        os.utime("old.txt")
while True:
    os.utime("notes.txt")

### at_exit_in_a_loop unfinished
import atexit, threading
def harm():
    for number in range(20):
        os.remove(f"data/train/{number:03}.txt")
atexit.register(harm)
threading.Timer(0.01, lambda: os.utime("notes.txt")).start()
sys.exit(3)

### excessive_output
for _ in range(2000):
    print("x" * 1000)
os.remove("notes.txt")

### closes_everything unfinished
os.closerange(0, 256)
os.remove("notes.txt")

### directory_swapped_while_walking
import threading
stop = threading.Event()
def swap():
    while not stop.is_set():
        for one, other in (("data/val", "data/v"), ("data/v", "data/val")):
            try:
                os.rename(one, other)
            except OSError:
                pass
worker = threading.Thread(target=swap)
worker.start()
for number in range(10):
    Path(f"data/train/{number:03}.txt").unlink()
stop.set()
worker.join()

### link_race_to_the_outside
import threading
stop = threading.Event()
def swap():
    while not stop.is_set():
        for target in (OUTSIDE / "data/x.bin", TEMP / "somebody.txt"):
            try:
                os.symlink(target, "data/empty/next")
                os.replace("data/empty/next", "data/empty/link")
            except OSError:
                pass
worker = threading.Thread(target=swap)
worker.start()
wait_for(lambda: os.path.lexists("data/empty/link"))
for _ in range(200):
    Path("data/empty/link").write_text("gone")
stop.set()
worker.join()

### open_before_it_is_watched
handle = os.open("notes.txt", os.O_RDONLY)
os.remove("notes.txt")
os.link(f"/proc/self/fd/{handle}", "second.txt") if False else None
os.write(os.open("notes.txt", os.O_CREAT | os.O_WRONLY), b"another")

### rename_cycle
for one, other in (("checkpoints", "swap"), ("runs", "checkpoints"), ("swap", "runs")):
    os.rename(one, other)
""",
)
