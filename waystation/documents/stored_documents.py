"""The documents of a stored task, as they are given to another task."""

from waystation.documents.documents import SourceDocument
from waystation.documents.ports import DocumentStore
from waystation.kernel.scopes import ReadScope


async def load_source_documents(store: DocumentStore, task_id: str, reader: ReadScope) -> tuple[SourceDocument, ...]:
    """Load a task's current documents; empty if it has none, or they were forgotten."""
    return tuple(
        [
            SourceDocument(
                name=one.name,
                text=await store.get_text(one.blob, reader),
                source=one.source,
                date=one.date,
                file_name=one.file_name,
            )
            for one in await store.list_documents(task_id, reader)
            if not one.removed
        ]
    )
