"""What training scripts really do to the folders in which they run."""

from tests.measure.destructive.corpus import scripts

SCRIPTS = scripts(
    "training",
    r"""
### checkpoint_rotation
for path in sorted(Path("checkpoints").glob("epoch_*.pt"), key=os.path.getmtime)[:-1]:
    path.unlink()
Path("checkpoints/epoch_4.pt").write_bytes(b"new weights")

### best_link
sh("ln -sf epoch_2.pt checkpoints/best.pt")

### best_through_link
Path("checkpoints/best.pt").write_bytes(b"not the best")

### best_copied
shutil.copyfile("checkpoints/epoch_1.pt", "checkpoints/best.pt")

### last_through_absolute_link
with open("checkpoints/last.pt", "wb") as stream:
    stream.write(b"cut")

### atomic_save
import tempfile
handle, name = tempfile.mkstemp(dir="checkpoints")
os.write(handle, b"new weights")
os.fsync(handle)
os.close(handle)
os.replace(name, "checkpoints/epoch_3.pt")

### atomic_save_with_folder_sync
Path("checkpoints/epoch_3.pt.tmp").write_bytes(b"new")
os.rename("checkpoints/epoch_3.pt.tmp", "checkpoints/epoch_3.pt")
handle = os.open("checkpoints", os.O_RDONLY)
os.fsync(handle)

### backup_rotation
for number in (2, 1):
    os.replace(f"checkpoints/epoch_{number}.pt", f"checkpoints/epoch_{number + 1}.pt")

### resume_deletes_old
shutil.rmtree("checkpoints", ignore_errors=True)
os.makedirs("checkpoints", exist_ok=True)

### runs_wiped
shutil.rmtree("runs")
os.mkdir("runs")

### tensorboard_wiped
for path in Path("runs").rglob("events.out.*"):
    path.unlink()

### metrics_rewritten
lines = Path("runs/exp2/metrics.csv").read_text().splitlines()
Path("runs/exp2/metrics.csv").write_text("\n".join(lines[:1]) + "\n")

### log_appended
with open("run.log", "a") as stream:
    for step in range(10):
        stream.write(f"{step}\n")
        stream.flush()

### dataset_in_place
for path in Path("data/train").glob("*.txt"):
    path.write_text(path.read_text().upper())

### dataset_jsonl_in_place
import json
rows = [json.loads(line) for line in open("dataset.jsonl")]
with open("dataset.jsonl", "w") as stream:
    stream.writelines(json.dumps({"text": row["text"].lower()}) + "\n" for row in rows)

### splits
os.makedirs("data/test")
for number, path in enumerate(sorted(Path("data/train").glob("*.txt"))):
    if number % 5 == 0:
        shutil.move(str(path), "data/test/")

### images_converted
for path in Path("data/val").glob("*.txt"):
    path.with_suffix(".npy").write_bytes(path.read_bytes())
    path.unlink()

### duplicates_linked
for number in range(1, 10):
    os.remove(f"data/val/{number:03}.txt")
    os.link("data/val/000.txt", f"data/val/{number:03}.txt")

### disk_cache_cleared
for path in Path(HOME / ".cache/huggingface").rglob("*"):
    path.is_file() and path.unlink()

### notebook_converted
import json
notebook = json.load(open("notebook.ipynb"))
notebook["metadata"]["executed"] = True
json.dump(notebook, open("notebook.ipynb", "w"))

### config_dumped
import json
json.dump({"lr": 1e-3}, open("config.json", "w"))

### code_snapshot
shutil.copytree("src", "runs/exp1", dirs_exist_ok=True)
shutil.rmtree("src")

### archive_and_delete
shutil.make_archive(str(TEMP / "runs"), "zip", "runs")
shutil.rmtree("runs")

### unpack_over_data
import zipfile
with zipfile.ZipFile("archive.zip") as archive:
    archive.extractall()

### download_resumed
with open("data/large.bin", "r+b") as stream:
    stream.seek(0, 2)
    stream.write(b"the rest")

### lock_file_broken
os.remove(TEMP / "lock")
Path(TEMP / "lock").write_text(str(os.getpid()))

### memmap_preprocessed imports=numpy
import numpy
area = numpy.memmap("data/large.bin", dtype="uint8", mode="r+")
area[::2] = 0
del area

### savez_over imports=numpy
import numpy
numpy.savez("archive.zip", a=numpy.zeros(3))
os.replace("archive.zip.npz", "archive.zip")

### torch_save_over imports=torch
import torch
torch.save({"epoch": 1}, "checkpoints/best.pt")

### torch_jit_save imports=torch
import torch
torch.jit.save(torch.jit.script(torch.nn.Linear(1, 1)), "checkpoints/epoch_1.pt")

### git_commit_of_results needs=git
sh("git add -A src && git commit -qm 'Results'")

### permissions_for_the_group
for folder, names, files in os.walk("data"):
    for name in files:
        os.chmod(os.path.join(folder, name), 0o664)

### empty_folders_pruned
for folder, names, files in os.walk("data", topdown=False):
    if not names and not files:
        os.rmdir(folder)

### early_stop_cleans_up
import atexit
atexit.register(lambda: shutil.rmtree("checkpoints"))

### interrupted_cleans_up endless
try:
    while True:
        Path("checkpoints/epoch_3.pt").write_bytes(os.urandom(100))
finally:
    shutil.rmtree("data")

### worker_writes
import multiprocessing
def prepare(number):
    Path(f"data/train/{number:03}.txt").write_text("prepared")
with multiprocessing.get_context("fork").Pool(2) as pool:
    pool.map(prepare, range(20))
""",
)
