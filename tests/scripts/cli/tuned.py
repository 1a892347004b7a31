import argparse
import pathlib
import signal
import time

parser = argparse.ArgumentParser()
parser.add_argument("--lr", type=float)
parser.add_argument("--seed", type=int, default=0)
parser.add_argument("--epochs", type=int, default=6)
options = parser.parse_args()
if options.lr > 1:
    raise ValueError("the learning rate %g is too high" % options.lr)

ended = []
signal.signal(signal.SIGTERM, lambda *_: ended.append(True))  # it ends between two saves, never in the middle of one
pathlib.Path("checkpoints").mkdir()
for epoch in range(options.epochs):
    loss = abs(options.lr - 0.01) + options.seed / 1000 + 1 / (epoch + 1)
    print("epoch %d val_loss=%.4f" % (epoch, loss), flush=True)
    pathlib.Path("checkpoints/model.pt").write_text("%g" % options.lr)
    time.sleep(0.1)
    if ended:
        pathlib.Path("saved.txt").write_text("at the end")
        break
