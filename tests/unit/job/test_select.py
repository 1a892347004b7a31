"""What of a working folder travels, and what never does.

One file of more than 400 lines: each rule of what travels and what stays is held against the same small folder.
"""

import hashlib
import os
import socket
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from costgpu.errors import SyncRefused
from costgpu.job.files import checksums, secret_files
from costgpu.job.files import select as select_module
from costgpu.job.files.paths import printable_path
from costgpu.job.files.select import select
from costgpu.job.files.selection import FileSelection
from tests.unit.job.test_place_outputs import in_child

GIB = 1 << 30


def chosen(folder: Path, *extra: str) -> FileSelection:
    include = [pattern[1:] for pattern in extra if pattern.startswith("!")]
    return select(folder, limit_bytes=GIB, include=include, exclude=[one for one in extra if not one.startswith("!")])


def paths(folder: Path, *extra: str) -> set[str]:
    return {entry.path for entry in chosen(folder, *extra).files}


def write(folder: Path, *names: str, text: str = "x") -> None:
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "work").mkdir()
    return tmp_path / "work"


@pytest.fixture
def anybody() -> Iterator[Path]:
    """A folder that a user without rights can reach."""
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o777)
        yield Path(name)


def test_everything_travels_with_size_mode_and_checksum(folder: Path) -> None:
    write(folder, "train.py", "src/model/net.py", text="print()")
    write(folder, "empty", text="")
    (folder / "run.sh").write_bytes(b"\x00" * 3_000_000)
    (folder / "run.sh").chmod(0o4755)
    selection = chosen(folder)
    assert [entry.path for entry in selection.files] == ["empty", "run.sh", "src/model/net.py", "train.py"]
    by_path = {entry.path: entry for entry in selection.files}
    assert by_path["run.sh"].mode == 0o755, "no setuid"
    assert by_path["run.sh"].size == 3_000_000
    for path, entry in by_path.items():
        assert entry.sha256 == hashlib.sha256((folder / path).read_bytes()).hexdigest()
    assert selection.total_bytes == 3_000_014
    assert select(folder, limit_bytes=3_000_014) == selection, "exactly the limit is allowed"
    with pytest.raises(SyncRefused):
        select(folder, limit_bytes=3_000_013)
    assert selection.root == folder
    assert selection.left_out == {}


def test_a_work_tree_shares_the_rules_of_its_repository(folder: Path, tmp_path: Path) -> None:
    main = tmp_path / "main"
    main.mkdir()
    git(main, "init", "-q")
    git(main, "commit", "-q", "--allow-empty", "-m", "first")
    (main / ".git/info/exclude").write_text("*.tmp\n")
    git(main, "worktree", "add", "-q", str(folder))
    write(folder, "a.tmp", "b")
    assert paths(folder) == {"b"}


def test_the_users_own_git_rules(folder: Path) -> None:
    write(Path(os.environ["XDG_CONFIG_HOME"]), "git/ignore", text="*.swp\n")
    write(folder, "a.swp", "b")
    assert paths(folder) == {"a.swp", "b"}, "only in a repository"
    (folder / ".git").mkdir()
    assert paths(folder) == {"b"}


def test_own_rules_win(folder: Path) -> None:
    write(
        folder, "data/big.csv", "data/small.csv", "data/deep/small.csv", "out/x", "notes.md", "sub/notes.md", "sub/z.md"
    )
    (folder / ".gitignore").write_text("data/\nout\n")
    (folder / ".costgpuignore").write_text("*.md\n!data/small.csv\n!/out/\n")
    (folder / "sub/.costgpuignore").write_text("!notes.md\n")
    assert paths(folder) == {
        ".costgpuignore",
        ".gitignore",
        "data/small.csv",
        "out/x",
        "sub/.costgpuignore",
        "sub/notes.md",
    }


def test_own_rules_bring_back_a_whole_ignored_folder(folder: Path) -> None:
    write(folder, "data/a", "data/deep/b", "data/c.tmp", "other/d")
    (folder / ".gitignore").write_text("data\nother\n*.tmp\n")
    (folder / ".costgpuignore").write_text("!data/\n")
    assert paths(folder) == {".costgpuignore", ".gitignore", "data/a", "data/deep/b"}


def test_a_folder_of_caches_can_be_asked_for(folder: Path) -> None:
    write(
        folder, "__pycache__/a.pyc", ".pytest_cache/x", "wandb/run-1/log", "wandb/settings", "pkg.egg-info/PKG", "a.py"
    )
    assert paths(folder) == {"a.py", "wandb/settings"}
    assert chosen(folder).left_out == {"caches": 4}
    (folder / ".costgpuignore").write_text("!wandb/run-1/\n")
    assert "wandb/run-1/log" in paths(folder)


SECRETS = """
    .env .env.local .env.production .envrc prod.env id_rsa id_ed25519 server.pem tls.key a.p12 .netrc .pgpass
    .pypirc credentials credentials.json x_accessKeys.csv kaggle.json Server.PEM client_secret_12.json
    my-service-account.json secrets.yaml .git-credentials terraform.tfstate
"""


@pytest.mark.parametrize("name", SECRETS.split())
def test_secrets_stay_whatever_the_rules_say(folder: Path, name: str) -> None:
    write(folder, name, f"deep/{name}", "train.py")
    (folder / ".costgpuignore").write_text(f"!{name}\n!*\n!**/{name}\n")
    expected = {".costgpuignore", "train.py"}
    assert paths(folder, f"!{name}") == expected
    ((reason, count),) = chosen(folder).left_out.items()
    assert reason.startswith("secrets: ")
    assert count == 2


SHARED = """
    .env.example .env.sample env.template .env.local.dist example.env env.py credentials.py keys.py monkey
    environment.yml id.txt
"""


@pytest.mark.parametrize("name", SHARED.split())
def test_what_only_looks_like_a_secret_travels(folder: Path, name: str) -> None:
    write(folder, name)
    assert paths(folder) == {name}


@pytest.mark.parametrize("name", [".aws", ".ssh", ".gnupg", ".kube", ".git", ".hg", ".costgpu", "costgpu-runs", ".env"])
def test_folders_that_stay(folder: Path, name: str) -> None:
    write(folder, f"{name}/config", f"deep/{name}/config", "a")
    (folder / ".costgpuignore").write_text(f"!{name}/\n!config\n")
    assert paths(folder) == {".costgpuignore", "a"}
    assert sum(chosen(folder).left_out.values()) == 2


BEGIN = "-----BEGIN {}PRIVATE KEY-----\n"


@pytest.mark.parametrize(
    "text",
    [
        BEGIN.format("RSA ") + "MII",
        BEGIN.format("OPENSSH "),
        BEGIN.format(""),
        "\n  " + BEGIN.format("EC "),
        "Bag Attributes\n    localKeyID: 01\n" + BEGIN.format("ENCRYPTED ") + "MII",
        "PuTTY-User-Key-File-3: ssh-ed25519\n",
        "-----BEGIN PGP PRIVATE KEY BLOCK-----\n\nlQ",
        BEGIN.format("RSA ").replace("\n", "\r\n") + "MII",
        '{"type": "service_account", "private_key": "-----BEGIN PRIVATE KEY-----\\nMII"}',
    ],
)
def test_private_keys_are_known_by_their_content(folder: Path, text: str) -> None:
    write(folder, "innocent.txt", text=text)
    (folder / ".costgpuignore").write_text("!innocent.txt\n")
    assert paths(folder) == {".costgpuignore"}
    assert chosen(folder).left_out == {secret_files.PRIVATE_KEY: 1}


def test_code_that_speaks_of_keys_travels(folder: Path) -> None:
    write(
        folder,
        "scan.py",
        text="MARK = '-----BEGIN RSA PRIVATE KEY-----'\nRE = re.compile('-----BEGIN PRIVATE KEY-----')\n",
    )
    write(folder, "cert.txt", text="-----BEGIN CERTIFICATE-----\nMII\n")
    write(folder, "id.pub", text="-----BEGIN PUBLIC KEY-----\nMII\n")
    assert paths(folder) == {"scan.py", "cert.txt", "id.pub"}


def test_the_products_own_source_travels(root: Path) -> None:
    found = paths(root / "costgpu" / "job")
    assert {"files/select.py", "files/secret_files.py", "machine/keys.py"} <= found


def test_environments_stay(folder: Path) -> None:
    write(folder, "venv/pyvenv.cfg", "venv/lib/x.py", "e/conda-meta/history", "e/lib/y", "src/pyvenv.py", "a")
    assert paths(folder) == {"a", "src/pyvenv.py"}
    assert chosen(folder).left_out == {secret_files.ENVIRONMENT: 2}


def test_a_folder_that_is_an_environment_itself(folder: Path) -> None:
    write(folder, "pyvenv.cfg", "lib/python3.11/site-packages/x.py", "train.py", "src/lib/y.py")
    (folder / "bin").mkdir()
    (folder / "bin/python").symlink_to(sys.executable)
    (folder / "lib64").symlink_to("lib")
    assert paths(folder) == {"train.py", "src/lib/y.py"}


def test_links_inside_stay_links(folder: Path) -> None:
    write(folder, "data/one", "runs/5/x")
    (folder / "latest").symlink_to("runs/5")
    (folder / "runs/up").symlink_to("../data/one")
    (folder / "absolute").symlink_to(folder / "data")
    (folder / "runs/absolute").symlink_to(folder / "data" / "one")
    (folder / "roundabout").symlink_to(f"../{folder.name}/data/one")
    (folder / "nowhere").symlink_to("not/there")
    (folder / "itself").symlink_to("itself")
    (folder / "here").symlink_to(".")
    selection = chosen(folder)
    assert selection.links == {
        "latest": "runs/5",
        "runs/up": "../data/one",
        "absolute": "data",
        "runs/absolute": "../data/one",
        "roundabout": "data/one",
        "nowhere": "not/there",
        "itself": "itself",
        "here": ".",
    }
    assert {entry.path for entry in selection.files} == {"data/one", "runs/5/x"}, "links are not followed"


def test_links_out_of_the_folder_are_refused(folder: Path, tmp_path: Path) -> None:
    write(tmp_path, "dataset/a", "file")
    (folder / "data").symlink_to(tmp_path / "dataset")
    with pytest.raises(SyncRefused, match=r"A link leads out .* data -> ") as caught:
        chosen(folder)
    assert str(tmp_path / "dataset") in caught.value.message
    assert ".costgpuignore" in caught.value.hint
    (folder / "b").symlink_to("../file")
    (folder / "chain").symlink_to("b")
    with pytest.raises(SyncRefused, match="3 links lead out"):
        chosen(folder)


@pytest.mark.parametrize("rule", ["data", "data/", "/data/", "d*"])
@pytest.mark.parametrize("file", [".gitignore", ".costgpuignore"])
def test_ignored_links_out_are_no_matter(folder: Path, tmp_path: Path, rule: str, file: str) -> None:
    write(tmp_path, "dataset/a")
    (folder / "data").symlink_to(tmp_path / "dataset")
    (folder / file).write_text(rule + "\n")
    assert paths(folder) == {file}
    assert chosen(folder).left_out == {file: 1}


def test_links_out_to_nothing_are_left_out(folder: Path) -> None:
    (folder / "gone").symlink_to("/no/such/place")
    (folder / "up").symlink_to("../no-such-file")
    assert chosen(folder).left_out == {"links to nothing": 2}


def test_empty_folders_are_told(folder: Path) -> None:
    write(folder, "src/a", "logs/x.log", "data/deep/y.log")
    (folder / "out/checkpoints").mkdir(parents=True)
    (folder / "ignored").mkdir()
    (folder / ".gitignore").write_text("*.log\nignored/\n")
    assert chosen(folder).folders == ("data/deep", "logs", "out/checkpoints")


def test_what_is_no_file_is_left_out(folder: Path) -> None:
    os.mkfifo(folder / "pipe")
    here = Path.cwd()
    os.chdir(folder)
    try:
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind("socket")
            assert chosen(folder).left_out == {"sockets, pipes and devices": 2}
    finally:
        os.chdir(here)


@pytest.mark.parametrize("what", ["fifo", "folder", "loop", "link", "device", "nul"])
def test_an_ignore_file_that_is_none(folder: Path, what: str) -> None:
    path = folder / ".gitignore"
    write(folder, "kept", text="kept\n")
    if what == "fifo":
        os.mkfifo(path)
    elif what == "folder":
        path.mkdir()
    elif what == "nul":
        path.write_bytes(b"a\0b\n\0\nkept\0\n")
    else:
        path.symlink_to({"loop": ".gitignore", "link": "kept", "device": "/dev/zero"}[what])
    (folder / ".costgpuignore").mkdir()
    if what == "device":
        with pytest.raises(SyncRefused, match="A link leads out"):
            chosen(folder)
    else:
        assert paths(folder) - {".gitignore"} == {"kept"}


def test_more_files_than_can_be_sent(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(select_module, "MAX_SENT", 10)
    write(folder, *map(str, range(12)))
    with pytest.raises(SyncRefused, match="more than 10 files"):
        chosen(folder)


def test_odd_names(folder: Path) -> None:
    write(folder, "new\nline", "  spaces  ", "-n", "漢字", "#hash", "!bang", "back\\slash", "[a]")
    raw = os.fsencode(folder) + b"/latin-\xe9"
    Path(os.fsdecode(raw)).write_text("x")
    names = [path.name for path in folder.iterdir()]
    found = paths(folder)
    assert len(found) == 9
    assert {os.fsencode(path) for path in found} == {os.fsencode(one) for one in names}
    (folder / ".gitignore").write_bytes(b"latin-\xe9\n")
    assert len(paths(folder)) == 9, "the ignore file came, the other went"


def test_what_cannot_be_read_is_left_out(anybody: Path) -> None:
    write(anybody, "open", "closed", "shut/x")
    (anybody / "open").chmod(0o644)
    (anybody / "closed").chmod(0)
    (anybody / "shut").chmod(0)

    def look() -> None:
        selection = chosen(anybody)
        assert [entry.path for entry in selection.files] == ["open"]
        assert selection.left_out == {"files that cannot be read": 1, "folders that cannot be read": 1}

    in_child(look, without_rights=True)
    (anybody / "shut").chmod(0o700)


def test_a_file_that_changes_while_it_is_read(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(folder, "log", text="one")
    calls = 0
    real = os.read

    def read(descriptor: int, size: int) -> bytes:
        nonlocal calls
        data = real(descriptor, size)
        if stat.S_ISREG(os.fstat(descriptor).st_mode) and data:
            calls += 1
            if calls <= limit:
                with (folder / "log").open("a") as file:
                    file.write("+")
        return data

    monkeypatch.setattr(os, "read", read)
    limit = 1
    (entry,) = chosen(folder).files
    assert entry.sha256 == hashlib.sha256((folder / "log").read_bytes()).hexdigest()
    assert entry.size == (folder / "log").stat().st_size == 4
    limit = 10**9
    with pytest.raises(SyncRefused, match="log keeps changing") as caught:
        chosen(folder)
    assert "--exclude log" in caught.value.hint


def test_a_file_that_vanishes(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(folder, "a", "b")
    real = os.open

    def opening(path: str, *more: int) -> int:
        if str(path).endswith("/a"):
            (folder / "a").unlink(missing_ok=True)
        return real(path, *more)

    monkeypatch.setattr(os, "open", opening)
    assert paths(folder) == {"b"}


def test_a_folder_above_the_limit_is_refused_before_it_is_read(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checksums, "_read", lambda *_: pytest.fail("it was read"))
    for name, size in {
        "data/raw/a": 9 << 20,
        "data/raw/b/c": 3 << 20,
        "data/small": 1 << 20,
        "top.bin": 2 << 20,
    }.items():
        write(folder, name, text="")
        os.truncate(folder / name, size)
    with pytest.raises(SyncRefused) as caught:
        select(folder, limit_bytes=10 << 20)
    message = caught.value.message
    assert "15.0 MiB in 4 files" in message
    assert "10.0 MiB may be sent" in message
    assert message.index("data/raw/ 12.0 MiB") < message.index("top.bin 2.0 MiB") < message.index("data/ 1.0 MiB")
    assert ".costgpuignore" in caught.value.hint
    assert "--sync-limit" in caught.value.hint


def test_folders_that_cannot_be_sent(folder: Path) -> None:
    write(folder, "file")
    for wrong, says in (
        (folder / "none", "not there"),
        (folder / "file", "not there"),
        (Path.home(), "your home folder"),
        (Path("/"), "the whole disk"),
    ):
        with pytest.raises(SyncRefused, match=says):
            chosen(wrong)


def test_a_folder_reached_by_a_link(folder: Path, tmp_path: Path) -> None:
    assert chosen(folder).files == ()
    write(folder, "a")
    (folder / "l").symlink_to(folder / "a")
    (tmp_path / "link").symlink_to(folder)
    selection = chosen(tmp_path / "link")
    assert [entry.path for entry in selection.files] == ["a"]
    assert selection.links == {"l": "a"}


@given(st.text())
def test_a_path_in_a_message_is_one_line(path: str) -> None:
    assert printable_path(path).isprintable()


def git(folder: Path, *words: str) -> None:
    identity = ("-c", "user.name=Ada", "-c", "user.email=ada@example.com", "-c", "protocol.file.allow=always")
    subprocess.run(["git", *identity, *words], cwd=folder, check=True, capture_output=True)


def test_what_git_tracks_travels_whatever_gitignore_says(folder: Path) -> None:
    names = ("data/labels.csv", "data/raw/a.bin", "umläut\n.pt", "kept.pt", "local.csv", "wandb/debug.log")
    write(folder, *names, "data/other.csv", "data/raw/b.bin", "last.pt", ".env", "train.py")
    (folder / ".gitignore").write_text("data/\n*.pt\n")
    (folder / ".costgpuignore").write_text("local.csv\n")
    git(folder, "init", "-q")
    git(folder, "add", "-f", *names, ".env")
    git(folder, "rm", "-q", "--cached", "kept.pt")
    selection = chosen(folder)
    assert {entry.path for entry in selection.files} == {
        ".costgpuignore",
        ".gitignore",
        "data/labels.csv",
        "data/raw/a.bin",
        "train.py",
        "umläut\n.pt",
        "wandb/debug.log",
    }
    assert selection.stays == {
        ".env": "secrets: .env*",
        ".git/": "repositories",
        "data/other.csv": ".gitignore",
        "data/raw/b.bin": ".gitignore",
        "kept.pt": ".gitignore",
        "last.pt": ".gitignore",
        "local.csv": ".costgpuignore",
    }
    assert "data/labels.csv" not in paths(folder, "data/labels.csv")
    assert paths(folder / "data") == {"labels.csv", "raw/a.bin", "other.csv", "raw/b.bin"}, "the user's being there"
    assert paths(folder / "data/raw") == {"a.bin", "b.bin"}


def test_a_folder_inside_a_repository_and_one_without(folder: Path) -> None:
    write(folder, "exp/one/a.pt", "exp/one/b.pt", "exp/two/a.pt")
    (folder / ".gitignore").write_text("*.pt\n")
    assert paths(folder / "exp") == {"one/a.pt", "one/b.pt", "two/a.pt"}, "no repository"
    git(folder, "init", "-q")
    git(folder, "add", "-f", "exp/one/a.pt")
    assert paths(folder / "exp") == {"one/a.pt"}
    assert paths(folder / "exp/one") == {"a.pt"}


def test_submodules_and_repositories_inside(folder: Path, tmp_path: Path) -> None:
    for top in (tmp_path / "lib", folder / "clone"):
        write(top, "weights.bin", "net.py", "scratch.bin")
        (top / ".gitignore").write_text("*.bin\n")
        git(top, "init", "-q")
        git(top, "add", "-f", "weights.bin", "net.py", ".gitignore")
        git(top, "commit", "-qm", "first")
    git(folder, "init", "-q")
    git(folder, "submodule", "add", "-q", str(tmp_path / "lib"), "vendor/lib")
    (folder / ".gitignore").write_text("vendor/\n")
    write(folder / "vendor/lib", "scratch.bin")
    write(folder, "vendor/other")
    assert paths(folder) == {
        ".gitignore",
        ".gitmodules",
        "clone/.gitignore",
        "clone/net.py",
        "clone/weights.bin",
        "vendor/lib/.gitignore",
        "vendor/lib/net.py",
        "vendor/lib/weights.bin",
    }


def test_without_git_all_is_as_its_rules_say(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(folder, "a.pt", "b")
    (folder / ".gitignore").write_text("*.pt\n")
    git(folder, "init", "-q")
    git(folder, "add", "-f", "a.pt")
    assert paths(folder) == {".gitignore", "a.pt", "b"}
    monkeypatch.setenv("GIT_DIR", "/nonexistent")
    assert paths(folder) == {".gitignore", "a.pt", "b"}, "a hook of git runs with variables of its own"
    monkeypatch.setenv("PATH", "/nonexistent")
    assert paths(folder) == {".gitignore", "b"}


def test_an_included_folder_travels_whole(folder: Path) -> None:
    write(
        folder,
        "data/a.pt",
        "data/deep/b.pt",
        "data/deep/.env",
        "data/.git/config",
        "other/c.pt",
        "data/__pycache__/d.pyc",
    )
    (folder / ".gitignore").write_text("*.pt\n")
    (folder / ".costgpuignore").write_text("data/\n!*.md\n")
    write(folder, "data/note.md")
    assert paths(folder, "!data") - {".gitignore", ".costgpuignore"} == {
        "data/a.pt",
        "data/deep/b.pt",
        "data/note.md",
        "data/__pycache__/d.pyc",
    }
    assert paths(folder, "!a.pt") - {".gitignore", ".costgpuignore"} == {"data/a.pt"}
    assert paths(folder, "!data", "deep", "*.md", "__pycache__") - {".gitignore", ".costgpuignore"} == {"data/a.pt"}
