"""Tables of documents as agents may query them: read by the engine, redacted by column, and kept for a while."""

import asyncio
import hashlib
from collections import OrderedDict
from dataclasses import dataclass, field
from datetime import datetime

from waystation.agents.columns import ColumnRedactor, RedactedTable
from waystation.agents.redaction import TRUSTED_FOR
from waystation.domain.leg import RunRef
from waystation.domain.tables import Table, TableText
from waystation.ports import Clock, TableEngine

MOST_KEPT = 40_000_000
"""Characters and cells of tables that are kept redacted."""

_Key = tuple[str, str, bytes]


@dataclass(frozen=True)
class Tables:
    """What calculates and queries tables: no SQL ever sees a cell as it was written."""

    engine: TableEngine
    columns: ColumnRedactor
    clock: Clock
    _kept: OrderedDict[_Key, tuple[datetime, RedactedTable]] = field(
        default_factory=OrderedDict[_Key, tuple[datetime, RedactedTable]], init=False
    )

    async def read(self, text: TableText, run: RunRef) -> RedactedTable:
        """The text's table. A session redacts the same text once in some minutes.

        Raises:
            QueryRefused: it is no table.
            RedactionFailed: nobody may query it.
        """
        key, now = await asyncio.to_thread(_key, text, run), self.clock()
        known = self._kept.get(key)
        if known is None or now - known[0] >= TRUSTED_FOR:
            redacted = await self.columns.redacted(await self.engine.read(text), run.tenant)
            self._keep(key, now, redacted)
        else:
            redacted = known[1]
        called = {"name": text.name, "heading": text.heading}
        return redacted._replace(table=redacted.table.model_copy(update=called))

    def _keep(self, key: _Key, now: datetime, redacted: RedactedTable) -> None:
        self._kept.pop(key, None)
        self._kept[key] = (now, redacted)
        room = MOST_KEPT - sum(_size(kept.table) for _, kept in self._kept.values())
        while room < 0:
            _, (_, oldest) = self._kept.popitem(last=False)
            room += _size(oldest.table)


def _key(text: TableText, run: RunRef) -> _Key:
    """What is read does not depend on name and heading; and each session has seen for itself what it sees."""
    same = text.model_copy(update={"name": "", "heading": True})
    return run.tenant, run.session, hashlib.sha256(same.model_dump_json().encode("utf-8", "surrogatepass")).digest()


def _size(table: Table) -> int:
    return sum(len(column.codes) + sum(map(len, column.values)) for column in table.columns)
