"""Writing from Python, in every way that the standard library has."""

from tests.measure.destructive.corpus import scripts

SCRIPTS = scripts(
    "writes",
    r"""
### open_w
open("notes.txt", "w").write("gone")

### open_a
with open("notes.txt", "a") as stream:
    stream.write("one line too many\n")

### open_r_plus
with open("notes.txt", "r+b") as stream:
    stream.seek(3)
    stream.write(b"XYZ")

### open_w_through_a_link
open("link_file", "w").write("gone")

### open_w_dangling
open("dangling", "w").write("now there")

### open_x_new_file
open("data/train/new.txt", "x").write("a file that was not there")

### open_by_descriptor
with open(os.open("notes.txt", os.O_RDWR), "w") as stream:
    stream.write("gone")

### os_open_trunc
os.close(os.open("notes.txt", os.O_WRONLY | os.O_TRUNC))

### os_open_rdonly_trunc
os.close(os.open("notes.txt", os.O_RDONLY | os.O_TRUNC))

### os_open_dir_fd
folder = os.open("data/train", os.O_RDONLY | os.O_DIRECTORY)
os.write(os.open("000.txt", os.O_WRONLY, dir_fd=folder), b"gone")

### os_open_path_then_proc
handle = os.open("notes.txt", os.O_PATH)
open(f"/proc/self/fd/{handle}", "w").write("gone")

### os_reopen_own_descriptor
reading = open("notes.txt")
os.truncate(f"/dev/fd/{reading.fileno()}", 0)

### os_open_tmpfile_link
handle = os.open("data/train", os.O_TMPFILE | os.O_RDWR)
os.write(handle, b"born without a name")
syscall("linkat", AT_FDCWD, b"/proc/self/fd/%d" % handle, AT_FDCWD, b"data/train/linked.txt", 0x400)

### pwrite
handle = os.open("notes.txt", os.O_RDWR)
os.pwrite(handle, b"gone", 2)

### pwritev
handle = os.open("notes.txt", os.O_RDWR)
os.pwritev(handle, [b"go", b"ne"], 2)

### writev
os.writev(os.open("notes.txt", os.O_WRONLY), [b"go", b"ne"])

### dup2_stdout unfinished
os.dup2(os.open("notes.txt", os.O_WRONLY | os.O_APPEND), 1)
print("printed into the file", flush=True)

### sendfile
source, target = os.open("old.txt", os.O_RDONLY), os.open("notes.txt", os.O_WRONLY)
os.sendfile(target, source, 0, 10)

### copy_file_range
source, target = os.open("old.txt", os.O_RDONLY), os.open("notes.txt", os.O_WRONLY)
os.copy_file_range(source, target, 8)

### splice
reading, writing = os.pipe()
os.write(writing, b"through a pipe")
target = os.open("notes.txt", os.O_WRONLY)
os.splice(reading, target, 8) if hasattr(os, "splice") else os.write(target, b"gone")

### mmap_shared
import mmap
with open("notes.txt", "r+b") as stream, mmap.mmap(stream.fileno(), 0) as area:
    area[:4] = b"gone"

### mmap_never_flushed unfinished
import mmap
area = mmap.mmap(os.open("notes.txt", os.O_RDWR), 0)
area[:4] = b"gone"
os._exit(0)

### write_text
Path("notes.txt").write_text("gone")

### write_bytes_hard_link
Path("hard_b").write_bytes(b"gone for both names")

### touch
Path("old.txt").touch()

### path_open_plus
with Path("data/train/001.txt").open("a+") as stream:
    stream.write("more")

### shutil_copyfile
shutil.copyfile("old.txt", "notes.txt")

### shutil_copy2_into_folder
shutil.copy2("old.txt", "data/val/000.txt")

### shutil_copytree_over
shutil.copytree("data/val", "data/train", dirs_exist_ok=True)

### shutil_unpack
shutil.unpack_archive("archive.tar", ".", filter="fully_trusted")

### shutil_make_archive
shutil.make_archive("archive", "zip", "src")

### zip_append
import zipfile
with zipfile.ZipFile("archive.zip", "a") as archive:
    archive.writestr("more.txt", "more")

### zip_extract
import zipfile
zipfile.ZipFile("archive.zip").extractall(".")

### tar_extract
import tarfile
with tarfile.open("archive.tar") as archive:
    archive.extractall(".", filter="fully_trusted")

### gzip_write
import gzip
gzip.open("packed.gz", "wb").write(b"gone")

### fileinput_inplace
import fileinput
with fileinput.input("notes.txt", inplace=True) as lines:
    for line in lines:
        print(line.upper(), end="")

### tempfile_beside
import tempfile
with tempfile.NamedTemporaryFile("w", dir=".", delete=False) as stream:
    stream.write("new")
os.replace(stream.name, "notes.txt")

### shelve
import shelve
with shelve.open("shelf") as shelf:
    shelf["old"] = "gone"

### dbm_dumb
import dbm.dumb
with dbm.dumb.open("shelf", "n") as base:
    base["only"] = "this"

### sqlite_insert
import sqlite3
base = sqlite3.connect("table.db")
base.execute("insert into old values (2)")
base.commit()

### sqlite_uri
import sqlite3
base = sqlite3.connect(f"file:{WORK}/table.db?mode=rw", uri=True)
base.execute("delete from old")
base.commit()

### sqlite_attach
import sqlite3
base = sqlite3.connect(":memory:")
base.execute("attach 'table.db' as other")
base.execute("drop table other.old")
base.commit()

### sqlite_vacuum_into
import sqlite3
base = sqlite3.connect("table.db")
base.execute("vacuum into 'data/empty/copy.db'")

### sqlite_wal_checkpoint
import sqlite3
base = sqlite3.connect("wal.db")
base.execute("insert into old values (3)")
base.commit()
base.execute("pragma wal_checkpoint(truncate)")
base.close()

### sqlite_journal_mode
import sqlite3
sqlite3.connect("table.db").execute("pragma journal_mode=wal").fetchall()

### sqlite_backup
import sqlite3
sqlite3.connect(":memory:").backup(sqlite3.connect("table.db"))

### logging_file
import logging
logging.basicConfig(filename="run.log", filemode="w")
logging.warning("the log of last week is gone")

### logging_rotation
import logging.handlers
handler = logging.handlers.RotatingFileHandler("run.log", maxBytes=1, backupCount=2)
for number in range(4):
    handler.emit(logging.makeLogRecord({"msg": f"line {number}"}))

### pickle_dump
import pickle
pickle.dump({}, open("config.json", "wb"))

### json_in_place
import json
with open("config.json", "r+") as stream:
    settings = json.load(stream)
    stream.seek(0)
    json.dump({**settings, "lr": 0.5}, stream)
    stream.truncate()

### csv_append
import csv
with open("runs/exp2/metrics.csv", "a", newline="") as stream:
    csv.writer(stream).writerow([9, 9])

### configparser
import configparser
settings = configparser.ConfigParser()
settings["new"] = {"a": "1"}
settings.write(open(HOME / ".config/app/settings.ini", "w"))

### numpy_save imports=numpy
import numpy
numpy.save("array.npy", numpy.zeros(3))

### numpy_memmap imports=numpy
import numpy
area = numpy.memmap("array.bin", dtype="uint8", mode="r+")
area[:] = 0
area.flush()

### numpy_open_memmap imports=numpy
import numpy
numpy.lib.format.open_memmap("array.npy", mode="r+")[:] = 7

### numpy_tofile imports=numpy
import numpy
numpy.zeros(4).tofile("array.bin")

### torch_file_writer imports=torch
import torch
writer = torch._C.PyTorchFileWriter("checkpoints/epoch_1.pt")
writer.write_record("data", b"gone", 4)
writer.write_end_of_file()

### undecodable_name
open(b"undecodable-\xff.bin", "wb").write(b"gone")

### newline_name
open("new\nline.txt", "a").write("more")

### unicode_name
Path("ünïcode-名前.txt").write_text("gone")

### big_sparse_end
with open("big.sparse", "r+b") as stream:
    stream.seek(-1, 2)
    stream.write(b"x")

### read_only_file
os.chmod("readonly.txt", 0o644)
open("readonly.txt", "w").write("gone")

### no_permission_file
os.chmod("secret.bin", 0o600)
open("secret.bin", "w").write("gone")

### thread_writes
import threading
threads = [threading.Thread(target=Path(f"data/train/{number:03}.txt").write_text, args=("gone",)) for number in range(20)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]

### through_absolute_link
open("link_abs/x.bin", "wb").write(b"gone")

### outside_the_folder
open("../outside/data/y.csv", "w").write("gone")
""",
)
