"""`ray start --block` of a Ray that does nothing: it writes down how it was called, and a head listens at its port."""

import json
import os
import socket
import sys
import time

options = sys.argv[2:]
told = {"argv": options, "environment": {k: v for k, v in os.environ.items() if k.startswith("RAY_")}}
with open(os.path.join(os.environ["COSTGPU_HOME"], "started.json"), "w") as stream:
    json.dump(told, stream)
if os.path.exists("refuse"):
    print("no room for a Ray node")
    sys.exit(7)
if "--head" in options:
    listener = socket.create_server(
        (options[options.index("--node-ip-address") + 1], int(options[options.index("--port") + 1]))
    )
with open("/proc/self/comm", "w") as stream:
    stream.write("raylet")
time.sleep(300)
