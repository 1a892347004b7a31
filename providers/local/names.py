"""What a local machine is called, and how two requests for one are told apart. Pure."""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import asdict

from costgpu.models.instance import CreateRequest

PREFIX = "local-"
INSTANCE_ID = re.compile(r"local-[a-z0-9-]{1,80}")


def id_of(token: str) -> str:
    """Return the same for the same token, in every process."""
    plain = f"{PREFIX}{token}"
    return plain if INSTANCE_ID.fullmatch(plain) else PREFIX + hashlib.sha256(token.encode()).hexdigest()[:32]


def fingerprint(request: CreateRequest) -> str:
    """Differs where anything of the requests does."""
    return hashlib.sha256(json.dumps(asdict(request), sort_keys=True, default=str).encode()).hexdigest()
