import signal
import sys
import time


def bye(*_):
    open("checkpoint", "w").write("kept")
    sys.exit(9)


signal.signal(signal.SIGTERM, bye)
open("first.pt", "w").write("1")
print("on stderr", file=sys.stderr, flush=True)
for step in range(30_000):
    print("step", step, flush=True)
    time.sleep(0.02)
