"""The root file system that every guest starts from: a small Debian, built once and kept in the user's cache.

    python -m tests.emulators.guests.rootfs   builds it, if it is not there yet, and prints its path

It comes from the package mirror that this machine's own apt uses. `TESTBED_CACHE` names another folder for it.
"""

import fcntl
import hashlib
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from tests.emulators.guests import shims

INCLUDE = (
    "systemd",
    "systemd-sysv",
    "openssh-server",
    "openssh-sftp-server",
    "python3",
    "python3-venv",
    "python3-pip",
    "iproute2",
    "procps",
    "ca-certificates",
    "curl",
    "sudo",
    "cloud-init",
)
UNWANTED_UNITS = (
    "console-getty.service",
    "getty.target",
    "getty-static.service",
    "apt-daily.timer",
    "apt-daily-upgrade.timer",
    "dpkg-db-backup.timer",
    "e2scrub_all.timer",
    "fstrim.timer",
    "systemd-tmpfiles-clean.timer",
    "dev-hugepages.mount",
    "sys-fs-fuse-connections.mount",
    "systemd-update-utmp.service",
    "systemd-update-utmp-runlevel.service",
    "systemd-firstboot.service",
    "ldconfig.service",
    "systemd-networkd-wait-online.service",
    "systemd-ask-password-console.path",
    "systemd-ask-password-wall.path",
)
KEEP = 3  # builds of older recipes


def _cache_folder() -> Path:
    if "TESTBED_CACHE" in os.environ:
        return Path(os.environ["TESTBED_CACHE"])
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "costgpu-testbed"


CACHE = _cache_folder()
"""Where builds are kept. Settled at import, before a test is given another home."""


def codename() -> str:
    """Of this machine's release: the guests get the same one, which its apt knows."""
    text = Path("/etc/os-release").read_text(encoding="utf-8")
    found = re.search(r"^VERSION_CODENAME=\"?([a-z]+)", text, re.MULTILINE)
    if found is None:
        raise RuntimeError("/etc/os-release names no VERSION_CODENAME: guests can be built on Debian and Ubuntu only")
    return found.group(1)


def recipe() -> str:
    """A hash of everything that decides what is built."""
    sources = [Path(__file__), Path(shims.__file__)]
    digest = hashlib.sha256(f"{codename()} {platform.machine()}".encode())
    for source in sources:
        digest.update(source.read_bytes())
    return digest.hexdigest()[:16]


def _stanzas(folder: Path, release: str) -> Iterator[tuple[str, str]]:
    """The parts of apt's configuration that name this release's main component, as (file suffix, text)."""
    suite = rf"{release}(?:-[a-z]+)*"
    for path in [folder / "sources.list", *sorted((folder / "sources.list.d").glob("*"))]:
        if not path.is_file() or path.suffix not in {".list", ".sources"}:
            continue
        text = path.read_text(encoding="utf-8")
        if path.suffix == ".list":
            lines = re.findall(rf"^deb\s+(?:\[[^\]]*\]\s+)?\S+\s+{suite}/?\s+(?:\S+\s+)*?main\b.*$", text, re.MULTILINE)
            if lines:
                yield ".list", "\n".join(lines) + "\n"
            continue
        for stanza in re.split(r"\n\s*\n", text):
            fields = dict(re.findall(r"^([A-Za-z-]+):[ \t]*(.*(?:\n[ \t]+\S.*)*)", stanza, re.MULTILINE))
            suites = [each for each in fields.get("Suites", "").split() if re.fullmatch(suite, each)]
            if suites and "main" in fields.get("Components", "").split() and fields.get("Enabled", "yes") != "no":
                body = re.sub(r"^#.*\n?", "", stanza, flags=re.MULTILINE).strip()
                yield (
                    ".sources",
                    re.sub(r"^Suites:.*$", f"Suites: {' '.join(suites)}", body, flags=re.MULTILINE) + "\n\n",
                )


def _mirror_files(folder: Path) -> list[str]:
    """This machine's package sources, written where mmdebstrap can read them."""
    written: dict[str, Path] = {}
    for suffix, text in _stanzas(Path("/etc/apt"), codename()):
        path = written.setdefault(suffix, folder / f"mirror{suffix}")
        with path.open("a", encoding="utf-8") as stream:
            stream.write(text)
    return [str(path) for path in written.values()]


def _apt_options(folder: Path) -> str:
    """How this machine's apt reaches its mirror (proxies, certificates, validity)."""
    dump = subprocess.run(["apt-config", "dump"], check=True, capture_output=True, text=True).stdout
    keep = [line for line in dump.splitlines() if re.match(r"Acquire::(https?::|Check-|Retries|Max-)", line)]
    path = folder / "apt.conf"
    path.write_text("\n".join([*keep, 'APT::Install-Recommends "false";', 'Acquire::Languages "none";', ""]))
    return str(path)


def _bootstrap(target: Path, scratch: Path) -> None:
    command = [
        "mmdebstrap",
        "--quiet",
        "--mode=root",
        "--variant=apt",
        f"--include={','.join(INCLUDE)}",
        f"--aptopt={_apt_options(scratch)}",
        "--dpkgopt=force-unsafe-io",
        *(f"--dpkgopt=path-exclude=/usr/share/{each}/*" for each in ("doc", "man", "info", "locale")),
        codename(),
        str(target),
        *_mirror_files(scratch),
    ]
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive", "TMPDIR": str(scratch)}
    done = subprocess.run(
        command, env=environment, check=False, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    if done.returncode != 0:
        raise RuntimeError(f"mmdebstrap failed with {done.returncode}:\n{done.stdout[-3000:]}")


def _customise(root: Path) -> None:
    for name in ("etc/apt/apt.conf.d/99mmdebstrap", "etc/hostname", "etc/resolv.conf"):
        (root / name).unlink(missing_ok=True)
    for key in (root / "etc/ssh").glob("ssh_host_*"):
        key.unlink()
    shutil.rmtree(root / "var/lib/apt/lists", ignore_errors=True)
    (root / "etc/machine-id").write_text("")
    units = root / "etc/systemd/system"
    for unit in UNWANTED_UNITS:
        (units / unit).unlink(missing_ok=True)
        (units / unit).symlink_to("/dev/null")
    (root / "etc/cloud/cloud-init.disabled").touch()
    subprocess.run(["chroot", str(root), "useradd", "--create-home", "--shell", "/bin/bash", "ubuntu"], check=True)
    (root / "etc/sudoers.d/90-cloud-init-users").write_text("ubuntu ALL=(ALL) NOPASSWD:ALL\n")
    shims.install(root)


def ensure() -> Path:
    """The folder of the root file system; builds it first if there is none for this recipe. Never write into it."""
    cache = CACHE
    root = cache / recipe()
    if root.is_dir():
        return root
    cache.mkdir(parents=True, exist_ok=True)
    with (cache / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # another builder may have been at it
        if root.is_dir():
            return root
        started = time.monotonic()
        print(f"Building the guests' root file system in {cache} (once, about a minute)", file=sys.stderr, flush=True)
        for leftover in cache.glob("building-*"):
            shutil.rmtree(leftover, ignore_errors=True)
        with tempfile.TemporaryDirectory(prefix="building-", dir=cache) as scratch:
            building = Path(scratch) / "root"
            _bootstrap(building, Path(scratch))
            _customise(building)
            building.rename(root)
        print(f"Built in {time.monotonic() - started:.0f} s", file=sys.stderr, flush=True)
        older = sorted(
            (each for each in cache.iterdir() if each.is_dir() and each != root), key=lambda p: p.stat().st_ctime
        )
        for each in older[: -KEEP + 1]:
            shutil.rmtree(each, ignore_errors=True)
    return root


if __name__ == "__main__":
    print(ensure())
