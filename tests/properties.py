"""How many examples a property test tries: few in `make test`, many in `make test-all`."""

import os
from typing import Any

from hypothesis import settings

PROFILE = os.environ.get("HYPOTHESIS_PROFILE", "fast")
SHARE = 8 if PROFILE == "fast" else 1 if os.environ.get("FULL") else 2
LEAST = 5


def examples(most: int, **options: Any) -> settings:
    """Settings of a property test.

    Args:
        most: Examples with FULL=1; half of them in `make test-all`, an eighth, at least 5, in `make test`.
        options: Further settings of hypothesis.
    """
    return settings(max_examples=max(LEAST, most // SHARE), deadline=None, **options)
