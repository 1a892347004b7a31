"""The keys of a run: real, private, made once."""

import stat
import subprocess
from pathlib import Path

import pytest

from costgpu.errors import RunError
from costgpu.job.machine.keys import HOST_KEY, USER_KEY, load_keys, make_keys


def test_keys_are_ed25519_pairs_in_openssh_format(tmp_path: Path) -> None:
    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_ssh_private_key

    keys = make_keys(tmp_path / "run" / "keys")
    assert keys.user_public != keys.host_public
    for public, private in ((keys.user_public, keys.user_private.read_text()), (keys.host_public, keys.host_private)):
        assert private.startswith("-----BEGIN OPENSSH PRIVATE KEY-----\n")
        assert private.endswith("-----END OPENSSH PRIVATE KEY-----\n")
        kind, _ = public.split(" ")
        assert kind == "ssh-ed25519"
        derived = load_ssh_private_key(private.encode(), None).public_key()
        assert derived.public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH).decode() == public


def test_nobody_else_can_read_them(tmp_path: Path) -> None:
    folder = tmp_path / "keys"
    folder.mkdir(mode=0o755)
    keys = make_keys(folder)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert stat.S_IMODE(keys.user_private.stat().st_mode) == 0o600
    assert stat.S_IMODE((folder / HOST_KEY).stat().st_mode) == 0o600
    keys.user_private.chmod(0o644)
    load_keys(folder)
    assert stat.S_IMODE(keys.user_private.stat().st_mode) == 0o600


def test_they_are_made_once(tmp_path: Path) -> None:
    first = make_keys(tmp_path)
    assert make_keys(tmp_path) == first == load_keys(tmp_path)
    assert make_keys(tmp_path / "other") != first
    assert sorted(path.name for path in tmp_path.iterdir()) == [HOST_KEY, "other", USER_KEY]
    (tmp_path / HOST_KEY).unlink()
    second = make_keys(tmp_path)  # a set that was made by half is completed
    assert second.user_public == first.user_public
    assert second.host_public != first.host_public


def test_the_private_half_is_in_no_repr(tmp_path: Path) -> None:
    keys = make_keys(tmp_path)
    body = keys.host_private.splitlines()[1]
    assert body not in repr(keys)
    assert "BEGIN" not in repr(keys)
    assert body not in str(keys)


@pytest.mark.parametrize("name", [USER_KEY, HOST_KEY])
def test_keys_that_are_not_there(tmp_path: Path, name: str) -> None:
    make_keys(tmp_path)
    (tmp_path / name).unlink()
    with pytest.raises(RunError, match=name) as caught:
        load_keys(tmp_path)
    assert "costgpu cancel" in caught.value.hint


@pytest.mark.parametrize(
    "content", [b"", b"rubbish", b"-----BEGIN OPENSSH PRIVATE KEY-----\nAAAA\n-----END OPENSSH PRIVATE KEY-----\n"]
)
def test_damaged_keys(tmp_path: Path, content: bytes) -> None:
    make_keys(tmp_path)
    (tmp_path / HOST_KEY).write_bytes(content)
    with pytest.raises(RunError, match="damaged"):
        make_keys(tmp_path)


def test_another_kind_of_key(tmp_path: Path) -> None:
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    make_keys(tmp_path)
    other = ec.generate_private_key(ec.SECP256R1())
    (tmp_path / USER_KEY).write_bytes(other.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption()))
    with pytest.raises(RunError, match="not an ed25519 key"):
        load_keys(tmp_path)


def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(RunError, match="cannot be written") as caught:
        make_keys(tmp_path / "file" / "keys")
    assert "XDG_DATA_HOME" in caught.value.hint


def test_ssh_keygen_agrees(tmp_path: Path) -> None:
    import shutil

    if shutil.which("ssh-keygen") is None:
        pytest.skip("ssh-keygen is not installed (Debian: apt-get install openssh-client)")
    keys = make_keys(tmp_path)
    printed = subprocess.run(["ssh-keygen", "-y", "-f", keys.user_private], capture_output=True, text=True, check=True)
    assert printed.stdout.split()[:2] == keys.user_public.split()
