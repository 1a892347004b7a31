"""Changes what is in its folder in every way that a training script might, then trains."""

import json
import logging
import os
import pathlib
import shutil
import sqlite3
import subprocess
import sys

import numpy as np
import torch
from torch import nn

here = pathlib.Path(sys.argv[1])
os.chdir(here)


def attempt(action):
    try:
        action()
    except OSError as error:
        print("refused", error)


def atomic():
    pathlib.Path("atomic.tmp").write_text("new")
    os.replace("atomic.tmp", "atomic")


def truncate():
    descriptor = os.open("os_open", os.O_WRONLY | os.O_TRUNC)
    os.write(descriptor, b"new")
    os.close(descriptor)


def remake():
    shutil.rmtree("folder")
    os.makedirs("folder/inner")
    pathlib.Path("folder/inner/file").write_text("new")


def database():
    connection = sqlite3.connect("database.db")
    connection.execute("create table new (x)")
    connection.commit()
    connection.close()


def mapped():
    array = np.memmap("mapped", dtype="uint8", mode="r+")
    array[:] = 0
    array.flush()


def inside_folder():
    descriptor = os.open(".", os.O_RDONLY)
    os.unlink("unlinked_at", dir_fd=descriptor)
    os.close(descriptor)


for action in (
    lambda: open("open_w", "w").write("new"),
    lambda: open("open_a", "a").write("new"),
    lambda: open("open_r_plus", "r+").write("new"),
    lambda: pathlib.Path("write_text").write_text("new"),
    lambda: json.dump({}, open("json", "w")),
    lambda: np.save("saved.npy", np.zeros(3)),
    lambda: torch.save({}, "model.pt"),
    lambda: torch.save({}, "new_model.pt"),
    lambda: os.remove("removed"),
    lambda: pathlib.Path("unlinked").unlink(),
    lambda: os.truncate("truncated", 0),
    lambda: shutil.copy("open_w", "copied_over"),
    lambda: shutil.move("moved", "moved_away"),
    lambda: os.chmod("mode", 0o600),
    lambda: logging.FileHandler("log", mode="w").emit(logging.makeLogRecord({"msg": "new"})),
    lambda: subprocess.run(["cp", "json", "by_program"], check=True),
    atomic,
    truncate,
    remake,
    database,
    mapped,
    inside_folder,
):
    attempt(action)

assert pathlib.Path("open_w").read_text() == "new", "a script must read what it wrote"
assert pathlib.Path("atomic").read_text() == "new"
assert pathlib.Path("open_a").read_text().endswith("new")
assert not pathlib.Path("open_a").read_text().startswith("new")
model = nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(1_000_000):
    optimizer.zero_grad()
    model(torch.randn(2, 4)).sum().backward()
    optimizer.step()
    if step % 50 == 0:
        torch.save(model.state_dict(), "model.pt")
