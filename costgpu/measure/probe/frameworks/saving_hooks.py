"""How long the saving of a library takes, whatever it writes its checkpoints with."""

from __future__ import annotations

from ..patching import wrap
from ..schedstat import work_clock


class Saving:
    """Times the outermost call that saves; one per process."""

    def __init__(self, recorder):
        self.recorder, self.inside = recorder, False

    def time(self, owner, name, also=None):
        """Have every call of ``owner.name`` counted as one that saves; `also` gets its seconds, too."""

        def save(inner, *args, **kwargs):
            if self.inside:
                return inner(*args, **kwargs)
            self.inside, begin = True, work_clock()
            try:
                return inner(*args, **kwargs)
            finally:
                self.inside = False
                seconds = work_clock() - begin
                self.recorder.saved(seconds)
                if also is not None:
                    also(seconds)

        wrap(owner, name, save)
