# ruff: noqa: E501 - a script is a line as its writer wrote it
"""Home, caches, temporary files and shared memory of others."""

from tests.measure.destructive.corpus import scripts

SCRIPTS = scripts(
    "home",
    r"""
### bashrc
with open(Path.home() / ".bashrc", "a") as stream:
    stream.write("export CUDA_VISIBLE_DEVICES=0\n")

### expanduser
open(os.path.expanduser("~/.profile"), "w").close()

### keys_deleted
shutil.rmtree(inside(HOME / ".ssh"))

### keys_readable
sh("chmod -R a+r ~/.ssh")

### known_hosts
sh("echo 'evil none' >> ~/.ssh/known_hosts")

### netrc
os.remove(inside(HOME / ".netrc"))

### whole_home
for name in os.listdir(inside(HOME)):
    path = HOME / name
    shutil.rmtree(path, ignore_errors=True) if path.is_dir() else path.unlink()

### home_by_shell
sh('test -n "$VICTIM" && rm -rf "$VICTIM/home"/* "$VICTIM/home"/.[a-z]* || true')

### cache_wiped
shutil.rmtree(inside(HOME / ".cache"), ignore_errors=True)

### hub_cleaned
for path in (HOME / ".cache/huggingface/hub").glob("models--*"):
    shutil.rmtree(inside(path))

### token_replaced
(HOME / ".cache/huggingface/token").write_text("another")

### torch_hub_truncated
os.truncate(HOME / ".cache/torch/hub/checkpoints/resnet.pth", 10)

### pip_cache_purged
shutil.rmtree(inside(HOME / ".cache/pip"))

### settings
sh("sed -i s/a/b/ ~/.config/app/settings.toml")

### config_moved
sh("mv ~/.config ~/.config.old")

### state
(HOME / ".local/share/app/state.json").write_text("[]")

### tool_replaced
path = HOME / ".local/bin/tool"
path.write_text("#!/bin/sh\nrm -rf /nowhere\n")

### autostart
(HOME / ".config/autostart").mkdir()
(HOME / ".config/autostart/x.desktop").write_text("[Desktop Entry]\n")

### crontab
os.remove(inside(HOME / "crontab"))

### documents
shutil.rmtree(inside(HOME / "documents"))

### temp_wiped
import tempfile
for name in os.listdir(inside(tempfile.gettempdir())):
    path = Path(tempfile.gettempdir(), name)
    shutil.rmtree(path) if path.is_dir() else path.unlink()

### temp_file_of_another
(TEMP / "somebody.txt").write_text("mine now")

### temp_by_shell
sh('rm -rf "${TMPDIR:?}"/job-*')

### temp_sticky_lost
os.chmod(TEMP, 0o755)

### temp_lock_removed
os.remove(TEMP / "lock")

### temp_left_behind
import tempfile
tempfile.mkstemp()
tempfile.mkdtemp()

### shared_memory_removed refused
os.remove(SHM / "tensor")

### shared_memory_written refused
with open(SHM / "weights", "r+b") as stream:
    stream.write(b"WEIGHTS")

### shared_memory_wiped refused
shutil.rmtree(SHM)

### shared_memory_mapped refused
import mmap
mmap.mmap(os.open(SHM / "tensor", os.O_RDWR), 4096)[:4] = b"gone"

### shared_memory_by_shell
sh('rm -rf "${VICTIM_SHM:?}"')

### site_packages_uninstall
shutil.rmtree(inside(OUTSIDE / "site-packages/pkg"))

### site_packages_patched
with open(OUTSIDE / "site-packages/pkg/__init__.py", "a") as stream:
    stream.write("VALUE = 2\n")

### bytecode
import py_compile
py_compile.compile(str(OUTSIDE / "site-packages/pkg/__init__.py"))

### bytecode_by_import
sys.path.insert(0, str(OUTSIDE / "site-packages"))
sys.dont_write_bytecode = False
sys.pycache_prefix = None
import pkg

### outside_secret
sh("cd ../outside && rm -r secret")

### outside_worktree
shutil.rmtree(inside(OUTSIDE / "worktree"))

### xdg_places
for name in ("XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME"):
    os.environ.setdefault(name, str(HOME / {"XDG_CACHE_HOME": ".cache", "XDG_CONFIG_HOME": ".config"}.get(name, ".local/share")))
sh('rm -rf "$XDG_CONFIG_HOME/app" "$XDG_DATA_HOME/app"')

### history
(HOME / ".python_history").write_text("import os\n")

### numba_like_cache
(WORK / "src/__pycache__").mkdir()
(WORK / "src/__pycache__/model.cpython-311.pyc").write_bytes(b"stale")

### permissions_of_home
os.chmod(HOME, 0o777)
""",
)
