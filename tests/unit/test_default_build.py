"""What the lanes with the default builds of torch ask pip for, and where they are left out."""

from pathlib import Path

import pytest

from tests import default_build


def test_the_pinned_release_is_the_one_of_the_test_environment() -> None:
    pinned, newest = default_build.requirements("pinned"), default_build.requirements("newest")
    assert pinned[0].startswith("torch===")
    assert newest[0] == "torch"
    assert pinned[1:] == newest[1:]


def test_it_can_be_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(default_build, "CACHE", tmp_path)
    monkeypatch.setattr(default_build, "FREE_BYTES", 1 << 62)
    monkeypatch.setenv("DEFAULT_BUILD", "no")
    assert default_build.obstacle(tmp_path / "newest") == "DEFAULT_BUILD=no"
    monkeypatch.delenv("DEFAULT_BUILD")
    assert default_build.obstacle(tmp_path / "newest"), "there is no such build, or no room for it"
