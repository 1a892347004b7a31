"""How a setting is put on a script's command line. Pure."""

from __future__ import annotations

import re
from typing import List, Mapping, Optional, Sequence

NAME = r"[A-Za-z_][A-Za-z0-9_.-]*"
PLACE = re.compile(r"\{(" + NAME + r")\}")


def arguments_of(setting: Mapping[str, str], template: Optional[Sequence[str]] = None) -> List[str]:
    """Return the words for one setting: ``--lr 1e-4``, or the template's.

    A word of the template that becomes empty is left out, so that an empty value can mean no flag at all.
    """
    if template is None:
        return [word for name, value in setting.items() for word in ("--" + name, value)]
    filled = (PLACE.sub(lambda place: setting[place.group(1)], word) for word in template)
    return [word for word in filled if word]
