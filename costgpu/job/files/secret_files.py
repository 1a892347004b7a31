"""What never travels to a rented machine, whatever the ignore rules say: secrets, repositories, environments.

Imports names only. The job gets its secrets with ``-e`` and ``--env-file``, over SSH, in memory.
"""

from __future__ import annotations

import re

from costgpu.job.agent.outputs.secret_names import is_secret

_OTHER_FOLDERS = {
    ".git": "repositories",
    ".hg": "repositories",
    ".svn": "repositories",
    ".bzr": "repositories",
    ".costgpu": "costgpu's own files",
    "costgpu-runs": "costgpu's own files",
}
ENVIRONMENT = "virtual environments"
ENVIRONMENT_PARTS = {"pyvenv.cfg", "bin", "include", "lib", "lib64", "Scripts", "Lib", "Include"}
PRIVATE_KEY = "secrets: a private key inside"

# Recreated at will, or a tool's own record: left behind unless a ! rule asks for them.
_CACHES = """
    __pycache__/ *.py[co] .ipynb_checkpoints/ .mypy_cache/ .pytest_cache/ .ruff_cache/ .hypothesis/ .tox/ .nox/
    .eggs/ *.egg-info/ .DS_Store wandb/run-*/ wandb/offline-run-*/ wandb/latest-run wandb/debug*.log
"""
DISPENSABLE = tuple(_CACHES.split())

_KEY_BLOCK = re.compile(rb"^[ \t]*-----BEGIN (?:[A-Z0-9]+ )*PRIVATE KEY(?: BLOCK)?-----[ \t]*\r?$", re.MULTILINE)
_SERVICE_ACCOUNT = re.compile(rb'"private_key"\s*:\s*"-----BEGIN (?:[A-Z0-9]+ )*PRIVATE KEY-----')
_PUTTY = b"PuTTY-User-Key-File-"
HEAD_BYTES = 16 * 1024
KEY_FILE_BYTES = 64 * 1024


def by_name(name: str, *, is_folder: bool) -> str | None:
    """Return why an entry of this name stays here; None if its name is no reason."""
    if name == ".git" or is_folder:  # in a work tree and in a submodule .git is a file
        if name in _OTHER_FOLDERS:
            return _OTHER_FOLDERS[name]
        if not is_folder:
            return None
    pattern = is_secret(name, is_folder=is_folder)
    return f"secrets: {pattern}" if pattern else None


def by_content(head: bytes, size: int) -> str | None:
    """Return why a file with this beginning stays here: it is small and is, or carries, a private key.

    Args:
        head: Its first `HEAD_BYTES` bytes.
        size: Bytes of the whole file.
    """
    if size > KEY_FILE_BYTES:
        return None
    if head.startswith(_PUTTY):
        return PRIVATE_KEY
    if b"PRIVATE KEY" in head and (_KEY_BLOCK.search(head) or _SERVICE_ACCOUNT.search(head)):
        return PRIVATE_KEY
    return None
