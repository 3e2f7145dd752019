"""A desk at which nothing is called: it tells which tools agents have, and how much of a request they take."""

from waystation.adapters.clock import utc_now
from waystation.adapters.store import SqlStore
from waystation.agents.redacted_documents import RedactedDocuments
from waystation.agents.roles import Desk
from waystation.domain.projection import ToolPolicy


def idle_desk(store: SqlStore, policy: ToolPolicy) -> Desk:
    """Our own tools, without those of the web and of tool servers. Memory stays closed, and no text is redacted."""
    # They take a second to load.
    from waystation.adapters.absent_memory import NoMemory, NoRedactor  # noqa: PLC0415
    from waystation.adapters.documents.search import Bm25DocumentSearch  # noqa: PLC0415
    from waystation.adapters.embeddings.absent import NoEmbedder  # noqa: PLC0415
    from waystation.adapters.tables.engine import DuckDbTables  # noqa: PLC0415
    from waystation.agents.columns import ColumnRedactor  # noqa: PLC0415
    from waystation.agents.recollection import Recollection  # noqa: PLC0415
    from waystation.agents.tables import Tables  # noqa: PLC0415

    redactor = NoRedactor()
    return Desk(
        transcripts=store,
        documents=store,
        search=Bm25DocumentSearch(store),
        work=store,
        tasks=store,
        recollection=Recollection(NoMemory(), NoEmbedder(), redactor),
        redactor=redactor,
        redacted=RedactedDocuments(store, redactor),
        tables=Tables(DuckDbTables(), ColumnRedactor(redactor, redactor), utc_now),
        policy=policy,
    )
