"""Names of files and folders that hold secrets: they neither travel to a machine nor come home from outside its job."""

from __future__ import annotations

import re
from fnmatch import fnmatchcase, translate

# The first that matches counts. What is meant to be shared is spared: .env.example and the like.
_SHARED = {"example", "sample", "template", "dist", "defaults", "schema"}
_PATTERNS = """
    .env* *.env id_rsa* id_dsa* id_ecdsa* id_ed25519* *.pem *.key *.p12 *.pfx *.ppk *.jks *.keystore *.kdbx .netrc
    _netrc .pgpass .my.cnf .pypirc .npmrc .git-credentials .htpasswd .vault-token credentials credentials.json
    credentials.csv credentials.toml credentials.y*ml credentials.ini *_accesskeys.csv rootkey.csv
    client_secret*.json *service[-_]account*.json application_default_credentials.json kaggle.json secrets.toml
    secrets.json secrets.y*ml .boto .s3cfg *.tfstate
"""
_NAMES = tuple(_PATTERNS.split())
_ANY = re.compile("|".join(map(translate, _NAMES)))
_FOLDERS = {".aws", ".ssh", ".gnupg", ".kube", ".azure", ".gcloud", ".kaggle", ".huggingface", ".oci"}


def is_secret(name: str, is_folder: bool) -> str | None:
    """Return the pattern that says so; None if the name is that of no secret."""
    if is_folder:
        return ".env*" if name == ".env" else name if name in _FOLDERS else None
    lowered = name.lower()
    parts = lowered.split(".")
    is_shared = "env" in parts and not _SHARED.isdisjoint(parts)
    if _ANY.fullmatch(lowered) is None or is_shared:
        return None
    return next(pattern for pattern in _NAMES if fnmatchcase(lowered, pattern))
