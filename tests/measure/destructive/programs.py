# ruff: noqa: E501 - a script is a line as its writer wrote it
"""Other programs: through a shell, without one, and such as outlive the script."""

from tests.measure.destructive.corpus import scripts

SCRIPTS = scripts(
    "programs",
    r"""
### rm_rf
sh("rm -rf data checkpoints")

### rm_glob
sh("rm -f -- *.txt")

### rm_two_one_missing unfinished
sh("rm notes.txt not-there.txt")

### rm_then_mkdir
sh("rm -rf runs && mkdir -p runs/exp1")

### rm_variable
sh("cd $VICTIM/home && rm -rf .cache/huggingface")

### no_shell
subprocess.check_call(["rm", "-r", "data/train"])

### os_system
os.system("rm -r data/train")

### os_popen
os.popen("rm notes.txt; echo done").read()

### getoutput
subprocess.getoutput("mv notes.txt moved.txt")

### absolute_program
subprocess.run([shutil.which("rm"), "notes.txt"], check=True)

### mv_dir
sh("mv data data.old")

### mv_glob
sh("mv data/train/*.txt data/val/")

### mv_over
sh("mv -f old.txt notes.txt")

### cp_over
sh("cp old.txt notes.txt")

### cp_into_dir
sh("cp old.txt data/val/000.txt data/train/")

### cp_reflink
sh("cp --reflink=auto old.txt notes.txt")

### cp_remove_destination
sh("cp --remove-destination old.txt link_file")

### ln_sf
sh("ln -sf epoch_1.pt checkpoints/best.pt")

### ln_sfn_dir
sh("ln -sfn data/val link_rel")

### ln_hard_then_truncate
sh("ln notes.txt $TMPDIR/notes && : > $TMPDIR/notes")

### tar_x
sh("tar -xf archive.tar")

### tar_remove_files
sh("tar -cf $TMPDIR/all.tar --remove-files data/train")

### unzip needs=unzip
sh("unzip -qo archive.zip")

### gzip_in_place needs=gzip
sh("gzip notes.txt")

### gunzip_in_place needs=gunzip
sh("gunzip -f packed.gz")

### rsync_delete needs=rsync
sh("rsync -a --delete data/val/ data/train/")

### find_delete
sh("find data -name '*.txt' -delete")

### find_exec
sh("find data -type f -exec sh -c 'echo gone > \"$1\"' _ {} ';'")

### find_execdir
sh("find data -type f -execdir rm -f {} +")

### xargs
sh("ls data/train | sed 's,^,data/train/,' | xargs -P 2 rm")

### sed_in_place
sh("sed -i s/before/after/ notes.txt")

### perl_in_place needs=perl
sh("perl -pi -e 's/before/after/' notes.txt")

### perl_unlink needs=perl
subprocess.run(["perl", "-e", "unlink glob('data/train/*.txt'); truncate 'notes.txt', 0"], check=True)

### awk_redirect needs=awk
sh("awk 'BEGIN { print \"gone\" > \"notes.txt\" }'")

### shred needs=shred
sh("shred -u notes.txt")

### truncate
sh("truncate -s 0 notes.txt data/large.bin")

### fallocate needs=fallocate
sh("fallocate -l 65536 notes.txt")

### dd
sh("dd if=/dev/zero of=notes.txt bs=16 count=1 conv=notrunc status=none")

### dd_direct
sh("dd if=/dev/zero of=data/large.bin bs=4096 count=1 conv=notrunc oflag=direct status=none"
   " || dd if=/dev/zero of=data/large.bin bs=4096 count=1 conv=notrunc status=none")

### install
sh("install -m 600 old.txt notes.txt")

### touch
sh("touch -d 1999-01-01 notes.txt old.txt")

### chmod_r
sh("chmod -R 700 data")

### chmod_reference
sh("chmod --reference=private.key notes.txt")

### chown_r
sh("chown -R $(id -u):$(id -g) data; touch data")

### setfattr needs=setfattr
sh("setfattr -x user.comment tagged.txt")

### chattr needs=chattr
sh("chattr +d notes.txt || touch notes.txt")

### make_target needs=make
sh("make -s")

### make_touch needs=make
sh("make -s -t all notes.txt -W old.txt; touch notes.txt")

### make_stdin needs=make
sh("printf 'all:\\n\\trm -r data\\n' | make -s -f -")

### patch needs=patch
sh("patch -s -p1 < change.patch || patch -s notes.txt change.patch || truncate -s 0 notes.txt")

### tee
sh("echo gone | tee notes.txt data/train/00*.txt > /dev/null")

### redirect
sh(": > notes.txt; echo more >> old.txt")

### redirect_read_write
sh("exec 3<>notes.txt; echo gone >&3")

### noclobber_override
sh("set -C; echo gone >| notes.txt")

### sponge_like
sh("sort -r notes.txt > notes.tmp && cat notes.tmp > notes.txt && rm notes.tmp")

### sort_output
sh("printf 'b\\na\\n' | sort -o notes.txt")

### split
sh("split -b 10 notes.txt part. && rm notes.txt")

### mktemp_mv
sh("t=$(mktemp) && echo gone > $t && mv $t notes.txt")

### heredoc
subprocess.run(["sh"], input=b"rm -r data\ncat > notes.txt <<END\ngone\nEND\n", check=True)

### stdin_redirected
subprocess.run(["cat"], stdin=open("old.txt"), stdout=open("notes.txt", "r+"), check=True)

### script_of_shell
(TEMP / "clean.sh").write_text("#!/bin/sh\nrm -rf data\n")
(TEMP / "clean.sh").chmod(0o755)
subprocess.run([str(TEMP / "clean.sh")], check=True)

### own_program_in_place
sh("printf '#!/bin/sh\\nrm -r data\\n' > script.sh && ./script.sh")

### env_i
sh("env -i /bin/sh -c 'rm -r data'")

### python_pipe_code
subprocess.run([sys.executable], input=b"import shutil; shutil.rmtree('data')", check=True)

### cwd_elsewhere
subprocess.run(["rm", "-r", "work/data"], cwd=VICTIM, check=True)

### cwd_root_relative
subprocess.run(["rm", "-r", inside(WORK / "data")[1:]], cwd="/", check=True)

### preexec
subprocess.run(["true"], preexec_fn=lambda: os.remove("notes.txt"), check=True)

### sqlite_shell needs=sqlite3
sh("sqlite3 table.db 'delete from old; vacuum'")

### busybox needs=busybox
sh("busybox rm -r data")

### bash_builtin needs=bash
subprocess.run(["bash", "-c", "for f in data/train/*; do > $f; done"], check=True)

### script_terminal needs=script
sh("script -qc 'rm -r data' /dev/null")

### nohup later
subprocess.Popen(["nohup", "sh", "-c", "while kill -0 $PPID_OF_MAIN 2> /dev/null; do :; done; rm -r data"],
                 env={**os.environ, "PPID_OF_MAIN": str(os.getpid())}, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

### setsid_later later needs=setsid
subprocess.Popen(["setsid", "sh", "-c", f"while kill -0 {os.getpid()} 2> /dev/null; do :; done; rm -r data"])

### background_without_marker later
subprocess.Popen(["sh", "-c", f"while kill -0 {os.getpid()} 2> /dev/null; do :; done; rm -r data"],
                 env={"PATH": os.environ["PATH"]}, start_new_session=True)

### shell_background later
sh(f"(while kill -0 {os.getpid()} 2> /dev/null; do :; done; rm -r data) > /dev/null 2>&1 &")

### pty
import pty
pty.spawn(["sh", "-c", "rm -r data"])

### asyncio_shell
import asyncio
async def main():
    await (await asyncio.create_subprocess_shell("rm -r data")).wait()
asyncio.run(main())

### webbrowser_like
subprocess.run("$RM notes.txt", shell=True, env={**os.environ, "RM": "rm"}, check=True)

### start_then_forget later
subprocess.Popen(["sh", "-c", f"while kill -0 {os.getpid()} 2> /dev/null; do :; done; echo gone > notes.txt"], stdin=subprocess.PIPE)
""",
)
