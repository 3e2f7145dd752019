"""The activity that brings documents into memory."""

import logging

from temporalio import activity

from activities.failures import reported
from activities.heartbeats import beating
from waystation.agents.librarian import Librarian
from waystation.domain.remembering import Remembering

logger = logging.getLogger(__name__)


class DocumentActivities:
    """The documents of tasks."""

    def __init__(self, librarian: Librarian) -> None:
        self._librarian = librarian

    @activity.defn(name="RememberDocuments")
    async def remember(self, so_far: Remembering) -> Remembering:
        """One slice further."""
        async with beating():
            with reported():
                now = await self._librarian.next_slice(so_far)
        if now.done and now.left_out:
            logger.info("%s: memory does not get %s characters of documents", now.ref.task_id, now.left_out)
        return now
