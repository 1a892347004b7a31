"""Small programs in every guest that let a test say what the machine's clock and GPUs show.

- ``/etc/testbed/clock-offset``: seconds by which ``date`` and Python's `time.time` go ahead; read at every call.
- ``/etc/testbed/gpus``: one line ``name, utilisation in percent`` for each GPU. ``nvidia-smi`` exists only with it.
"""

from pathlib import Path

CLOCK = "etc/testbed/clock-offset"
GPUS = "etc/testbed/gpus"

DATE = """#!/bin/sh
# date, as a machine shows it whose clock is ahead by /etc/testbed/clock-offset seconds.
offset=0
{ read -r offset </etc/testbed/clock-offset; } 2>/dev/null
[ "${offset:-0}" != 0 ] || exec /usr/bin/date.real "$@"
for argument; do
    case $argument in -d* | --date* | -f* | --file* | -r* | --reference* | -s* | --set*) exec /usr/bin/date.real "$@" ;; esac
done
exec /usr/bin/date.real -d "@$(($(/usr/bin/date.real +%s) + offset))" "$@"
"""

SITECUSTOMIZE = '''"""Python's time.time, as a machine shows it whose clock is ahead by /etc/testbed/clock-offset seconds."""

import time as _time

_real = _time.time


def _shifted():
    try:
        with open("/etc/testbed/clock-offset") as stream:
            return _real() + float(stream.read() or 0)
    except (OSError, ValueError):
        return _real()


_time.time = _shifted
'''

NVIDIA_SMI = """#!/bin/sh
# The part of nvidia-smi that programs ask: -L, and --query-gpu=... --format=csv,noheader,nounits.
fields=
for argument; do
    case $argument in
    -L | --list-gpus)
        number=0
        while IFS=, read -r name use; do
            echo "GPU $number: $name (UUID: GPU-00000000-0000-0000-0000-00000000000$number)"
            number=$((number + 1))
        done </etc/testbed/gpus
        exit 0 ;;
    --query-gpu=*) fields=${argument#--query-gpu=} ;;
    esac
done
if [ -z "$fields" ]; then cat /etc/testbed/gpus; exit 0; fi
number=0
while IFS=, read -r name use; do
    line=
    for field in $(echo "$fields" | tr , ' '); do
        case $field in
        utilization.gpu) value=${use# } ;;
        name | gpu_name) value=$name ;;
        index) value=$number ;;
        *) value='[Not Supported]' ;;
        esac
        line="$line${line:+, }$value"
    done
    echo "$line"
    number=$((number + 1))
done </etc/testbed/gpus
"""

ASKED = "/run/nvidia-smi-asked"
NO_DRIVER = f"""#!/bin/sh
# nvidia-smi without a kernel module that serves the GPU; it notes that somebody has asked.
touch {ASKED}
echo "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver."
exit 9
"""

HALT = """#!/bin/sh
# A halted machine stays on (and is billed) for ever; a container would be gone.
[ "$1" != halt ] || while :; do sleep 3600; done
"""


def write(root: Path, name: str, text: str, mode: int = 0o644) -> None:
    """One file of a guest, with its folders."""
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    path.chmod(mode)


def install(root: Path) -> None:
    """Into the root file system that all guests share."""
    (root / "usr/bin/date").rename(root / "usr/bin/date.real")
    write(root, "usr/bin/date", DATE, 0o755)
    write(root, "usr/lib/testbed/nvidia-smi", NVIDIA_SMI, 0o755)
    write(root, "usr/lib/systemd/system-shutdown/testbed-halt", HALT, 0o755)
    write(root, CLOCK, "0\n")
    for folder in (root / "etc").glob("python3.*"):
        custom = folder / "sitecustomize.py"
        custom.write_text(SITECUSTOMIZE, encoding="utf-8")
