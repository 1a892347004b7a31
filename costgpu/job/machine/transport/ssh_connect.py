"""Opens one SSH connection that trusts one host key, and puts what can go wrong into our words.

Nothing of the user's own SSH set-up is read: no configuration, agent, keys or known hosts. Imports asyncssh, so it is
imported only where a machine is really reached.
"""

from __future__ import annotations

import asyncio

import asyncssh

from costgpu.errors import HostKeyMismatch, HostUnreachable, RunError
from costgpu.job.machine.host import Keys
from costgpu.models.instance import Endpoint

# A machine that no longer answers is noticed after 10 s x (2 + 1).
KEEPALIVE_SECONDS = 10
KEEPALIVE_COUNT = 2
# Every kind of host key may be shown, so that a mismatch can say which one was; only ours is believed.
_HOST_KEYS = [
    "ssh-ed25519",
    "ecdsa-sha2-nistp256",
    "ecdsa-sha2-nistp384",
    "ecdsa-sha2-nistp521",
    "rsa-sha2-512",
    "rsa-sha2-256",
]
# AES-GCM first: about twice as fast as asyncssh's own first choice on a CPU with AES instructions.
_CIPHERS = ["aes128-gcm@openssh.com", "aes256-gcm@openssh.com", "chacha20-poly1305@openssh.com", "aes256-ctr"]


class _Client(asyncssh.SSHClient):
    """Remembers the key that was shown and is not ours."""

    def __init__(self) -> None:
        self.seen = ""

    def validate_host_public_key(self, host: str, addr: str, port: int, key: asyncssh.SSHKey) -> bool:  # noqa: ARG002
        """Refuse the key: asyncssh asks only about keys that are not the expected one."""
        self.seen = f"{key.get_algorithm()} {key.get_fingerprint()}"
        return False


def address(endpoint: Endpoint) -> str:
    """``user@host:port`` for messages."""
    host = f"[{endpoint.host}]" if ":" in endpoint.host else endpoint.host
    return f"{endpoint.user}@{host}:{endpoint.port}"


async def dial(endpoint: Endpoint, keys: Keys, timeout_seconds: float) -> asyncssh.SSHClientConnection:
    """Connect and logs in.

    Raises:
        HostUnreachable: No answer, refused, reset, or not let in (yet).
        HostKeyMismatch: Another host key than the run's own was shown.
        RunError: The run's own keys cannot be used.
    """
    try:
        expected = asyncssh.import_public_key(keys.host_public)
        login = asyncssh.read_private_key(keys.user_private)
    except (OSError, asyncssh.KeyImportError) as exc:
        raise RunError(f"The keys of the run cannot be used: {exc}.") from exc
    client = _Client()
    try:
        async with asyncio.timeout(timeout_seconds):
            connection, _ = await asyncssh.create_connection(
                lambda: client,
                endpoint.host,
                endpoint.port,
                username=endpoint.user,
                client_keys=[login],
                known_hosts=([expected], [], []),
                server_host_key_algs=_HOST_KEYS,
                encryption_algs=_CIPHERS,
                compression_algs=None,
                preferred_auth="publickey",
                config=[],
                agent_path=None,
                x509_trusted_certs=None,
                gss_host=None,
                connect_timeout=timeout_seconds,
                login_timeout=timeout_seconds,
                keepalive_interval=KEEPALIVE_SECONDS,
                keepalive_count_max=KEEPALIVE_COUNT,
            )
            return connection
    except (asyncssh.Error, OSError) as exc:
        none_common = isinstance(exc, asyncssh.KeyExchangeFailed) and "host key" in str(exc).lower()
        if client.seen or isinstance(exc, asyncssh.HostKeyNotVerifiable) or none_common:
            raise HostKeyMismatch(
                f"The machine at {address(endpoint)} is not the one that was created: expected host key "
                f"{expected.get_algorithm()} {expected.get_fingerprint()}, "
                f"seen {client.seen or 'none of a kind that is known'}.",
                hint="Something else answers at this address. Nothing was sent to it.",
            ) from exc
        raise unreachable(endpoint, exc, timeout_seconds) from exc


def unreachable(endpoint: Endpoint, exc: BaseException | None, timeout_seconds: float | None = None) -> HostUnreachable:
    """Return the error for a connection that failed or was lost."""
    where = address(endpoint)
    is_timeout = isinstance(exc, asyncssh.ConnectionLost) and "timeout" in str(exc).lower()
    if isinstance(exc, asyncssh.PermissionDenied):
        why = f"{where} does not let the run's key in (yet)"
    elif isinstance(exc, TimeoutError) or is_timeout:
        limit = f" within {timeout_seconds:g} s" if timeout_seconds is not None else ""
        why = f"{where} does not answer{limit}"
    elif isinstance(exc, ConnectionRefusedError):
        why = f"{where} refuses the connection"
    else:
        text = str(exc).strip().rstrip(".") if exc is not None else ""
        why = f"The connection to {where} is lost" + (f": {text}" if text else "")
    return HostUnreachable(why + ".")
