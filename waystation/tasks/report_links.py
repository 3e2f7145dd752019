"""Read-only links to one report, for people who have no key.

The secret of a link is in its address only. The store has its digest, in an encrypted body: anyone who can write to the
database, but has no key, can neither make a link nor extend one.
"""

import hmac
from datetime import datetime, timedelta
from hashlib import sha256

from pydantic import Field

from waystation.kernel.identifiers import Identifier
from waystation.kernel.value import EagerValue, Value

MAX_DAYS = 365
DEFAULT_DAYS = 30
MAX_LINKS = 100
"""Maximum links of a task that are stored; those that no longer open anything are deleted first."""
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


class ReportLinkRecord(Value):
    """What the store keeps encrypted of a link. It has no text in which a person may be named."""

    tenant: Identifier
    """Name of the tenant."""
    version: int
    sources: bool
    made_at: datetime
    expires_at: datetime
    revoked_at: datetime | None = None
    digest: Identifier
    """Digest of the secret."""


class SharedReport(Value):
    """A stored link, with the tenant and the digest that its address is checked against."""

    link: ReportLink
    tenant: str
    digest: str

    def matches_secret(self, secret: str) -> bool:
        """Return whether the secret of an address is the link's."""
        return hmac.compare_digest(compute_secret_digest(secret), self.digest)


def compute_secret_digest(secret: str) -> str:
    """Compute the digest of a link's secret."""
    return sha256(secret.encode(errors="replace")).hexdigest()
