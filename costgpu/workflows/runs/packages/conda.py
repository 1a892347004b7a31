"""The environment.yml of conda, installed by micromamba."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from costgpu.errors import UsageError
from costgpu.workflows.runs.packages.requirements import Listing, read_requirements, read_text
from costgpu.workflows.runs.packages.source import PackageSource, quoted, refuse_secrets

# Source: https://micro.mamba.pm/install.sh, which takes it from there, too (2026-11). The agent starts the job with the
# Python in the folder env, if the set-up has made one there.
_COMMAND = (
    'm=$(command -v micromamba) || { m="$COSTGPU_HOME/micromamba"; a=64; [ "$(uname -m)" = aarch64 ] && a=aarch64;'
    ' curl -fsSLo "$m" https://github.com/mamba-org/micromamba-releases/releases/latest/download/micromamba-linux-$a'
    ' && chmod +x "$m"; } && "$m" create -y -r "$COSTGPU_HOME/conda" -p "$COSTGPU_HOME/env" -f WORDS'
    ' && export PATH="$COSTGPU_HOME/env/bin:$PATH" && python3 -c ""'
)
_NAME = re.compile(r"(?:[\w./:-]+::)?([A-Za-z0-9_][\w.-]*)")
_BUILD = re.compile(r"[^=<>!]+=[^=]+=[^=]+")


def conda_source(path: Path, listing: Listing) -> PackageSource:
    """Return what an environment.yml installs; what it names is added to the listing.

    Raises:
        UsageError: It is broken, or names what the machine would not find.
    """
    import yaml

    from costgpu.workflows.plain_yaml import plain_yaml

    text = read_text(path)
    refuse_secrets(text, path.name)
    try:
        root = plain_yaml(Path(path.name), text)
        data: Any = None if root is None else yaml.SafeLoader("").construct_document(root)
    except (yaml.YAMLError, ValueError) as error:  # a date that there is not
        raise UsageError(f"{path.name} is no YAML: {' '.join(str(error).split())}.", hint="Correct it.") from None
    found = data.get("dependencies") if isinstance(data, dict) else None
    again = f"conda env export --from-history > {path.name}"
    if not isinstance(found, list):
        raise UsageError(f"{path.name} has no list of dependencies.", hint=f"{again} makes one; or give --setup.")
    names, listing.nameless = [], True  # what each needs is not known here
    for each in found:
        if isinstance(each, str) and (name := _NAME.match(each.strip())):
            names.append(name[1].lower())
        elif isinstance(each, dict) and isinstance(each.get("pip"), list):
            for line in map(str, each["pip"]):
                option, _, value = line.partition(" ")
                if option == "-r":
                    read_requirements(listing, listing.travels(value.strip(), path.parent, path.name))
                elif option == "-e" or not line.startswith("-"):
                    listing.add(value.strip() if option == "-e" else line, path.name)
        else:
            raise UsageError(f"{path.name}: {each!r} is no dependency.", hint="Correct it, or give --setup.")
    if "python" not in names:
        raise UsageError(f"{path.name} does not name python.", hint="Add it to the dependencies: - python=3.12")
    if any(isinstance(each, str) and _BUILD.fullmatch(each) for each in found):
        listing.notes.append(f"{path.name} has exact builds, which are for one system; others are made by {again}")
    if data.get("variables"):
        listing.notes.append(f"The variables of {path.name} are not set on the machine: -e KEY=VALUE sets them.")
    return PackageSource(
        label=path.name,
        installer="micromamba",
        setup=_COMMAND.replace("WORDS", quoted([path.name])),
        requirements=tuple(names),
        files=(path.name,),
    )
