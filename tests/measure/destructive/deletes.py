"""Deleting and moving, relative to names, descriptors and other processes."""

from tests.measure.destructive.corpus import scripts

SCRIPTS = scripts(
    "deletes",
    r"""
### remove
os.remove("notes.txt")

### unlink_at
os.unlink("000.txt", dir_fd=os.open("data/train", os.O_RDONLY))

### path_unlink_glob
for path in Path("checkpoints").glob("*.pt"):
    path.unlink()

### rmdir
os.rmdir("data/empty")

### rmdir_dir_fd
os.rmdir("empty", dir_fd=os.open("data", os.O_RDONLY))

### removedirs
os.remove("data/deep/a/b/c/d/leaf.txt")
os.removedirs("data/deep/a/b/c/d")

### rmtree
shutil.rmtree("data")

### rmtree_dir_fd
shutil.rmtree("train", dir_fd=os.open("data", os.O_RDONLY))

### rmtree_everything
for name in os.listdir(inside(WORK)):
    shutil.rmtree(name) if os.path.isdir(name) and not os.path.islink(name) else os.remove(name)

### rmtree_through_absolute_link
shutil.rmtree(inside(os.path.realpath("link_abs")))

### fwalk
for folder, _, files, handle in os.fwalk("data"):
    for name in files:
        os.unlink(name, dir_fd=handle)

### fchdir_then_unlink
os.fchdir(os.open("data/val", os.O_RDONLY))
os.unlink("000.txt")

### chdir_up_and_down
os.chdir("../home")
os.remove(".bashrc")

### rename
os.rename("notes.txt", "notes.old")

### rename_dir
os.rename("data", "data.old")

### rename_dir_fds
here = os.open("data/train", os.O_RDONLY)
os.rename("000.txt", "999.txt", src_dir_fd=here, dst_dir_fd=here)

### renames
os.renames("data/deep/a/b/c/d/leaf.txt", "data/leaf.txt")

### replace_over_file
os.replace("old.txt", "notes.txt")

### replace_over_empty_dir
os.mkdir("data/fresh")
os.replace("data/fresh", "data/empty")

### replace_link_by_file
os.replace("old.txt", "link_file")

### move_out
shutil.move("data", str(OUTSIDE / "moved"))

### move_over
shutil.move("old.txt", "notes.txt")

### exchange
syscall("renameat2", AT_FDCWD, b"notes.txt", AT_FDCWD, b"old.txt", 2)

### exchange_dirs refused
syscall("renameat2", AT_FDCWD, b"data/train", AT_FDCWD, b"data/val", 2)

### whiteout
try:
    syscall("renameat2", AT_FDCWD, b"notes.txt", AT_FDCWD, b"moved.txt", 4)
except OSError:
    os.rename("notes.txt", "moved.txt")

### proc_self_cwd
os.unlink("/proc/self/cwd/notes.txt")

### proc_thread_cwd
os.unlink("/proc/thread-self/cwd/notes.txt")

### proc_self_root
os.unlink("/proc/self/root" + inside(WORK / "notes.txt"))

### proc_self_fd_dir
handle = os.open("data", os.O_RDONLY)
shutil.rmtree(f"/proc/self/fd/{handle}/train")

### proc_parent_cwd
def harm():
    os.unlink(f"/proc/{os.getppid()}/cwd/notes.txt")
in_child(harm)

### proc_every_cwd
os.remove("old.txt")
for name in filter(str.isdigit, os.listdir("/proc")):
    try:
        if os.path.samefile(f"/proc/{name}/cwd", WORK) or os.readlink(f"/proc/{name}/cwd") == str(WORK):
            os.unlink(f"/proc/{name}/cwd/notes.txt")
    except OSError:
        pass

### proc_every_root
os.remove("old.txt")
for name in filter(str.isdigit, os.listdir("/proc")):
    try:
        os.unlink(f"/proc/{name}/root" + inside(WORK / "notes.txt"))
    except OSError:
        pass

### proc_every_descriptor
import glob
for path in glob.glob("/proc/[0-9]*/fd/*"):
    try:
        if os.readlink(path) == str(WORK) or os.readlink(path).startswith(str(WORK) + "/"):
            os.unlink(path + "/notes.txt")
    except OSError:
        pass
os.path.exists("notes.txt") and os.remove("notes.txt")

### dot_dot_through_link
os.unlink("link_abs/../../work/notes.txt")

### map_files
import mmap
handle = os.open("notes.txt", os.O_RDWR)
area = mmap.mmap(handle, 0)
os.close(handle)
name = next(line.split()[0] for line in open("/proc/self/maps") if line.rstrip().endswith("/notes.txt"))
begin, end = name.split("-")
try:
    open(f"/proc/self/map_files/{begin.lstrip('0')}-{end.lstrip('0')}", "r+b").write(b"gone")
except OSError:
    area[:4] = b"gone"

### delete_the_working_folder
os.chdir("..")
shutil.rmtree(inside(WORK))

### replace_the_working_folder refused
os.chdir("..")
os.rename(inside(WORK), inside(VICTIM / "work.old"))
shutil.copytree("work.old/src", "work")

### swap_with_home refused
os.chdir("..")
syscall("renameat2", AT_FDCWD, b"work", AT_FDCWD, b"home", 2)

### delete_hard_linked
os.remove("hard_a")
os.remove(OUTSIDE / "hard_c")

### delete_special
for name in ("pipe", "sock", "dangling", "link_abs"):
    os.remove(name)

### delete_odd_names
for name in os.listdir(b"."):
    if not name.isalnum() and os.path.isfile(name) and not name.startswith(b"."):
        os.remove(name)

### unlink_while_open
stream = open("notes.txt", "a")
os.remove("notes.txt")
stream.write("into what has no name")
stream.close()

### remove_then_make_again
shutil.rmtree("data/train")
os.mkdir("data/train")
Path("data/train/000.txt").write_text("another")

### temp_dir_of_ours_in_theirs
import tempfile
folder = tempfile.mkdtemp(dir=".")
os.rename("notes.txt", os.path.join(folder, "notes.txt"))
shutil.rmtree(folder)
""",
)
