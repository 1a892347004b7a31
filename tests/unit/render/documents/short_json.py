"""JSON documents in few lines."""

import json
from typing import Any

LINE = 120


def short(value: Any, seen: dict[str, str], place: str, margin: str = "") -> str:
    """Return JSON in few lines: what is short on one, and what was shown before as the place of it.

    Args:
        seen: Long values -> where they were shown; those of this one are added.
    """
    line = json.dumps(value)
    if len(line) + len(margin) < LINE:
        return line
    if line in seen:
        return f"as in {seen[line]}"
    seen[line] = place
    pairs = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    lines, fits = [""], False
    for key, one in pairs:
        part = f"{key}: {short(one, seen, f'{place}.{key}', f'{margin}  ')}".replace(": \n", ":\n", 1)
        if fits and "\n" not in part and len(lines[-1]) + len(part) < LINE:
            lines[-1] += f", {part}"
        else:
            lines.append(f"{margin}  {part}")
        fits = "\n" not in part
    return "\n".join(lines) if pairs else line
