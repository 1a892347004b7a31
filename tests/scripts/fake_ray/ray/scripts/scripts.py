"""`ray start` of a Ray that does nothing: it writes down how it was called, and leaves processes with the names of Ray's."""

import json
import os
import sys
import time

options = sys.argv[2:]
told = {"argv": options, "environment": {k: v for k, v in os.environ.items() if k.startswith("RAY_")}}
with open(os.path.join(os.environ["COSTGPU_HOME"], "started.json"), "w") as stream:
    json.dump(told, stream)
if os.path.exists("refuse") and "--head" not in options:
    print("no room for a Ray node")
    sys.exit(7)
while os.path.exists("slow"):
    time.sleep(0.05)
for name in ("gcs_server", "raylet") if "--head" in options else ("raylet",):
    if os.fork() == 0:
        os.setsid()
        with open("/proc/self/comm", "w") as stream:
            stream.write(name)
        time.sleep(300)
        os._exit(0)
