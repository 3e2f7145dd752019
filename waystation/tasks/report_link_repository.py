"""SQL repository of links to reports."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from sqlalchemy import delete, insert, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from waystation.kernel.errors import BadInput
from waystation.kernel.scopes import ReadScope
from waystation.store.encryption import bind_to_row
from waystation.store.engine import SqlRepository, build_owner_filter, read_transaction, write_transaction
from waystation.store.schema import report_links, tasks
from waystation.tasks.report_links import MAX_LINKS, ReportLink, ReportLinkRecord, SharedReport
from waystation.tasks.task_repository import require_task


class SqlReportLinkRepository(SqlRepository):
    """Links to reports in SQL."""

    @write_transaction
    async def add_report_link(self, connection: AsyncConnection, shared: SharedReport) -> None:
        """Store a link. Links of the task that open nothing any more are deleted if it has too many.

        Raises:
            UnknownTask: The task does not exist.
            BadInput: Too many links of the task are open.
        """
        link = shared.link
        await require_task(connection, link.task_id)
        own = select(*_COLUMNS).where(report_links.c.task_id == link.task_id)
        known = [_parse(row).link for row in (await connection.execute(own)).mappings()]
        if len(known) >= MAX_LINKS:
            closed = [one.id for one in known if not one.is_open(link.made_at)]
            if not closed:
                raise BadInput(f"{MAX_LINKS:,} links to this report are open, the maximum: revoke some first")
            await connection.execute(delete(report_links).where(report_links.c.link_id.in_(closed)))
        record = ReportLinkRecord(
            tenant=shared.tenant,
            version=link.version,
            sources=link.sources,
            made_at=link.made_at,
            expires_at=link.expires_at,
            revoked_at=link.revoked_at,
            digest=shared.digest,
        )
        row = {
            "link_id": link.id,
            "task_id": link.task_id,
            "body": _bind(record, link.id, link.task_id),
            "made_by": bind_to_row(link.made_by, link.id, link.task_id),
            "last_used_at": link.last_used_at,
        }
        await connection.execute(insert(report_links).values(row))

    @read_transaction
    async def list_report_links(
        self, connection: AsyncConnection, task_id: str, reader: ReadScope
    ) -> tuple[ReportLink, ...]:
        """Return the links to a task's reports, the newest first."""
        # The terms of the task are read, too, which proves its owner.
        joined = select(*_COLUMNS, tasks.c.terms).join(tasks, tasks.c.task_id == report_links.c.task_id)
        own = (report_links.c.task_id == task_id, build_owner_filter(tasks, reader))
        found = await connection.execute(joined.where(*own))
        return tuple(sorted((_parse(row).link for row in found.mappings()), key=lambda one: one.made_at, reverse=True))

    @read_transaction
    async def find_report_link(self, connection: AsyncConnection, link_id: str) -> SharedReport | None:
        """Return the link with this id; None if there is none. It has no reader: the link's secret is what permits to
        read, and the caller checks it.
        """
        found = select(*_COLUMNS).where(report_links.c.link_id == link_id)
        row = (await connection.execute(found)).mappings().one_or_none()
        return None if row is None else _parse(row)

    @write_transaction
    async def revoke_report_link(
        self, connection: AsyncConnection, task_id: str, link_id: str, now: datetime
    ) -> ReportLink:
        """Revoke a link from now on. Raises BadInput for one that this task does not have."""
        own = (report_links.c.task_id == task_id, report_links.c.link_id == link_id)
        row = (await connection.execute(select(*_COLUMNS).where(*own).with_for_update())).mappings().one_or_none()
        if row is None:
            raise BadInput("this task has no such link: the page *Share* lists its links")
        found = _parse(row).link
        if found.revoked_at is None:
            record = ReportLinkRecord.model_validate_json(row["body"]).replace(revoked_at=now)
            await connection.execute(update(report_links).where(*own).values(body=_bind(record, link_id, task_id)))
            found = found.replace(revoked_at=now)
        return found

    @write_transaction
    async def record_link_use(self, connection: AsyncConnection, link_id: str, at: datetime) -> None:
        """Store when a link was last used."""
        await connection.execute(update(report_links).where(report_links.c.link_id == link_id).values(last_used_at=at))


_COLUMNS = (
    report_links.c.link_id,
    report_links.c.task_id,
    report_links.c.body,
    report_links.c.made_by,
    report_links.c.last_used_at,
)


def _parse(row: Mapping[Any, Any]) -> SharedReport:
    record = ReportLinkRecord.model_validate_json(row["body"])
    link = ReportLink(
        id=row["link_id"],
        task_id=row["task_id"],
        version=record.version,
        sources=record.sources,
        made_by=row["made_by"],
        made_at=record.made_at,
        expires_at=record.expires_at,
        revoked_at=record.revoked_at,
        last_used_at=row["last_used_at"],
    )
    return SharedReport(link=link, tenant=record.tenant, digest=record.digest)


def _bind(record: ReportLinkRecord, link_id: str, task_id: str) -> str:
    return bind_to_row(record.model_dump_json(), link_id, task_id)
