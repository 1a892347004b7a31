"""A reporter that remembers what it was told."""

from costgpu.workflows.reporter import LogReporter


class ListReporter(LogReporter):
    """Keeps remarks, with their hints, in the order in which they came."""

    def __init__(self) -> None:
        self.notes: list[str] = []

    def note(self, text: str, hint: str = "") -> None:
        self.notes.append(f"{text} {hint}".strip())
