"""All classes of the corpus."""

from tests.measure.destructive import (
    deletes,
    home,
    metadata,
    native,
    own_places,
    plain_writes,
    processes,
    programs,
    races,
    repository,
    training,
)
from tests.measure.destructive.corpus import Script

CLASSES = (
    plain_writes, deletes, metadata, programs, repository, processes, native, own_places, home, training, races,
)  # fmt: skip
ALL: list[Script] = [script for module in CLASSES for script in module.SCRIPTS]
