import argparse
import pathlib
import signal
import sys
import time

parser = argparse.ArgumentParser()
parser.add_argument("--lr", type=float)
parser.add_argument("--seed", type=int, default=0)
parser.add_argument("--epochs", type=int, default=6)
options = parser.parse_args()
if options.lr > 1:
    raise ValueError("the learning rate %g is too high" % options.lr)


def end(*_):
    pathlib.Path("saved.txt").write_text("at the end")
    sys.exit(0)


signal.signal(signal.SIGTERM, end)
pathlib.Path("checkpoints").mkdir()
for epoch in range(options.epochs):
    loss = abs(options.lr - 0.01) + options.seed / 1000 + 1 / (epoch + 1)
    print("epoch %d val_loss=%.4f" % (epoch, loss), flush=True)
    pathlib.Path("checkpoints/model.pt").write_text("%g" % options.lr)
    time.sleep(0.1)
