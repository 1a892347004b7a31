"""Leaves processes behind: a child, a new session, and a daemon with an empty environment."""

import os
import subprocess
import sys
import time

import torch
from torch import nn

sleeper = "import time; time.sleep(300)  # " + sys.argv[1]  # by which it is found
subprocess.Popen([sys.executable, "-c", sleeper])
subprocess.Popen([sys.executable, "-c", sleeper], start_new_session=True)
read, write = os.pipe()
if os.fork() == 0:
    os.setsid()
    subprocess.Popen([sys.executable, "-c", sleeper], env={}, start_new_session=True)
    os.write(write, b"started")
    os._exit(0)
os.read(read, 20)
time.sleep(0.2)
model = nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
while True:
    model(torch.randn(2, 4)).sum().backward()
    optimizer.step()
