import os
import stat
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import SecretStr

from costgpu.config import config_file, data_folder, data_path, ledger_url, load_settings, runs_folder
from costgpu.config.settings import settings_model
from costgpu.config.settings_files import known_settings
from costgpu.errors import ConfigError, CostGpuError, UsageError
from costgpu.providers.spec import Trust

KEYS = known_settings()
EXAMPLES = {  # of which there are many: one for each number
    "ledger_url": "postgresql://me:hunter2@db/team{}",
    "aws_image": "ami-0123456789abcde{}",
    "aws_subnet": "subnet-0123456789abcde{}",
    "aws_scheduler_role_arn": "arn:aws:iam::12345678901{}:role/costgpu-scheduler",
    "bucket": "s3://my-results-{}/costgpu",
    "gcp_project": "research-4{}",
    "gcp_network": "lab/gpu-{}",
    "gcp_billing_table": "research-42.billing.gcp_billing_export_v1_{}",
    "gcp_image": "projects/research-42/global/images/family/trainer-{}",
    "caller_address": "203.0.113.{}/32",
    "sync_limit_mib": "25{}",
    "max_lease_hours": "2{}",
    "max_machines": "3{}",
    "default_infra": "aws/us-east-{}",
    "currency": "EU{letter}",
    "currency_rate": "0.9{}",
    "owner": "ada{}@example.org",
    "alert_urls": "mailto://me:hunter2@example.org json://example.org/hunter2-{}",
}


def example(key: str, number: int = 0) -> Any:
    text = EXAMPLES[key].format(number, letter="ABCDEFGHIJ"[number])
    return float(text) if text.isdigit() else text


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project" / "src"
    folder.mkdir(parents=True)
    return folder


def write(path: Path, **values: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{key} = {value!r}\n" for key, value in values.items()))
    return path


def refused(folder: Path, **flags: Any) -> CostGpuError:
    with pytest.raises(UsageError if flags else ConfigError) as caught:
        load_settings(folder, **flags)
    assert "hunter2" not in f"{caught.value.message} {caught.value.hint}"
    return caught.value


def test_defaults(project: Path) -> None:
    settings = load_settings(project)
    assert (settings.sync_limit_mib, settings.max_lease_hours) == (500, 168)
    assert settings.alert_urls == ()
    assert settings.max_machines == 1
    defaults = {"sync_limit_mib", "max_lease_hours", "max_machines", "alert_urls"}
    assert all(getattr(settings, key) is None for key in set(KEYS) - defaults)


def test_every_setting_has_its_rule_and_the_other_way_round() -> None:
    assert list(KEYS) == list(settings_model().model_fields)
    assert set(EXAMPLES) == set(KEYS)


@pytest.mark.parametrize("key", KEYS)
def test_flag_then_variable_then_project_then_user(key: str, project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    flag, variable, of_project, of_user = (example(key, number) for number in range(4))

    def now(**flags: Any) -> Any:
        value = getattr(load_settings(project, **flags), key)
        if isinstance(value, tuple):
            return " ".join(part.get_secret_value() for part in value)
        return value.get_secret_value() if isinstance(value, SecretStr) else value

    write(config_file(), **{key: of_user})
    assert now() == of_user
    if KEYS[key] is not Trust.USER:
        write(project.parent / "costgpu.toml", **{key: of_project})
        assert now() == of_project
    monkeypatch.setenv(f"COSTGPU_{key.upper()}", "")
    assert now() == (of_user if KEYS[key] is Trust.USER else of_project)
    monkeypatch.setenv(f"COSTGPU_{key.upper()}", str(variable))
    assert now() == variable
    assert now(**{key: flag}) == flag
    assert now(**{key: None}) == variable


class TestProject:
    def test_a_table_of_pyproject(self, project: Path) -> None:
        (project.parent / "pyproject.toml").write_text("[project]\nname = 'x'\n[tool.costgpu]\nsync_limit_mib = 7\n")
        assert load_settings(project).sync_limit_mib == 7

    def test_its_own_file_before_pyproject_and_the_nearest_before_all(self, project: Path) -> None:
        (project.parent / "pyproject.toml").write_text("[tool.costgpu]\nsync_limit_mib = 7\n")
        write(project.parent / "costgpu.toml", sync_limit_mib=8)
        assert load_settings(project).sync_limit_mib == 8
        (project / "pyproject.toml").write_text("[tool.costgpu]\nsync_limit_mib = 9\n")
        assert load_settings(project).sync_limit_mib == 9

    def test_only_one_file_counts(self, project: Path) -> None:
        write(project.parent / "costgpu.toml", default_infra="aws")
        write(project / "costgpu.toml", sync_limit_mib=9)
        assert load_settings(project).default_infra is None

    def test_a_pyproject_of_others_is_none_of_our_business(self, project: Path) -> None:
        (project / "pyproject.toml").write_text("[tool.black\nbroken")
        (project.parent / "pyproject.toml").write_text("# costgpu\n[tool.costgpu-like]\nx = 1\n")
        assert load_settings(project).sync_limit_mib == 500

    @pytest.mark.parametrize("key", [key for key, trust in KEYS.items() if trust is Trust.USER])
    @pytest.mark.parametrize("name", ["costgpu.toml", "pyproject.toml"])
    def test_what_it_may_never_set(self, project: Path, monkeypatch: pytest.MonkeyPatch, key: str, name: str) -> None:
        path = write(project / name, **{key: example(key)})
        if name == "pyproject.toml":
            path.write_text(f"[tool.costgpu]\n{path.read_text()}")
        error = refused(project)
        assert error.message.startswith(f"{path}: {key} ")
        assert f"{config_file()}, or as COSTGPU_{key.upper()}" in error.hint
        monkeypatch.setenv(f"COSTGPU_{key.upper()}", example(key))  # not even where the variable would win
        refused(project)

    @pytest.mark.parametrize("key", [key for key, trust in KEYS.items() if trust is not Trust.USER])
    def test_what_a_file_that_others_can_write_may_set(self, project: Path, key: str) -> None:
        path = write(project / "costgpu.toml", **{key: example(key)})
        assert getattr(load_settings(project), key) == example(key)
        for place, mode in ((path, 0o666), (project, 0o777)):
            before = stat.S_IMODE(place.stat().st_mode)
            place.chmod(mode)
            if KEYS[key] is Trust.OWN_PROJECT:
                assert key in refused(project).message
            else:
                load_settings(project)
            place.chmod(before)

    @pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
    @pytest.mark.parametrize("given_away", ["file", "folder"])
    def test_what_a_file_of_somebody_else_may_set(self, project: Path, given_away: str) -> None:
        path = write(project / "costgpu.toml", bucket="s3://strangers-bucket")
        load_settings(project)
        os.chown(path if given_away == "file" else project, 12345, -1)
        assert "bucket" in refused(project).message
        write(path, sync_limit_mib=5)
        assert load_settings(project).sync_limit_mib == 5


class TestBadInput:
    @pytest.mark.parametrize(
        ("text", "line", "words"),
        [
            ("sync_limit_mib = 5\nowner = ada\n", 2, "Invalid value"),
            ("a = 1\na = 2\n", 2, "overwrite"),
            ("owner = 'x", 1, ""),
            ("\n\n[tool", 3, ""),
            (b"owner = 'x'\nbucket = '\xff'\n", 2, "UTF-8"),
        ],
    )
    @pytest.mark.parametrize("whose", ["project", "user"])
    def test_broken_toml(self, project: Path, whose: str, text: str | bytes, line: int, words: str) -> None:
        path = project / "costgpu.toml" if whose == "project" else config_file()
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        error = refused(project)
        assert error.message.startswith(f"{path}, line {line}: ")
        assert words in error.message
        assert error.hint

    def test_a_broken_pyproject_that_speaks_of_us(self, project: Path) -> None:
        (project / "pyproject.toml").write_text("[tool.costgpu]\nsync_limit_mib = \n")
        assert "line 2" in refused(project).message

    @settings(deadline=None)
    @given(st.binary(max_size=60))
    def test_any_bytes(self, raw: bytes) -> None:
        path = config_file()
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(raw)
        try:
            load_settings(path.parent)
        except ConfigError as exc:
            problem = exc.message
            assert str(path) in problem
        finally:
            path.unlink()

    @pytest.mark.parametrize(
        ("key", "near"),
        [
            ("sync_limit_mb", "sync_limit_mib"),
            ("sync-limit-mib", "sync_limit_mib"),
            ("Bucket", "bucket"),
            ("qqq", "Known are"),
        ],
    )
    def test_a_key_that_nobody_knows(self, project: Path, key: str, near: str) -> None:
        path = write(project / "costgpu.toml", **{key: 1})
        error = refused(project)
        assert str(path) in error.message
        assert repr(key) in error.message
        assert near in error.hint

    def test_a_variable_that_is_nearly_right(self, project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("COSTGPU_SOMETHING_OF_ANOTHER_PART", "1")
        load_settings(project)
        monkeypatch.setenv("COSTGPU_LEDGER_URI", "postgresql://me:hunter2@h/d")
        error = refused(project)
        assert "COSTGPU_LEDGER_URI" in error.message
        assert "COSTGPU_LEDGER_URL" in error.hint
        with pytest.raises(ConfigError):
            ledger_url()

    @pytest.mark.parametrize(
        ("key", "value", "words"),
        [
            ("sync_limit_mib", "much", "number"),
            ("sync_limit_mib", -1.0, "greater than 0"),
            ("sync_limit_mib", float("inf"), "finite"),
            ("max_lease_hours", 168.5, "less than or equal to 168"),
            ("max_lease_hours", 0.0, "greater than 0"),
            ("bucket", "gs://x", "s3://name/prefix"),
            ("bucket", "s3://UPPER", "s3://name/prefix"),
            ("aws_subnet", "vpc-12345678", "subnet"),
            ("aws_scheduler_role_arn", "arn:aws:iam::1:user/x", "role"),
            ("gcp_project", "Research 42", "project"),
            ("gcp_project", "x", "project"),
            ("gcp_network", "projects/p/global/networks/default", "NETWORK/SUBNET"),
            ("gcp_image", "ubuntu-2404", "projects/PROJECT"),
            ("caller_address", "everybody", "203.0.113.7"),
            ("caller_address", "0.0.0.0/0", "to the world"),
            ("caller_address", "128.0.0.0/1", "to the world"),
            ("caller_address", "::/0", "to the world"),
            ("default_infra", "aws/us east", "aws/us-east-1"),
            ("owner", "a\nb", "name"),
            ("owner", "", "name"),
        ],
    )
    def test_values_are_named_with_their_source(
        self, project: Path, monkeypatch: pytest.MonkeyPatch, key: str, value: Any, words: str
    ) -> None:
        error = refused(project, **{key: value})
        assert error.message.startswith("--")
        assert words in error.message
        path = config_file()
        path.parent.mkdir(parents=True)
        path.write_text(f"{key} = {str(value) if isinstance(value, float) else repr(value)}\n".replace("'", '"'))
        assert refused(project).message.startswith(f"{path}: {key} ")
        if value != "":
            monkeypatch.setenv(f"COSTGPU_{key.upper()}", str(value))
            assert refused(project).message.startswith(f"COSTGPU_{key.upper()} ")

    def test_a_wrong_kind_of_secret_is_not_repeated(self, project: Path) -> None:
        path = config_file()
        path.parent.mkdir(parents=True)
        path.write_text("ledger_url = ['hunter2']\n")
        error = refused(project)
        assert "ledger_url" in error.message
        with pytest.raises(ConfigError) as caught:
            ledger_url()
        assert "hunter2" not in caught.value.message

    def test_a_file_that_cannot_be_read(self, project: Path) -> None:
        (project / "costgpu.toml").mkdir()
        error = refused(project)
        assert str(project / "costgpu.toml") in error.message
        assert "directory" in error.message.lower()


@pytest.mark.parametrize(
    ("written", "kept"),
    [
        ("203.0.113.7", "203.0.113.7/32"),
        ("203.0.113.7/24", "203.0.113.0/24"),
        (" 10.0.0.0/8 ", "10.0.0.0/8"),
        ("2001:db8::1", "2001:db8::1/128"),
    ],
)
def test_an_address_becomes_a_network(project: Path, written: str, kept: str) -> None:
    assert load_settings(project, caller_address=written).caller_address == kept


def test_the_settings_do_not_show_the_ledgers_password(project: Path) -> None:
    settings = load_settings(project, ledger_url="postgresql://me:hunter2@db/team")
    assert "hunter2" not in f"{settings} {settings!r} {settings.model_dump_json()}"
    assert settings.ledger_url is not None
    assert settings.ledger_url.get_secret_value() == "postgresql://me:hunter2@db/team"


@pytest.mark.parametrize("variable", [None, "", "sqlite:////variable"])
@pytest.mark.parametrize("in_file", [None, "sqlite:////file"])
def test_the_quick_way_to_the_ledger_is_the_same(
    project: Path, monkeypatch: pytest.MonkeyPatch, variable: str | None, in_file: str | None
) -> None:
    if variable is not None:
        monkeypatch.setenv("COSTGPU_LEDGER_URL", variable)
    if in_file is not None:
        write(config_file(), ledger_url=in_file)
    settings = load_settings(project)
    assert ledger_url() == (settings.ledger_url.get_secret_value() if settings.ledger_url else None)


class TestPlaces:
    def test_in_the_xdg_folders(self) -> None:
        assert config_file() == Path(os.environ["XDG_CONFIG_HOME"]) / "costgpu" / "config.toml"
        assert data_path() == Path(os.environ["XDG_DATA_HOME"]) / "costgpu"
        assert not data_path().exists()

    def test_for_their_owner_only(self) -> None:
        before = os.umask(0)
        try:
            assert runs_folder() == data_folder() / "runs"
        finally:
            os.umask(before)
        for folder in (data_folder(), runs_folder()):
            assert stat.S_IMODE(folder.stat().st_mode) == 0o700
            folder.chmod(0o755)
        for folder in (data_folder(), runs_folder()):
            assert stat.S_IMODE(folder.stat().st_mode) == 0o700

    def test_a_file_in_the_way(self) -> None:
        data_folder().joinpath("runs").touch()
        with pytest.raises(ConfigError, match="runs") as caught:
            runs_folder()
        assert "XDG_DATA_HOME" in caught.value.hint

    @pytest.mark.skipif(os.geteuid() != 0, reason="only root can give folders away")
    def test_a_folder_of_somebody_else(self) -> None:
        os.chown(runs_folder(), 12345, -1)
        with pytest.raises(ConfigError, match="another user"):
            runs_folder()
