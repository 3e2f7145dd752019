"""The activity that keeps what people tell a task at work."""

from temporalio import activity

from activities.failures import reported
from waystation.domain.errors import TextMissing
from waystation.domain.ownership import Installation, OfTask
from waystation.domain.telling import MAX_TELLING, Telling
from waystation.domain.told import Words
from waystation.domain.value import Value
from waystation.ports import DocumentStore, TaskStore

UNKNOWN = (
    "the words behind `message` are not in the task's store: send them with `waystation tell`, which puts them there"
)


class TellRequest(Value):
    """What is to be kept for which task."""

    task_id: str
    words: Words


class Kept(Value):
    """The telling with its words; or why they cannot be had."""

    telling: Telling
    reason: str = ""


class TellingActivities:
    """What people say."""

    def __init__(self, tasks: TaskStore, texts: DocumentStore) -> None:
        self._tasks, self._texts = tasks, texts

    @activity.defn(name="KeepTelling")
    async def keep(self, request: TellRequest) -> Kept:
        """Into the audit trail, where agents find it at their next turn. Kept twice, it stands once."""
        telling, words = request.words.telling, request.words
        with reported():
            task = (await self._tasks.task(request.task_id, Installation())).ref.reader
            if words.text is not None:
                blob = await self._texts.put_text(words.text, task)
            else:
                blob = words.message or ""
                if reason := await self._fault(blob, task):
                    return Kept(telling=telling, reason=reason)
            kept = telling.model_copy(update={"text": blob})
            await self._tasks.audit(request.task_id, kept)
        return Kept(telling=kept)

    async def _fault(self, blob: str, task: OfTask) -> str:
        try:
            text = await self._texts.get_text(blob, task)
        except TextMissing:
            return UNKNOWN
        if len(text) > MAX_TELLING:
            return f"the message has {len(text):,} characters; it may have {MAX_TELLING:,}"
        return ""
