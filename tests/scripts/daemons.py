"""Leaves processes behind: a child, a new session, and a daemon with an empty environment."""

import os
import subprocess
import sys
import time

import torch
from torch import nn

sleeper = "import time; time.sleep(300)"
pids = [subprocess.Popen([sys.executable, "-c", sleeper]).pid]
pids.append(subprocess.Popen([sys.executable, "-c", sleeper], start_new_session=True).pid)
read, write = os.pipe()
if os.fork() == 0:
    os.setsid()
    daemon = subprocess.Popen([sys.executable, "-c", sleeper], env={}, start_new_session=True)
    os.write(write, str(daemon.pid).encode())
    os._exit(0)
pids.append(int(os.read(read, 20)))
with open(sys.argv[1], "w") as stream:
    stream.write(" ".join(map(str, pids)))
time.sleep(0.2)
model = nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
while True:
    model(torch.randn(2, 4)).sum().backward()
    optimizer.step()
