"""Audits what compactions did to an agent's context: redacted as for the summariser, and asking memory as agents do."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from waystation.agents.recollection import Recollection
from waystation.domain.compaction.audit import Audit, Item, Redaction, Searched, audits
from waystation.domain.compaction.history import current, stand_in
from waystation.domain.compaction.summary import is_summary
from waystation.domain.compaction.view import view
from waystation.domain.memory import Passage
from waystation.domain.messages import Message, Text
from waystation.domain.passages import render, tool_names
from waystation.domain.privacy import Place
from waystation.domain.task import TaskRef
from waystation.domain.transcript import Masked, Transcript
from waystation.ports import Redactor


@dataclass(frozen=True)
class Auditor:
    """Audits agents of one task."""

    redactor: Redactor
    passages: Sequence[Passage]
    """What the store keeps of the task: what is not in them, no search finds."""
    recollection: Recollection | None
    """None: memory is not to be had, and the passages themselves are searched by exact text."""
    _searched: dict[str, Searched] = field(default_factory=dict[str, Searched], init=False)
    """By passage id."""

    async def audit(self, task: TaskRef, transcript: Transcript) -> tuple[Audit, ...]:
        """One audit for each compaction that stands in the agent's view.

        Raises RedactionFailed, and MemoryUnavailable where memory was given and does not answer.
        """
        found = audits(transcript, await self._redaction(task.tenant, transcript))
        lost = dict.fromkeys(item for audit in found for item in audit.lost)
        recallable = frozenset([item for item in lost if await self._recalls(task, item)])
        return tuple(audit.recalled(recallable) for audit in found)

    async def _redaction(self, tenant: str, transcript: Transcript) -> Redaction:
        now = current(transcript)
        left = [stand_in(record) for record in now.compactions if not isinstance(record, Masked)]
        heard = [message for message in (*now.messages, *left) if message.role == "user" and message.text]
        shown, names = view(now), tool_names(now.messages)
        groups = (
            [(message, render(message, names)) for message in now.messages],
            [(message, message.text) for message in heard],
            [(message, message.text if is_summary(message) else render(message, names)) for message in shown],
        )
        texts, said, seen = [await self._redacted(tenant, group) for group in groups]
        return Redaction(
            texts=texts,
            said={
                message.id: message.model_copy(update={"blocks": (Text(text=said[message.id]),)}) for message in heard
            },
            view=seen,
        )

    async def _redacted(self, tenant: str, rendered: Sequence[tuple[Message, str]]) -> dict[str, str]:
        redacted = await self.redactor.redact([text for _, text in rendered], Place.COMPRESSED, tenant)
        return {message.id: item.text for (message, _), item in zip(rendered, redacted, strict=True)}

    async def _recalls(self, task: TaskRef, item: Item) -> bool:
        """Whether what agents recall by these very words has them. Nothing is asked that is in no passage."""
        kept = any(self._holds(passage, item) for passage in self.passages)
        if not kept or self.recollection is None:
            return kept
        found = await self.recollection.find(task, item.text)
        return any(self._holds(passage, item) for excerpt in found for passage in excerpt.passages)

    def _holds(self, passage: Passage, item: Item) -> bool:
        if passage.id not in self._searched:
            self._searched[passage.id] = Searched(passage.text)
        return self._searched[passage.id].holds(item.kind, item.text)
