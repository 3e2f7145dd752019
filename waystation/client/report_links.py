"""Makes, revokes and opens read-only links to reports."""

import secrets
from datetime import timedelta

from waystation.kernel.clock import utc_now
from waystation.runtime.sql_store import SqlStore
from waystation.tasks.report_links import (
    USE_PRECISION,
    MadeReportLink,
    NewReportLink,
    ReportLink,
    SharedReport,
    compute_secret_digest,
)
from waystation.tasks.task import TaskRow

SECRET_BYTES, ID_BYTES = 32, 6
SHARED_PATH = "/shared/"
"""Path of shared reports, before the address of the link."""


async def create_link(
    store: SqlStore, row: TaskRow, version: int, wanted: NewReportLink, made_by: str
) -> MadeReportLink:
    """Make a link to this version of a task's report. Raises BadInput if too many are open."""
    secret, now = secrets.token_urlsafe(SECRET_BYTES), utc_now()
    link = ReportLink(
        id=secrets.token_hex(ID_BYTES),
        task_id=row.ref.task_id,
        version=version,
        sources=wanted.sources,
        made_by=made_by,
        made_at=now,
        expires_at=now + timedelta(days=wanted.days),
    )
    shared = SharedReport(link=link, tenant=row.request.tenant, digest=compute_secret_digest(secret))
    await store.add_report_link(shared)
    return MadeReportLink(link=link, path=f"{SHARED_PATH}{link.id}.{secret}")


async def open_link(store: SqlStore, address: str) -> SharedReport | None:
    """Return what the address opens, and store its use; None if it is unknown, expired or revoked.

    Anyone who has the address may read the report, whatever their tenant.
    """
    link_id, _, secret = address.partition(".")
    now, found = utc_now(), await store.find_report_link(link_id)
    if found is None or not found.matches_secret(secret) or not found.link.is_open(now):
        return None
    if found.link.last_used_at is None or now - found.link.last_used_at > USE_PRECISION:
        await store.record_link_use(link_id, now)
    return found
