"""Read-only links to one report, for people who have no key here.

As of API keys, only digests of the links' secrets are stored, in a file that only this user can read. The file is read
again whenever it has changed: a revoked link is refused from that moment on.
"""

import fcntl
import hmac
import secrets
from collections.abc import Generator
from contextlib import contextmanager
from datetime import datetime, timedelta
from hashlib import sha256
from pathlib import Path
from typing import Annotated

from fastapi import Depends, Request
from fastapi import Path as PathField
from pydantic import Field, TypeAdapter, ValidationError

from waystation.kernel.errors import BadInput
from waystation.kernel.files import create_private_folder, open_private_file, write_private_file
from waystation.kernel.value import EagerValue, Value

SECRET_BYTES, ID_BYTES = 32, 6
FILE = "report-links.json"
"""Name of the file in the home folder."""
MAX_LINKS = 1_000
"""Maximum links that are stored; those that no longer open anything are dropped first."""
MAX_DAYS = 365
DEFAULT_DAYS = 30
USE_PRECISION = timedelta(minutes=1)
"""A link's last use is stored at most once in this time."""


class NewReportLink(EagerValue):
    """A link to create."""

    days: int = Field(default=DEFAULT_DAYS, ge=1, le=MAX_DAYS, description="Days until the link expires.")
    sources: bool = Field(default=False, description="Whether the cited lines of documents can be read, too.")


class ReportLink(Value):
    """A link to one version of a report, without its secret."""

    id: str
    task_id: str
    version: int
    sources: bool
    """Whether the cited lines of documents can be read, too."""
    made_by: str
    """Name of the key that made it; empty for the printed token."""
    made_at: datetime
    expires_at: datetime
    revoked_at: datetime | None = None
    last_used_at: datetime | None = None

    def is_open(self, now: datetime) -> bool:
        """Return whether it shows its report at this time."""
        return self.revoked_at is None and now < self.expires_at


class MadeReportLink(Value):
    """A new link with its address, which is stored nowhere."""

    link: ReportLink
    path: str
    """Path of the shared page on this server."""


class _StoredLink(Value):
    link: ReportLink
    tenant: str
    digest: str


_ADAPTER = TypeAdapter(tuple[_StoredLink, ...])


class SharedReport(Value):
    """What a valid address opens."""

    link: ReportLink
    tenant: str


class ReportLinkStore:
    """The links of one home folder."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._read: tuple[tuple[int, int], tuple[_StoredLink, ...]] = ((0, 0), ())

    def list_links(self, tenant: str, task_id: str) -> tuple[ReportLink, ...]:
        """Return the links to a task's reports, the newest first. Raises BadInput if the file is unreadable."""
        found = [one.link for one in self._load() if (one.tenant, one.link.task_id) == (tenant, task_id)]
        return tuple(found[::-1])

    def create_link(
        self, tenant: str, task_id: str, version: int, wanted: NewReportLink, made_by: str, now: datetime
    ) -> MadeReportLink:
        """Create a link. Raises BadInput if too many are open."""
        link_id, secret = secrets.token_hex(ID_BYTES), secrets.token_urlsafe(SECRET_BYTES)
        link = ReportLink(
            id=link_id,
            task_id=task_id,
            version=version,
            sources=wanted.sources,
            made_by=made_by,
            made_at=now,
            expires_at=now + timedelta(days=wanted.days),
        )
        with self._alone():
            kept = self._load()
            if len(kept) >= MAX_LINKS:
                kept = tuple(one for one in kept if one.link.is_open(now))
            if len(kept) >= MAX_LINKS:
                raise BadInput(f"{MAX_LINKS:,} links are open, the maximum: revoke some first")
            self._keep((*kept, _StoredLink(link=link, tenant=tenant, digest=_digest(secret))))
        return MadeReportLink(link=link, path=f"/shared/{link_id}.{secret}")

    def revoke(self, tenant: str, task_id: str, link_id: str, now: datetime) -> ReportLink:
        """Revoke a link from now on. Raises BadInput for one that this task does not have."""
        with self._alone():
            kept = self._load()
            own = [one for one in kept if (one.tenant, one.link.task_id, one.link.id) == (tenant, task_id, link_id)]
            if not own:
                raise BadInput("this task has no such link: load the page of its links again")
            link = own[0].link if own[0].link.revoked_at else own[0].link.replace(revoked_at=now)
            self._keep(tuple(one.replace(link=link) if one is own[0] else one for one in kept))
        return link

    def open_link(self, address: str, now: datetime) -> SharedReport | None:
        """Return what the address opens, and store its use; None if it is unknown, expired or revoked."""
        link_id, _, secret = address.partition(".")
        found = next((one for one in self._load() if one.link.id == link_id), None)
        right = hmac.compare_digest(_digest(secret), found.digest if found else "")
        if found is None or not right or not found.link.is_open(now):
            return None
        if found.link.last_used_at is None or now - found.link.last_used_at > USE_PRECISION:
            self._store_use(link_id, now)
        return SharedReport(link=found.link, tenant=found.tenant)

    def _store_use(self, link_id: str, now: datetime) -> None:
        with self._alone():
            self._keep(
                tuple(
                    one.replace(link=one.link.replace(last_used_at=now)) if one.link.id == link_id else one
                    for one in self._load()
                )
            )

    def _load(self) -> tuple[_StoredLink, ...]:
        try:
            found = self.path.stat()
            stamp = (found.st_mtime_ns, found.st_ino)
            if stamp != self._read[0]:
                self._read = (stamp, _ADAPTER.validate_json(self.path.read_bytes()))
        except FileNotFoundError:
            return ()
        except (OSError, ValidationError) as error:
            raise BadInput(
                f"{self.path} is not a readable file of report links: restore it from a copy, or remove it"
            ) from error
        return self._read[1]

    @contextmanager
    def _alone(self) -> Generator[None]:
        """Serialise changes: of two at once the later would undo the earlier."""
        with open_private_file(create_private_folder(self.path.parent) / f"{self.path.name}.lock") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    def _keep(self, links: tuple[_StoredLink, ...]) -> None:
        write_private_file(self.path, _ADAPTER.dump_json(links, indent=1))


def _digest(secret: str) -> str:
    return sha256(secret.encode(errors="replace")).hexdigest()


def get_report_links(request: Request) -> ReportLinkStore:
    """Return the server's links. Raises BadInput if it has none."""
    links = request.app.state.links
    if not isinstance(links, ReportLinkStore):
        raise BadInput("this server shares no reports")
    return links


ReportLinks = Annotated[ReportLinkStore, Depends(get_report_links)]
LinkPath = Annotated[str, PathField(pattern="^[0-9a-f]{12}$", description="Id of the link.")]
