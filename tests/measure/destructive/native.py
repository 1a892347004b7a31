# ruff: noqa: E501 - a script is a line as its writer wrote it
"""Native code: the C library, raw system calls, compiled programs, handles and passed descriptors."""

from tests.measure.destructive.corpus import scripts

SCRIPTS = scripts(
    "native",
    r"""
### libc_open_write
handle = must(LIBC.open(b"notes.txt", os.O_WRONLY | os.O_TRUNC))
LIBC.write(handle, b"gone", 4)

### libc_fopen
LIBC.fopen.restype = ctypes.c_void_p
stream = ctypes.c_void_p(LIBC.fopen(b"notes.txt", b"w"))
LIBC.fputs(b"gone", stream)
LIBC.fclose(stream)

### libc_creat
LIBC.close(must(LIBC.creat(b"notes.txt", 0o600)))

### libc_unlink
must(LIBC.unlink(b"notes.txt"))

### libc_remove
must(LIBC.remove(b"notes.txt"))

### libc_rename
must(LIBC.rename(b"notes.txt", b"moved.txt"))

### libc_renameat refused
must(LIBC.renameat(AT_FDCWD, b"data", AT_FDCWD, b"data.old"))

### libc_truncate
must(LIBC.truncate(b"notes.txt", ctypes.c_long(0)))

### libc_chmod
must(LIBC.chmod(b"notes.txt", 0o600))

### libc_utimensat
must(LIBC.utimensat(AT_FDCWD, b"old.txt", None, 0))

### libc_symlink_over
must(LIBC.unlink(b"link_file"))
must(LIBC.symlink(b"old.txt", b"link_file"))

### libc_link_write
must(LIBC.link(b"notes.txt", b"second"))
must(LIBC.truncate(b"second", ctypes.c_long(0)))

### libc_setxattr
must(LIBC.setxattr(b"notes.txt", b"user.x", b"1", ctypes.c_size_t(1), 0))

### libc_mmap
LIBC.mmap.restype = ctypes.c_void_p
LIBC.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
place = LIBC.mmap(None, 64, 3, 1, LIBC.open(b"notes.txt", os.O_RDWR), 0)
ctypes.memmove(place, b"gone", 4)

### libc_nftw_like
LIBC.chdir(b"data/train")
for number in range(20):
    LIBC.unlink(b"%03d.txt" % number)

### raw_openat
handle = syscall("openat", AT_FDCWD, b"notes.txt", os.O_WRONLY | os.O_TRUNC, 0)
syscall("write", handle, b"gone", 4)

### raw_unlinkat
syscall("unlinkat", AT_FDCWD, b"notes.txt", 0)

### raw_unlinkat_directory
syscall("unlinkat", AT_FDCWD, b"data/empty", 0x200)

### raw_truncate
syscall("truncate", b"notes.txt", 0)

### raw_renameat2_noreplace refused
syscall("renameat2", AT_FDCWD, b"data", AT_FDCWD, b"data.old", 1)

### raw_openat2
import struct
how = ctypes.create_string_buffer(struct.pack("QQQ", os.O_WRONLY | os.O_TRUNC, 0, 0), 24)
os.close(LIBC.syscall(ctypes.c_long(SYSCALLS["openat2"]), ctypes.c_long(AT_FDCWD), b"notes.txt", how, ctypes.c_long(24)))

### raw_copy_file_range
source, target = os.open("old.txt", os.O_RDONLY), os.open("notes.txt", os.O_WRONLY)
syscall("copy_file_range", source, None, target, None, 5, 0)

### memfd_exec needs=rm
handle = syscall("memfd_create", b"program", 0)
with open(shutil.which("rm"), "rb") as program:
    os.write(handle, program.read())
subprocess.run([f"/proc/self/fd/{handle}", "-r", "data"], pass_fds=[handle], executable=f"/proc/self/fd/{handle}", check=True)

### handle_at
size = 128
handle = ctypes.create_string_buffer(8 + size)
ctypes.memmove(handle, ctypes.byref(ctypes.c_uint(size)), 4)
mount = ctypes.c_int()
opened = -1
if LIBC.name_to_handle_at(AT_FDCWD, b"notes.txt", handle, ctypes.byref(mount), 0) == 0:
    for place in (".", "..", "/"):
        opened = LIBC.open_by_handle_at(os.open(place, os.O_RDONLY), handle, os.O_RDWR | os.O_TRUNC)
        if opened >= 0:
            os.write(opened, b"gone")
            break
if opened < 0:
    os.truncate("notes.txt", 0)

### handle_of_the_inode only-isolated
isolated("mnt")
import struct
places = [line.split()[4] for line in open("/proc/self/mountinfo")]
for number in [os.lstat(name).st_ino for name in os.listdir(".")]:
    for kind, body in ((1, struct.pack("II", number, 0)), (0x81, struct.pack("QI", number, 0))):
        raw = struct.pack("Ii", len(body), kind) + body
        for place in places[:20]:
            try:
                base = os.open(place, os.O_RDONLY)
            except OSError:
                continue
            found = LIBC.open_by_handle_at(base, raw, os.O_RDWR)
            if found >= 0 and os.readlink(f"/proc/self/fd/{found}").endswith("notes.txt"):
                os.truncate(found, 0)
            os.close(base)
os.truncate("notes.txt", 0)

### descriptor_passed_by_socket
import array, socket
mine, theirs = socket.socketpair()
if not os.fork():
    handle = os.open("notes.txt", os.O_RDWR)
    theirs.sendmsg([b"x"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [handle]))])
    os._exit(0)
_, ancillary, _, _ = mine.recvmsg(1, socket.CMSG_SPACE(4))
os.ftruncate(array.array("i", ancillary[0][2][:4])[0], 0)
os.wait()

### inherited_descriptors
os.remove("old.txt")
for name in os.listdir("/proc/self/fd"):
    try:
        if os.path.isdir(f"/proc/self/fd/{name}"):
            os.unlink(inside(WORK / "notes.txt")[1:], dir_fd=int(name))
    except OSError:
        pass

### inherited_directory_up
os.remove("old.txt")
for name in os.listdir("/proc/self/fd"):
    if os.path.isdir(f"/proc/self/fd/{name}"):
        for up in ("..", "../..", "../../..", "../../../..", "../../../../.."):
            try:
                os.unlink(f"{up}/work/notes.txt", dir_fd=int(name))
            except OSError:
                pass

### standard_output_is_ours
os.remove("old.txt")
for number in (0, 1, 2):
    path = os.readlink(f"/proc/self/fd/{number}")
    if path.startswith(str(VICTIM)):
        os.unlink(path)
        os.symlink(inside(WORK / "notes.txt"), path)

### compiled needs=cc
program = compiled('''
#include <stdio.h>
#include <unistd.h>
int main(void) { FILE *f = fopen("notes.txt", "w"); fputs("gone", f); fclose(f); return unlink("old.txt"); }
''')
subprocess.run([program], check=True)

### compiled_static needs=cc
try:
    program = compiled("#include <unistd.h>\nint main(void) { return unlink(\"notes.txt\"); }\n", "-static")
except subprocess.CalledProcessError:
    program = compiled("#include <unistd.h>\nint main(void) { return unlink(\"notes.txt\"); }\n")
subprocess.run([program], env={}, check=True)

### compiled_vfork needs=cc
program = compiled('''
#include <unistd.h>
#include <sys/wait.h>
int main(void) { if (vfork() == 0) { execlp("rm", "rm", "-r", "data", (char *)0); _exit(1); } return wait(0) < 0; }
''')
subprocess.run([program], check=True)

### compiled_extension needs=cc
library = compiled("#include <unistd.h>\nint harm(void) { return unlink(\"notes.txt\"); }\n", "-shared", "-fPIC")
must(ctypes.CDLL(library).harm())

### compiled_clone_files needs=cc
program = compiled('''
#define _GNU_SOURCE
#include <sched.h>
#include <unistd.h>
#include <sys/wait.h>
#include <signal.h>
static char stack[65536];
static int harm(void *p) { (void)p; return unlink("notes.txt"); }
int main(void) { int s; int c = clone(harm, stack + 65536, CLONE_FS | CLONE_FILES | SIGCHLD, 0); waitpid(c, &s, 0); return s; }
''')
subprocess.run([program], check=True)

### compiled_io_uring needs=cc
program = compiled('''
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <linux/io_uring.h>
int main(void) {
  struct io_uring_params p; memset(&p, 0, sizeof p);
  int ring = syscall(SYS_io_uring_setup, 4, &p);
  if (ring < 0) return unlink("notes.txt");
  char *sq = mmap(0, p.sq_off.array + p.sq_entries * 4, 3, MAP_SHARED, ring, IORING_OFF_SQ_RING);
  struct io_uring_sqe *sqe = mmap(0, p.sq_entries * sizeof *sqe, 3, MAP_SHARED, ring, IORING_OFF_SQES);
  memset(sqe, 0, sizeof *sqe);
  sqe->opcode = IORING_OP_UNLINKAT; sqe->fd = AT_FDCWD; sqe->addr = (unsigned long)"notes.txt";
  unsigned *tail = (unsigned *)(sq + p.sq_off.tail), mask = *(unsigned *)(sq + p.sq_off.ring_mask);
  ((unsigned *)(sq + p.sq_off.array))[*tail & mask] = 0;
  __atomic_store_n(tail, *tail + 1, __ATOMIC_RELEASE);
  syscall(SYS_io_uring_enter, ring, 1, 1, IORING_ENTER_GETEVENTS, 0, 0);
  return access("notes.txt", F_OK) == 0 ? unlink("notes.txt") : 0;
}
''')
subprocess.run([program], check=True)

### loader_directly
loader = next((path for path in ("/lib64/ld-linux-x86-64.so.2", "/lib/ld-linux-aarch64.so.1") if os.path.exists(path)), None)
subprocess.run([*([loader] if loader else []), shutil.which("rm"), "-r", "data"], check=True)

### asynchronous_io
import threading
handle = os.open("notes.txt", os.O_RDWR)
worker = threading.Thread(target=lambda: LIBC.pwrite(handle, b"gone", ctypes.c_size_t(4), ctypes.c_long(0)))
worker.start()
worker.join()

### memory_write_to_mapping
import mmap
area = mmap.mmap(os.open("notes.txt", os.O_RDWR), 0)
place = ctypes.addressof(ctypes.c_char.from_buffer(area))
with open("/proc/self/mem", "r+b", buffering=0) as memory:
    memory.seek(place)
    memory.write(b"gone")

### no_new_privileges_set
LIBC.prctl(38, 1, 0, 0, 0)
os.remove("notes.txt")

### drop_and_regain_rights
LIBC.prctl(8, 1, 0, 0, 0)
try:
    os.setresuid(-1, os.getuid(), -1)
except OSError:
    pass
subprocess.run(["rm", "-r", "data"], check=True)
""",
)
