"""What never travels to a rented machine, whatever the ignore rules say: secrets, repositories, environments.

Imports nothing of ours. The job gets its secrets with ``-e`` and ``--env-file``, over SSH, in memory.
"""

from __future__ import annotations

import re
from fnmatch import fnmatchcase, translate

# Secrets by name, the first that matches counts. What is meant to be shared is spared: .env.example and the like.
_SHARED = {"example", "sample", "template", "dist", "defaults", "schema"}
_PATTERNS = """
    .env* *.env id_rsa* id_dsa* id_ecdsa* id_ed25519* *.pem *.key *.p12 *.pfx *.ppk *.jks *.keystore *.kdbx .netrc
    _netrc .pgpass .my.cnf .pypirc .npmrc .git-credentials .htpasswd .vault-token credentials credentials.json
    credentials.csv credentials.toml credentials.y*ml credentials.ini *_accesskeys.csv rootkey.csv
    client_secret*.json *service[-_]account*.json application_default_credentials.json kaggle.json secrets.toml
    secrets.json secrets.y*ml .boto .s3cfg *.tfstate
"""
_SECRET_NAMES = tuple(_PATTERNS.split())
_ANY_SECRET = re.compile("|".join(map(translate, _SECRET_NAMES)))
_SECRET_FOLDERS = {".aws", ".ssh", ".gnupg", ".kube", ".azure", ".gcloud", ".kaggle", ".huggingface", ".oci"}
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
    """Why an entry of this name stays here; None if its name is no reason."""
    if name == ".git" or is_folder:  # in a work tree and in a submodule .git is a file
        if name in _OTHER_FOLDERS:
            return _OTHER_FOLDERS[name]
        if name in _SECRET_FOLDERS:
            return f"secrets: {name}"
        return "secrets: .env*" if is_folder and name == ".env" else None
    lowered = name.lower()
    if _ANY_SECRET.fullmatch(lowered) is None or _is_shared(lowered):
        return None
    return next(f"secrets: {pattern}" for pattern in _SECRET_NAMES if fnmatchcase(lowered, pattern))


def by_content(head: bytes, size: int) -> str | None:
    """Why a file with this beginning stays here: it is small and is, or carries, a private key.

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


def _is_shared(name: str) -> bool:
    return "env" in (parts := name.split(".")) and not _SHARED.isdisjoint(parts)
