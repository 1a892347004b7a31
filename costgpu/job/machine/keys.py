"""The keys of one run: one to log in with, one that the machine identifies itself with. Imports `errors` and `host`.

Both are made before the machine is, so that its identity is known from the first connection on.
"""

from __future__ import annotations

import stat
from pathlib import Path

from costgpu.errors import RunError
from costgpu.job.machine.host import Keys
from costgpu.portable.files import written_whole

USER_KEY = "user_ed25519"
HOST_KEY = "host_ed25519"


def make_keys(folder: Path) -> Keys:
    """Make the run's two ed25519 key pairs, or returns those that are already there.

    Safe against being killed half-way; whoever drives the run holds its lock.

    Args:
        folder: The run's private folder; made with mode 0700, its parents too.

    Raises:
        RunError: The folder cannot be written, or what is in it is not a key.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        folder.chmod(0o700)
        for name in (USER_KEY, HOST_KEY):
            if not (folder / name).exists():
                with written_whole(str(folder / name), 0o600) as file:
                    file.write(_new_private_key())
    except OSError as exc:
        raise RunError(
            f"The keys of the run cannot be written to {folder}: {exc.strerror or exc}.",
            hint="Set XDG_DATA_HOME to a folder that can be written.",
        ) from exc
    return load_keys(folder)


def load_keys(folder: Path) -> Keys:
    """Return the keys that `make_keys` has put into the run's private folder.

    Raises:
        RunError: They are not there, are open to other users, or are damaged.
    """
    user_public, _ = _read(folder / USER_KEY)
    host_public, host_private = _read(folder / HOST_KEY)
    return Keys(
        user_private=folder / USER_KEY, user_public=user_public, host_private=host_private, host_public=host_public
    )


def _new_private_key() -> bytes:
    from cryptography.hazmat.primitives import serialization  # noqa: PLC0415 - 50 ms that most commands do not need
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey  # noqa: PLC0415

    return Ed25519PrivateKey.generate().private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.OpenSSH, serialization.NoEncryption()
    )


def _read(path: Path) -> tuple[str, str]:
    """Public and private half as text."""
    from cryptography.exceptions import UnsupportedAlgorithm  # noqa: PLC0415
    from cryptography.hazmat.primitives import serialization  # noqa: PLC0415
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey  # noqa: PLC0415

    try:
        if stat.S_IMODE(path.stat().st_mode) & 0o077:
            path.chmod(0o600)
        content = path.read_bytes()
    except FileNotFoundError as exc:
        raise RunError(
            f"The key {path} is not there: this machine has not started the run, or its private folder was removed.",
            hint="Take the run over on the machine that started it, or end its instance with `costgpu cancel`.",
        ) from exc
    except OSError as exc:
        raise RunError(f"The key {path} cannot be read: {exc.strerror or exc}.") from exc
    try:
        key = serialization.load_ssh_private_key(content, password=None)
    except (ValueError, TypeError, UnsupportedAlgorithm) as exc:
        raise RunError(f"{path} is not a private key: the run's private folder is damaged.") from exc
    if not isinstance(key, Ed25519PrivateKey):
        raise RunError(f"{path} is not an ed25519 key: the run's private folder is damaged.")
    public = key.public_key().public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
    return public.decode("ascii"), content.decode("ascii")
