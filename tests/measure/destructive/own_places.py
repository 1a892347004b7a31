"""Attacking what costgpu itself keeps: its folder of the measurement, its records, and what it does with them."""

from tests.measure.destructive.corpus import scripts

SCRIPTS = scripts(
    "own-places",
    r"""
### scratch_deleted
for folder in scratches():
    shutil.rmtree(inside(folder), ignore_errors=True)
os.remove("notes.txt")

### scratch_deleted_by_program
sh("rm -rf ~/.cache/costgpu/measurements/*; rm -r data")

### scratch_moved refused
for folder in scratches():
    os.rename(inside(folder), inside(TEMP / "scratch"))
os.remove("notes.txt")

### cache_deleted
shutil.rmtree(inside(HOME / ".cache/costgpu"), ignore_errors=True)
os.remove("notes.txt")

### cache_cleaned_by_program
sh("rm -rf ~/.cache/*; rm notes.txt")

### scratch_without_rights
for folder in scratches():
    os.chmod(inside(folder), 0)
sh("rm notes.txt")

### scratch_contents_without_rights refused
for folder in scratches():
    for top, names, files in os.walk(inside(folder)):
        for name in names + files:
            os.path.islink(os.path.join(top, name)) or os.chmod(os.path.join(top, name), 0)
sh("rm -r data")

### journal_garbage
for folder in scratches():
    Path(folder, "journal.jsonl").write_bytes(b"\xff{{{" * 100)
sh("rm -r data")

### journal_wrong_types through-us
for folder in scratches():
    with open(Path(folder, "journal.jsonl"), "a") as stream:
        stream.write('[1, 2]\n{"kind": 1}\n{"kind": "backup", "path": 7, "other": null}\n"x"\n' + "[" * 5000 + "\n")

### journal_fifo through-us
for folder in scratches():
    path = Path(folder, "journal.jsonl")
    path.unlink(missing_ok=True)
    os.mkfifo(path)

### configuration_replaced
for folder in scratches():
    Path(folder, "config.json").write_text("{}")
sh("rm -r data")

### configuration_points_at_the_victim refused through-us
import json
for folder in scratches():
    path = Path(folder, "config.json")
    path.write_text(json.dumps({**json.loads(path.read_text()), "result": str(WORK / "notes.txt"), "scratch": str(WORK)}))

### record_forged unfinished
import json
for folder in scratches():
    Path(folder, "result.json").write_text(json.dumps({"status": "ended", "steps": [1] * 10, "torch": {"processes": 1}}))
os.remove("notes.txt")
os._exit(0)

### record_garbage unfinished
for folder in scratches():
    Path(folder, "result.json").write_bytes(b"\xff\xfe" + b"[" * 100_000)
os.remove("notes.txt")
os._exit(0)

### record_fifo unfinished
for folder in scratches():
    os.mkfifo(Path(folder, "result.json"))
os.remove("notes.txt")
os._exit(0)

### record_is_a_folder
for folder in scratches():
    Path(folder, "result.json").mkdir()
os.remove("notes.txt")

### record_is_a_link_to_the_victim
for folder in scratches():
    Path(folder, "result.json").symlink_to(WORK / "notes.txt")
    Path(folder, "result.json.tmp").symlink_to(WORK / "old.txt")
os.remove("config.json")

### record_is_a_hard_link_to_the_victim refused
for folder in scratches():
    os.link("notes.txt", Path(folder, "result.json"))
os.remove("config.json")

### everything_links_to_the_victim
for folder in scratches():
    for name in os.listdir(folder):
        path = Path(folder, name)
        if path.is_file():
            path.unlink()
            path.symlink_to(WORK / "notes.txt")
os.remove("old.txt")

### scratch_is_a_link_to_the_victim refused
for folder in scratches():
    os.rename(inside(folder), inside(folder) + ".moved")
    os.symlink(WORK, folder)
os.remove("notes.txt")

### measurements_is_a_link_to_the_victim refused
folder = HOME / ".cache/costgpu/measurements"
os.rename(inside(folder), str(folder) + ".moved")
os.symlink(WORK, folder)
os.remove("notes.txt")

### stepping_forged
for folder in scratches():
    Path(folder, "stepping").write_text("")
os.remove("notes.txt")

### log_deleted
for folder in scratches():
    Path(folder, "output.log").unlink(missing_ok=True)
os.remove("notes.txt")

### log_is_a_link
for folder in scratches():
    Path(folder, "output.log").unlink(missing_ok=True)
    Path(folder, "output.log").symlink_to(WORK / "notes.txt")
print("into what", flush=True)
os.remove("old.txt")

### probe_replaced
for folder in scratches():
    for path in Path(folder).glob("*.pyz"):
        path.write_bytes(b"not a program")
os.remove("notes.txt")
subprocess.run([sys.executable, "-c", "import os; os.remove('old.txt')"], check=True)

### scratch_filled
for folder in scratches() or [str(TEMP)]:
    with open(Path(folder, "filler"), "wb") as stream:
        for _ in range(64):
            stream.write(bytes(1 << 20))
os.remove("notes.txt")

### scratch_sparse_huge
for folder in scratches() or [str(TEMP)]:
    with open(Path(folder, "sparse"), "wb") as stream:
        stream.truncate(1 << 40)
os.remove("notes.txt")

### many_files
(TEMP / "many").mkdir()
for number in range(2000):
    (TEMP / f"many/{number}").write_text("")
os.remove("notes.txt")

### deep_folders
here = os.open(TEMP, os.O_RDONLY)
for _ in range(300):
    os.mkdir("deep" * 10, dir_fd=here)
    here, previous = os.open("deep" * 10, os.O_RDONLY, dir_fd=here), here
    os.close(previous)
os.remove("notes.txt")

### upper_layer_written_directly
for folder in scratches():
    for top, names, _ in os.walk(folder):
        for name in names:
            try:
                Path(top, name, "notes.txt").unlink(missing_ok=True)
                os.symlink(WORK / "notes.txt", Path(top, name, "old.txt"))
            except OSError:
                pass
os.remove("notes.txt")

### upper_layer_whiteouts
for folder in scratches():
    for top, names, _ in os.walk(folder):
        for name in names:
            try:
                os.mknod(Path(top, name, "data"), 0o20000, os.makedev(0, 0))
            except OSError:
                pass
sh("rm -rf data")

### scratch_hard_links_out
for folder in scratches():
    try:
        os.link("notes.txt", Path(folder, "notes.txt"))
        Path(folder, "notes.txt").write_text("gone")
    except OSError:
        pass
os.remove("old.txt")

### scratch_race_of_links endless
if not os.fork():
    while True:
        for folder in scratches():
            try:
                os.symlink(WORK / "notes.txt", Path(folder, "next"))
                os.replace(Path(folder, "next"), Path(folder, "result.json"))
            except OSError:
                pass
while True:
    Path("old.txt").write_text("gone")

### modules_shadowed through-us
for name in ("json", "psutil", "zipfile", "subprocess"):
    (WORK / f"{name}.py").write_text(f"open({str(WORK / 'notes.txt')!r}, 'w').write('by the next start')\n")

### environment_of_the_next
(HOME / ".local/lib/python3.11/site-packages").mkdir(parents=True)
(HOME / ".local/lib/python3.11/site-packages/usercustomize.py").write_text("import os\n")

### ledger_forged
(HOME / ".local/share/costgpu").mkdir(parents=True)
(HOME / ".local/share/costgpu/ledger.db").write_bytes(b"not a database")

### lock_held
import fcntl
for folder in scratches():
    fcntl.flock(os.open(folder, os.O_RDONLY), fcntl.LOCK_EX)
os.remove("notes.txt")
""",
)
