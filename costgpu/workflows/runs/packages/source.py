"""What a machine installs, and the shell commands that do it."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from costgpu.errors import UsageError
from costgpu.models.workload import WorkloadProfile

UV, PIP, EITHER = "uv", "pip", "uv or pip"
GET_UV = "{ command -v uv >/dev/null || pip install uv; }"
_UV_INSTALL = "uv pip install --python python3 --break-system-packages"
# uv does not see what the image has below the machine's environment, and would install another PyTorch over it.
_CHOOSE = (
    "{ by='pip install'; command -v uv >/dev/null && ! pip show -q torch 2>/dev/null"
    f" && by='{_UV_INSTALL}'; $by WORDS; }}"
)
_COMMANDS = {UV: f"{GET_UV} && {_UV_INSTALL} WORDS", PIP: "pip install WORDS", EITHER: _CHOOSE}
_CPU_INDEX = ("--extra-index-url", "https://download.pytorch.org/whl/cpu")
_VARIABLE = re.compile(r"(\$\{[A-Z0-9_]+\})")
_LOGIN = re.compile(r"([\w+.-]+)://([^/\s@'\"]+)@")
normal = canonicalize_name  # of a package, an extra or a group: as it is compared with others
_IN_QUERY = re.compile(r"://\S+[?&][\w-]*(?:token|key|secret|passw|sig)\w*=[^&\s$]", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class PackageSource:
    """What says which packages a machine installs."""

    label: str = ""  # what says it, for people; empty if nothing does
    installer: str = ""  # program that installs them, for people; empty if there is nothing to install
    setup: str = ""  # shell command for the machine; empty if there is nothing to install
    requirements: tuple[str, ...] = ()  # what it installs, as far as that is written down
    complete: bool = False  # whether that is all but what these packages need themselves
    locked: bool = False  # whether it contains that, too
    files: tuple[str, ...] = ()  # files and folders that the command reads, relative to the working folder
    notes: tuple[str, ...] = ()  # remarks for the plan

    @property
    def text(self) -> str:
        """Return a line for the plan."""
        return f"{self.label}, by {self.installer}" if self.installer else self.label


def parse(requirement: str) -> Requirement | None:
    """Return a requirement; None if it is none."""
    try:
        return Requirement(requirement)
    except InvalidRequirement:
        return None


def with_framework(source: PackageSource, profile: WorkloadProfile | None, *, gpu: bool) -> PackageSource:
    """Return the source, or the measured PyTorch if nothing says what to install.

    Args:
        gpu: Whether the machine has one: PyTorch for CPUs is smaller by some gigabytes.
    """
    if source.label:
        return source
    if profile is None:
        note = "Nothing says which packages the script needs, and nothing was measured: the machine installs none."
        return replace(source, notes=(*source.notes, note))
    imported = profile.footprint.imported if profile.footprint is not None else []
    version = next((each.version for each in imported if each.module == "torch" and each.by_script), "")
    version = (profile.framework.version if profile.framework.name == "torch" else version).partition("+")[0]
    if not version:
        return source
    torch = (f"torch=={version}", "numpy")
    setup = install([*torch, *(() if gpu else _CPU_INDEX)], PIP)
    return replace(source, label="the measured PyTorch", installer=PIP, setup=setup, requirements=torch)


def install(words: Iterable[str], installer: str) -> str:
    """Return the command that installs what these arguments of pip name."""
    return _COMMANDS[installer].replace("WORDS", quoted(words))


def quoted(words: Iterable[str]) -> str:
    """Quote words for a shell, which is still to put in the values of variables such as ``${TOKEN}``."""
    parts = ((part for part in _VARIABLE.split(word) if part) for word in words)
    return " ".join("".join(f'"{p}"' if _VARIABLE.fullmatch(p) else shlex.quote(p) for p in word) for word in parts)


def check_python(requires: object, what: str) -> list[str]:
    """Return the command that ends a set-up where Python is older than is asked for; none if nothing is asked for."""
    least = re.findall(r"(?:>=?|~=|==)\s*(\d+)\.(\d+)", requires) if isinstance(requires, str) else []
    if not least:
        return []
    version = max((int(major), int(minor)) for major, minor in least)
    told = f"{what} asks for Python {version[0]}.{version[1]}, and the machine has "
    return [
        f"python3 -c {shlex.quote(f'import sys; sys.version_info < {version} and sys.exit({told!r} + sys.version)')}"
    ]


def refuse_secrets(text: str, where: str) -> None:
    """Refuse what has a password or a token in a URL.

    Raises:
        UsageError: In words that do not repeat it.
    """
    for scheme, login in _LOGIN.findall(text):
        user, colon, password = _VARIABLE.sub("", login).partition(":")
        if password or (user and not colon and user != "git" and "ssh" not in scheme):
            break
    else:
        if not _IN_QUERY.search(text):
            return
    raise UsageError(
        f"{where} has a password or a token in a URL.",
        hint="Write a variable in its place, such as ${INDEX_TOKEN}, and give that with -e INDEX_TOKEN.",
    )


def refuse_unset(texts: Sequence[str], where: str, variables: Mapping[str, str]) -> None:
    """Refuse variables that the job is not given.

    Raises:
        UsageError: With the option that gives them.
    """
    wanted = dict.fromkeys(name[2:-1] for text in texts for name in _VARIABLE.findall(text))
    if missing := [name for name in wanted if name not in (*variables, "PROJECT_ROOT")]:
        options = " ".join(f"-e {name}" for name in missing)
        raise UsageError(f"{where} needs {', '.join(missing)}, which the machine does not get.", hint=f"Add {options}.")
