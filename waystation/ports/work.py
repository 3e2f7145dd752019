"""The port to what agents hand over: notes, and what ends their work."""

from typing import Protocol

from waystation.domain.ownership import Reader
from waystation.domain.turn import Fence
from waystation.domain.work import Deliverable, Note


class WorkStore(Protocol):
    """What agents note and hand in."""

    async def add_note(self, fence: Fence, task_id: str, note: Note) -> None:
        """Keep a note; the same id twice is one note. Raises FenceLost."""
        ...

    async def notes(self, task_id: str, reader: Reader, run_id: str | None = None) -> tuple[Note, ...]:
        """Notes of a task or of one agent run, in the order in which they were taken."""
        ...

    async def hand_in(self, fence: Fence, task_id: str, deliverable: Deliverable) -> None:
        """Keep what the agent run hands in; a later hand-in of the same run replaces it. Raises FenceLost."""
        ...

    async def deliverable(self, run_id: str, reader: Reader) -> Deliverable | None:
        """What the run handed in."""
        ...

    async def deliverables(self, task_id: str, reader: Reader) -> dict[str, Deliverable]:
        """What all agent runs of a task handed in, by run id."""
        ...
