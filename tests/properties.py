"""How many examples a property test tries: few in `make test`, many in `make test-all`."""

import os
from typing import Any

from hypothesis import settings

PROFILE = os.environ.get("HYPOTHESIS_PROFILE", "fast")
FAST_SHARE, LEAST = 8, 5


def examples(thorough: int, **options: Any) -> settings:
    """Settings of a property test.

    Args:
        thorough: Examples in `make test-all`; an eighth of them, at least 5, in `make test`.
        options: Further settings of hypothesis.
    """
    count = thorough if PROFILE == "thorough" else max(LEAST, thorough // FAST_SHARE)
    return settings(max_examples=count, deadline=None, **options)
