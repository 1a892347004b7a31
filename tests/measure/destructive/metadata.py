"""Changing modes, owners, times, attributes, sizes and links."""

from tests.measure.destructive.corpus import scripts

SCRIPTS = scripts(
    "metadata",
    r"""
### chmod
os.chmod("notes.txt", 0o600)

### fchmod
os.fchmod(os.open("notes.txt", os.O_RDONLY), 0o777)

### chmod_by_descriptor
os.chmod(os.open("notes.txt", os.O_RDONLY), 0o640)

### chmod_dir_fd
os.chmod("000.txt", 0o640, dir_fd=os.open("data/train", os.O_RDONLY))

### chmod_dir
os.chmod("data", 0)

### chmod_through_proc
handle = os.open("notes.txt", os.O_PATH)
os.chmod(f"/proc/self/fd/{handle}", 0o640)

### setgid_lost
os.chmod("shared", 0o755)

### suid
os.chmod("script.sh", 0o4755)

### chown
os.chown("notes.txt", os.getuid(), os.getgid())
os.utime("notes.txt")

### lchown_link
os.lchown("link_file", os.getuid(), os.getgid())
os.utime("link_file", follow_symlinks=False)

### chown_other
try:
    os.chown("notes.txt", 1234, 1234)
except OSError:
    os.utime("notes.txt", (1, 1))

### fchown
os.fchown(os.open("notes.txt", os.O_RDONLY), -1, os.getgid())
os.utime("notes.txt")

### utime
os.utime("old.txt", (1, 1))

### utime_ns_dir
os.utime("data", ns=(5, 5))

### futimens
os.utime(os.open("old.txt", os.O_RDONLY), (2, 2))

### utime_link
os.utime("link_file", (3, 3), follow_symlinks=False)

### copystat
shutil.copystat("old.txt", "notes.txt")

### copymode
shutil.copymode("script.sh", "notes.txt")

### setxattr
os.setxattr("notes.txt", "user.comment", b"changed")

### fsetxattr
os.setxattr(os.open("tagged.txt", os.O_RDONLY), "user.comment", b"changed")

### removexattr
os.removexattr("tagged.txt", "user.comment")

### xattr_on_dir
os.setxattr("data", "user.note", b"new")

### chattr_nodump
import fcntl, struct
handle = os.open("notes.txt", os.O_RDONLY)
flags = struct.unpack("l", fcntl.ioctl(handle, 0x80086601, bytes(8)))[0]  # FS_IOC_GETFLAGS
try:
    fcntl.ioctl(handle, 0x40086602, struct.pack("l", flags | 0x40))  # FS_IOC_SETFLAGS, nodump
except OSError:
    os.utime("notes.txt", (1, 1))

### truncate
os.truncate("notes.txt", 3)

### truncate_longer
os.truncate("notes.txt", 1 << 20)

### ftruncate
os.ftruncate(os.open("notes.txt", os.O_RDWR), 0)

### fallocate
os.posix_fallocate(os.open("notes.txt", os.O_RDWR), 0, 1 << 16)

### punch_hole
handle = os.open("array.bin", os.O_RDWR)
try:
    syscall("fallocate", handle, 3, 0, 4096)
except OSError:
    os.pwrite(handle, bytes(4096), 0)

### collapse
handle = os.open("data/large.bin", os.O_RDWR)
try:
    syscall("fallocate", handle, 8, 0, 4096)
except OSError:
    os.ftruncate(handle, 4096)

### fill_the_holes
handle = os.open("big.sparse", os.O_RDWR)
os.posix_fallocate(handle, 0, 1 << 22)

### hard_link
os.link("notes.txt", "another_name")

### hard_link_then_write
os.link("notes.txt", TEMP / "mine.txt")
(TEMP / "mine.txt").write_text("gone")

### hard_link_dir_fd
here = os.open(".", os.O_RDONLY)
os.link("notes.txt", "linked", src_dir_fd=here, dst_dir_fd=here)
os.truncate("linked", 0)

### link_then_unlink
os.link("notes.txt", "another_name")
os.unlink("another_name")

### symlink_swap
os.symlink("epoch_1.pt", "checkpoints/best.new")
os.replace("checkpoints/best.new", "checkpoints/best.pt")

### symlink_to_dir_swap
os.remove("link_rel")
os.symlink("data/val", "link_rel")

### symlink_over_dir
shutil.rmtree("data/val")
os.symlink(OUTSIDE / "data", "data/val")
Path("data/val/x.bin").write_bytes(b"gone")

### mkfifo
os.mkfifo("data/pipe")

### mknod
os.mknod("data/node", 0o600)

### mkdir
os.makedirs("runs/exp3/deep")

### bind_socket
import socket
server = socket.socket(socket.AF_UNIX)
server.bind("data/s")

### umask_then_rewrite
os.umask(0)
os.remove("private.key")
os.close(os.open("private.key", os.O_CREAT | os.O_WRONLY, 0o666))

### lease_and_lock
import fcntl
with open("table.db", "r+b") as stream:
    fcntl.flock(stream, fcntl.LOCK_EX)
    fcntl.lockf(stream, fcntl.LOCK_EX)
    stream.truncate(512)

### fsync_folder
handle = os.open("data", os.O_RDONLY)
os.utime(handle)
os.fsync(handle)
""",
)
