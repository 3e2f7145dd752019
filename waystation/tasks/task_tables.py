"""What tasks keep in the store besides their agent runs (`waystation.agents.run_tables`): one row for each table."""

from pydantic import TypeAdapter

from waystation.agents.run_tables import RUN_TABLES
from waystation.kernel.erasure_locations import ErasureLocation
from waystation.kernel.value import DEFERRED
from waystation.planning.plan import Plan, PlanVersion
from waystation.security.untrusted import ToolDefinition
from waystation.store.schema import (
    audit,
    documents,
    plan_revisions,
    report_links,
    task_events,
    task_watches,
    tasks,
    text_owners,
)
from waystation.store.stored_tables import StoredTable, TextColumn
from waystation.tasks.task import AuditEntry, TaskProgress, TaskRequest

_AUDIT_BODY: TypeAdapter[AuditEntry | ToolDefinition] = TypeAdapter(AuditEntry | ToolDefinition, config=DEFERRED)

TASK_TABLES = (
    # Forgetting replaces the words: what the task cost and how it ended stays. A fork is a new row.
    StoredTable(
        table=tasks,
        rewind="kept",
        fork="separate",
        forget="separate",
        texts=(
            TextColumn(tasks.c.request, ErasureLocation.REQUEST, TaskRequest.model_validate_json),
            TextColumn(tasks.c.title, ErasureLocation.TITLE),
            TextColumn(tasks.c.plan, ErasureLocation.PLAN, Plan.model_validate_json),
            TextColumn(tasks.c.progress, ErasureLocation.PROGRESS, TaskProgress.model_validate_json),
        ),
    ),
    # A fork begins with the newest plan as its first.
    StoredTable(
        table=plan_revisions,
        rewind="kept",
        fork="left",
        forget="deleted",
        texts=(TextColumn(plan_revisions.c.body, ErasureLocation.PLAN, PlanVersion.model_validate_json),),
    ),
    StoredTable(
        table=report_links,
        rewind="kept",
        fork="left",
        forget="deleted",
        texts=(TextColumn(report_links.c.made_by, ErasureLocation.REPORT_LINK),),
    ),
    # A fork gets people's messages and document updates: its agents have heard of them.
    StoredTable(
        table=audit,
        rewind="kept",
        fork="separate",
        forget="deleted",
        counted_as="audits",
        texts=(TextColumn(audit.c.body, ErasureLocation.AUDIT, _AUDIT_BODY.validate_json),),
    ),
    # Texts that no other task owns are deleted.
    StoredTable(table=text_owners, rewind="kept", fork="copied", forget="separate"),
    StoredTable(
        table=documents,
        rewind="kept",
        fork="copied",
        forget="deleted",
        counted_as="documents",
        texts=(
            TextColumn(documents.c.name, ErasureLocation.DOCUMENT_NAME),
            TextColumn(documents.c.file_name, ErasureLocation.DOCUMENT_NAME),
        ),
    ),
    StoredTable(table=task_watches, rewind="kept", fork="left", forget="deleted"),
    StoredTable(table=task_events, rewind="kept", fork="left", forget="kept"),
)
STORED_TABLES = (*TASK_TABLES, *RUN_TABLES)
"""Every table with data of tasks. A test compares them with the schema."""
