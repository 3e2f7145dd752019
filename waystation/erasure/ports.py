"""The port to what a task left outside of the store."""

from collections.abc import Sequence
from typing import Protocol

from waystation.erasure.erasure import ErasureQuery, MatchedHistory


class ExternalTaskData(Protocol):
    """What lies outside the store: workflow histories on the server, and reports in the home folder of this process.

    All of it is safe to repeat. The server deletes histories a moment later.
    """

    async def delete_histories(self, task_ids: Sequence[str]) -> int:
        """Every history of these tasks; how many there still were."""
        ...

    async def delete_found_histories(self, histories: Sequence[MatchedHistory]) -> int:
        """These histories; how many there still were."""
        ...

    def delete_report_files(self, task_ids: Sequence[str]) -> int:
        """The reports of these tasks; how many there were."""
        ...

    def erase_from_report_files(self, task_ids: Sequence[str], sought: ErasureQuery) -> int:
        """The reports of these tasks without the person; how many had them."""
        ...
