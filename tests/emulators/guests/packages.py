"""What the guests of the emulated cloud need of this machine, and whether they can run here.

python -m tests.emulators.guests.packages   installs what is missing (as root, on Debian and its relatives)
"""

import os
import shutil
import subprocess
import sys

PACKAGES = {
    "systemd-nspawn": "systemd-container",
    "mmdebstrap": "mmdebstrap",
    "ip": "iproute2",
    "nft": "nftables",
    "unshare": "util-linux",
    "setpriv": "util-linux",
    "ssh-keygen": "openssh-client",
    "sshd": "openssh-server",  # for the tests of the transport, which need no guests
    "cron": "cron",  # for the tests of the crontab line, which need none either
}
"""Command -> Debian package that has it."""

BROWSER = {"chromium": "chromium"}
"""For the tests that look at pages (110 MB to fetch); without it only those are skipped."""

UNSHARE = ("unshare", "--net", "--mount", "--pid", "--fork", "--mount-proc", "--kill-child")
"""Own network, mounts and processes, which all end with this one."""


REQUIRED = "TESTBED_REQUIRED"  # set where a skipped test would be a hole: there, an obstacle is a failure


def missing() -> dict[str, str]:
    path = os.environ.get("PATH", os.defpath) + ":/usr/sbin:/sbin"
    return {command: package for command, package in PACKAGES.items() if shutil.which(command, path=path) is None}


def obstacle() -> str:
    """Why no guest can run here; empty if nothing is in the way."""
    if os.environ.get("TESTBED") == "no":
        return "TESTBED=no"
    if sys.platform != "linux":
        return "guests need Linux"
    if os.geteuid() != 0:
        return "guests need root (own network and mount namespaces); run the tests as root to include them"
    absent = missing()
    if absent:
        return f"missing: {', '.join(absent)}; apt-get install {' '.join(sorted(set(absent.values())))}"
    probe = subprocess.run(
        [*UNSHARE, "mount", "-t", "tmpfs", "probe", "/mnt"], capture_output=True, text=True, check=False
    )
    if probe.returncode != 0:
        return f"this machine does not let root make namespaces: {probe.stderr.strip()}"
    return ""


def install() -> None:
    """Installs what is missing.

    Raises:
        RuntimeError: There is no apt-get, or it failed; with the end of its output.
    """
    apt_install(sorted(set(missing().values())))


def install_browser() -> None:
    """Installs one if there is none; a line on stderr says why if that fails."""
    try:
        apt_install([package for command, package in BROWSER.items() if shutil.which(command) is None])
    except RuntimeError as error:
        print(f"testbed: no browser, so that no page is looked at: {error}", file=sys.stderr)


def apt_install(wanted: list[str]) -> None:
    """Installs packages, if any are wanted.

    Raises:
        RuntimeError: There is no apt-get, or it failed; with the end of its output.
    """
    if not wanted:
        return
    if shutil.which("apt-get") is None:
        raise RuntimeError(f"this machine has no apt-get to install: {' '.join(wanted)}")
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    for command in (["update"], ["install", "--yes", "--no-install-recommends", *wanted]):
        done = subprocess.run(
            ["apt-get", "--quiet", *command],
            env=environment,
            check=False,
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        if done.returncode != 0 and command[0] == "install":
            raise RuntimeError(f"apt-get {' '.join(command)} failed:\n{done.stdout[-2000:]}")


def prepare() -> int:
    """Makes this machine ready for the tests with guests, or says why they will be skipped."""
    try:
        if os.environ.get("TESTBED") != "no" and sys.platform == "linux" and os.geteuid() == 0:
            install()
            install_browser()
        reason = obstacle()
        if not reason:
            from tests.emulators.guests import rootfs

            rootfs.ensure()
            return 0
    except RuntimeError as error:
        print(f"testbed: {error}\nhint: TESTBED=no leaves out the tests that boot hosts", file=sys.stderr)
        return 1
    print(f"testbed: tests marked `emulator` will be skipped: {reason}", file=sys.stderr)
    return 1 if os.environ.get(REQUIRED) else 0


if __name__ == "__main__":
    sys.exit(prepare())
