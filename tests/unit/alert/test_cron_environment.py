"""What a command in cron gets from the terminal that installed it, and what it must never get."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from costgpu.alert.cron_environment import cron_environment
from costgpu.config import config_file
from costgpu.errors import ConfigError

SECRET = "s3cr3t-t0ken"


def nowhere(_name: str) -> str | None:
    return None


def found(environment: dict[str, str], home: str = "") -> tuple[dict[str, str], str]:
    around = cron_environment(environment, "/opt/venv/bin/costgpu", nowhere, home)
    return dict(around.variables), "\n".join(around.notes)


def test_places_and_plain_settings_travel_and_nothing_else() -> None:
    variables, _ = found(
        {
            "XDG_DATA_HOME": "/data",
            "AWS_PROFILE": "research",
            "COSTGPU_OWNER": "ada",
            "COSTGPU_MAX_LEASE_HOURS": "5",
            "COSTGPU_HOME": "/x",
            "LANG": "de_DE.UTF-8",
            "SSH_AUTH_SOCK": "/tmp/x",
            "AWS_REGION": "",
            "TERM": "xterm",
        }
    )
    assert variables == {
        "PATH": "/opt/venv/bin:/usr/local/bin:/usr/bin:/bin",
        "XDG_DATA_HOME": "/data",
        "AWS_PROFILE": "research",
        "COSTGPU_OWNER": "ada",
        "COSTGPU_MAX_LEASE_HOURS": "5",
    }


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("COSTGPU_ALERT_URLS", f"slack://{SECRET}/b/c"),
        ("costgpu_alert_urls", f"slack://{SECRET}/b/c"),
        ("COSTGPU_LEDGER_URL", f"postgresql://me:{SECRET}@db/costgpu"),
        ("COSTGPU_LEDGER_URL", f"postgresql://db/costgpu?user=me&password={SECRET}"),
        ("COSTGPU_LEDGER_URL", f"postgresql://me:p@{SECRET}@db/costgpu"),
        ("COSTGPU_LEDGER_URL", SECRET),
        *(("COSTGPU_LEDGER_URL", f"postgresql://bob:pa{sign}{SECRET}@h/db") for sign in "/#?"),
        ("COSTGPU_LEDGER_URL", f"postgresql://db/costgpu?user=me&p%61ssword={SECRET}"),
        *(("HTTPS_PROXY", f"{scheme}me:/{SECRET}@proxy:3128") for scheme in ("http://", "")),
        ("HTTPS_PROXY", f"http://me:{SECRET}@proxy:3128"),
        ("AWS_SECRET_ACCESS_KEY", SECRET),
        ("PGPASSWORD", SECRET),
    ],
)
def test_secrets_stay_out_and_their_absence_is_said(name: str, value: str) -> None:
    variables, notes = found({name: value})
    assert SECRET not in str(variables)
    assert set(variables) == {"PATH"}
    assert SECRET not in notes
    assert f"{name} " in notes
    assert "cron will not see it" in notes


@given(st.text(alphabet="abc:/@?&=.%", min_size=1, max_size=30), st.sampled_from([":{}@", ":{}:x@", "?password={}"]))
def test_a_password_in_a_ledger_url_never_travels(host: str, form: str) -> None:
    around = cron_environment({"COSTGPU_LEDGER_URL": f"postgresql://me{form.format(SECRET)}{host}"}, "/c", nowhere)
    assert SECRET not in "".join(around.variables.values())


@pytest.mark.parametrize(
    "name",
    [
        "AWS_DEFAULT_PROFILE",
        "AWS_ROLE_ARN",
        "AWS_WEB_IDENTITY_TOKEN_FILE",
        "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
        "AWS_CONTAINER_CREDENTIALS_FULL_URI",
        "AWS_CONFIG_FILE",
        "AWS_SHARED_CREDENTIALS_FILE",
        "GOOGLE_APPLICATION_CREDENTIALS",
        "GOOGLE_CLOUD_PROJECT",
        "CLOUDSDK_CONFIG",
        "COSTGPU_GCP_PROJECT",
    ],
)
def test_where_the_credentials_are_travels(name: str) -> None:
    assert found({name: "/some/where"})[0][name] == "/some/where"


def test_the_projects_gcp_project_travels_unless_a_variable_says_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "costgpu.toml").write_text('gcp_project = "research-42"')
    (tmp_path / "below").mkdir()
    monkeypatch.chdir(tmp_path / "below")
    assert found({})[0]["COSTGPU_GCP_PROJECT"] == "research-42"
    assert found({"costgpu_gcp_project": "mine"})[0].get("COSTGPU_GCP_PROJECT") is None
    (tmp_path / "costgpu.toml").write_text("max_lease_hours = 5")
    assert "COSTGPU_GCP_PROJECT" not in found({})[0]


@pytest.mark.parametrize(
    "url",
    [
        "sqlite:////srv/costgpu/ledger.sqlite",
        "postgresql://db.example.com/costgpu",
        "postgresql://me@db:5432/costgpu",
        "postgresql://me@db/costgpu?passfile=/home/me/.pgpass",
    ],
)
def test_a_ledger_without_a_password_travels(url: str) -> None:
    variables, notes = found({"COSTGPU_LEDGER_URL": url})
    assert variables["COSTGPU_LEDGER_URL"] == url
    assert "LEDGER" not in notes


@pytest.mark.parametrize("proxy", ["http://proxy:3128", "http://me@proxy:3128", "proxy:3128"])
def test_a_proxy_without_a_password_travels(proxy: str) -> None:
    assert found({"HTTPS_PROXY": proxy})[0]["HTTPS_PROXY"] == proxy


def test_another_home_than_the_systems_travels() -> None:
    assert "HOME" not in found({"HOME": "/home/ada"}, home="/home/ada")[0]
    assert "HOME" not in found({"HOME": "/home/ada"})[0]
    assert found({"HOME": "/scratch/ada"}, home="/home/ada")[0]["HOME"] == "/scratch/ada"


def test_programs_that_credentials_need_are_found_again() -> None:
    places = {"aws": "/opt/aws/bin/aws", "git": "/usr/bin/git", "ssh": "relative/ssh", "gcloud": "/a:b/gcloud"}
    around = cron_environment({}, "/opt/venv/bin/costgpu", places.get)
    assert around.variables["PATH"] == "/opt/venv/bin:/opt/aws/bin:/usr/bin:/usr/local/bin:/bin"


def settings_file(text: str, mode: int) -> Path:
    path = config_file()
    path.parent.mkdir(parents=True)
    path.write_text(text)
    path.chmod(mode)
    return path


def test_a_settings_file_that_others_can_read_is_named() -> None:
    path = settings_file(f'alert_urls = ["json://{SECRET}"]', 0o644)
    notes = found({})[1]
    assert f"chmod 600 {path}" in notes
    assert SECRET not in notes
    path.chmod(0o600)
    assert found({})[1] == ""


def test_alerts_that_nobody_would_get_are_named() -> None:
    assert "No alert_urls" in found({})[1]
    assert "No alert_urls" not in found({"COSTGPU_ALERT_URLS": "x"})[1]


def test_an_unreadable_settings_file_is_an_error_before_anything_is_installed() -> None:
    settings_file("alert_urls = [", 0o600)
    with pytest.raises(ConfigError, match="line 1"):
        found({})
