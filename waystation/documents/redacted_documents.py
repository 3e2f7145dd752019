"""Documents as agents may see them: their names, texts and tables without private values.

A whole text is redacted once, before any of it is numbered, cut, searched or cited, because recognisers read structures
of several lines: a table's heading, or a key with its value on the next line.
"""

import asyncio
import hashlib
import re
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import cached_property
from typing import Protocol
from weakref import WeakValueDictionary

from waystation.documents.documents import Document, DocumentNameIndex
from waystation.documents.name_redaction import SUFFIX, redact_document_text, redact_names, replace_separators
from waystation.documents.ports import RedactedTextRepository, TableEngine, TextStore
from waystation.documents.table_redaction import RedactedTable, TableRedactor
from waystation.documents.tables import Table, TableText
from waystation.kernel.clock import Clock
from waystation.kernel.errors import RedactionBlockedError
from waystation.kernel.patterns import LinearPattern, compile_literals
from waystation.kernel.refs import RunRef
from waystation.kernel.scopes import TenantScope
from waystation.privacy.policy import (
    PLACEHOLDER_PATTERN,
    UNVERSIONED,
    VAULT_CACHE_LIFETIME,
    RedactedText,
    RedactedTextKey,
    RedactionConfig,
    RedactionResult,
    TextDestination,
    build_redacted_text,
    build_redaction_notes,
    get_redaction_level,
    normalize_line_endings,
    restore_originals,
)
from waystation.privacy.ports import Redactor, Vault
from waystation.security.untrusted import sanitize_line


@dataclass(frozen=True)
class DocumentNames:
    """The documents of one task, by both of their names."""

    documents: Sequence[Document]
    shown_names: Mapping[str, str]
    """Names for agents, by the name as submitted."""
    vault: Vault | None
    tenant: str
    session: str = ""
    """Hash of the session; placeholders are only resolved if it has encountered their values."""
    resolved: set[str] = field(default_factory=set[str])
    """Placeholders that were resolved so far."""

    def replace_private_names(self, text: str) -> str:
        """Replace names of documents in the text by those that agents know."""
        return self._private.sub(lambda name: self._called[name[0]], text) if self._called else text

    @cached_property
    def shown_documents(self) -> tuple[Document, ...]:
        """The documents under the names that agents know."""
        return tuple([_under(self.shown_names[one.name], one) for one in self.documents])

    async def resolve_original_name(self, words: str) -> str:
        """Return the submitted name of the document with this name; for other words, resolve the placeholders in them.

        Raises:
            StoreError: the vault could not be read.
            WrongKey: no available key decrypts an original.
        """
        if (called := self._as_shown.find_position(words)) is not None:
            return self.documents[called].name
        if self.vault is None:
            return words
        found = frozenset(PLACEHOLDER_PATTERN.findall(words))
        if not found:
            return words
        text = restore_originals(words, await self.vault.load_originals(self.tenant, found, self.session)).text
        self.resolved.update(found.difference(PLACEHOLDER_PATTERN.findall(text)))
        return text

    def with_vault(self, vault: Vault | None, session: str) -> "DocumentNames":
        """Return the same names, with placeholders resolved for this session."""
        return replace(self, vault=vault, session=session, resolved=set[str]())

    @cached_property
    def _as_shown(self) -> DocumentNameIndex:
        return DocumentNameIndex(self.shown_documents)

    @cached_property
    def _called(self) -> Mapping[str, str]:
        """Replacements of private names, as they were submitted and as tools write them on one line."""
        private = {name: sanitize_line(shown) for name, shown in self.shown_names.items() if name != shown}
        return {sanitize_line(name): shown for name, shown in private.items()} | private

    @cached_property
    def _private(self) -> LinearPattern | re.Pattern[str]:
        """Longer names first: one may be part of another."""
        longest_first = sorted(self._called, key=len, reverse=True)
        try:
            return LinearPattern("|".join(map(re.escape, longest_first)))
        except ValueError:  # lone surrogates, or more than fits into one program
            return compile_literals(longest_first)


async def build_document_names(
    documents: Sequence[Document],
    redactor: Redactor,
    tenant: str,
    destination: TextDestination = TextDestination.TOOL_RESULT,
) -> DocumentNames:
    """Build the names for this place. See `redact_names`.

    Raises:
        RedactionFailed: a name could not be redacted.
    """
    names = [one.name for one in documents]
    shown = await redact_names(names, redactor, tenant, destination)
    return DocumentNames(documents, dict(zip(names, shown, strict=True)), None, tenant)


async def redact_document_names(
    texts: Sequence[str], documents: Sequence[Document], redactor: Redactor, tenant: str, destination: TextDestination
) -> list[str]:
    """Replace names of documents in the texts by those for this place.

    A task may have thousands: only names that occur in the texts are redacted for it.

    Raises:
        RedactionFailed: a name could not be redacted.
    """
    there = await asyncio.to_thread(_standing_in, texts, documents)
    names = await build_document_names(there, redactor, tenant, destination)
    return [await asyncio.to_thread(names.replace_private_names, text) for text in texts]


def _standing_in(texts: Sequence[str], documents: Sequence[Document]) -> list[Document]:
    spelled = ((one, (one.name, sanitize_line(one.name))) for one in documents)
    return [one for one, names in spelled if any(name in text for name in names for text in texts)]


async def redact_display_name(name: str, redactor: Redactor, tenant: str) -> str:
    """Return the name of a document, a page or an agent's result for people: redacted like titles, with and without its
    suffix as other names of documents.

    Raises:
        RedactionFailed: the name could not be redacted.
    """
    (private,) = await redact_names([name], redactor, tenant, TextDestination.QUESTION)
    words = replace_separators(private)
    (whole,) = await redactor.redact([words], TextDestination.TITLE, tenant)
    stem = SUFFIX.sub("", whole.text)
    (without,) = await redactor.redact([stem], TextDestination.TITLE, tenant)
    if without.text != stem:
        return sanitize_line(without.text)
    return sanitize_line(private if whole.text == words else whole.text)


def _under(name: str, document: Document) -> Document:
    return document if document.name == name else document.replace(name=name)


MAX_WITHHELD_TEXTS = 10_000
"""Maximum texts remembered as not redactable, which this process does not try again."""


class OriginalTextStore(TextStore, RedactedTextRepository, Protocol):
    """Original texts, and what redaction made of them."""


@dataclass(frozen=True)
class RedactedDocumentStore:
    """Redacted documents, pages and stored results, by the content hashes of their originals.

    Each is redacted when it is first shown, line by line, and stored with its original for its tenant and these rules.
    A text that could not be redacted in the permitted number of attempts is not tried again while the process lives.
    """

    store: OriginalTextStore
    redactor: Redactor
    rules: RedactionConfig = UNVERSIONED
    stores_results: bool = True
    """Whether results are stored. False without a vault: no one could restore what is stored."""
    _withheld: dict[RedactedTextKey, RedactedText] = field(
        default_factory=dict[RedactedTextKey, RedactedText], init=False
    )
    _turns: WeakValueDictionary[RedactedTextKey, asyncio.Lock] = field(
        default_factory=WeakValueDictionary[RedactedTextKey, asyncio.Lock], init=False
    )
    """Agents of one task request the same document concurrently: the second finds what the first has stored."""

    async def get_redacted_text(
        self, blob: str, reader: TenantScope, destination: TextDestination = TextDestination.TOOL_RESULT
    ) -> RedactedText:
        """Return the whole text as it may be shown at this place, with as many lines as the original.

        Raises:
            TextNotFoundError: no task that the reader may see has it.
            StoreError: the store did not do its part.
            RedactionFailed: it has to be tried again.
        """
        key = RedactedTextKey(
            blob=blob,
            tenant=reader.tenant,
            level=get_redaction_level(destination, self.rules.policy),
            version=self.rules.version,
        )
        async with self._turns.setdefault(key, asyncio.Lock()):
            return await self.store.get_redacted_text(key, reader) or await self._redacted(key, reader, destination)

    async def build_redaction_notes(
        self, shown: RedactedText | Sequence[RedactionResult], called: str, tenant: str
    ) -> tuple[str, ...]:
        """Return what a person should know about the redaction of a whole text, or of parts of it.

        Args:
            shown: the redacted text, or results of its parts.
            called: name of the text as agents know it.
            tenant: hash of the tenant.

        Raises:
            RedactionFailed: the name could not be redacted.
        """
        parts = shown.results if isinstance(shown, RedactedText) else shown
        named = any(part.timed_out for part in parts)
        return build_redaction_notes(
            *parts, of=await redact_display_name(called, self.redactor, tenant) if named else ""
        )

    async def get_comparison_lines(self, blob: str, reader: TenantScope) -> list[str]:
        """Return its lines for comparison; a single empty line for a text that a person must look at first.

        Raises as `get_redacted_text` does.
        """
        try:
            return (await self.get_redacted_text(blob, reader)).lines
        except RedactionBlockedError:
            return [""]

    async def _redacted(self, key: RedactedTextKey, reader: TenantScope, destination: TextDestination) -> RedactedText:
        original = normalize_line_endings(await self.store.get_text(key.blob, reader))
        if (withheld := self._withheld.get(key)) is not None:
            return withheld
        redacted = await redact_document_text(original, self.redactor, key.tenant, destination)
        shown = build_redacted_text(original, redacted)
        if shown.withheld:
            self._withheld[key] = shown
            if len(self._withheld) > MAX_WITHHELD_TEXTS:
                self._withheld.pop(next(iter(self._withheld)))
        elif self.stores_results:
            await self.store.save_redacted_text(key, shown)
        return shown


MAX_CACHED_CELLS_AND_CHARACTERS = 40_000_000
"""Maximum characters and cells of redacted tables in the cache."""

_Key = tuple[str, str, bytes]


@dataclass(frozen=True)
class RedactedTableReader:
    """Reads tables for calculations and queries: no SQL ever sees a cell in its original form."""

    engine: TableEngine
    columns: TableRedactor
    clock: Clock
    _kept: OrderedDict[_Key, tuple[datetime, RedactedTable]] = field(
        default_factory=OrderedDict[_Key, tuple[datetime, RedactedTable]], init=False
    )

    async def read(self, text: TableText, run: RunRef) -> RedactedTable:
        """Return the text's table. It is redacted once for each session and cached for some minutes.

        Raises:
            TableQueryError: the text is not a table.
            RedactionFailed: it must not be queried.
        """
        key, now = await asyncio.to_thread(_key, text, run), self.clock()
        known = self._kept.get(key)
        if known is None or now - known[0] >= VAULT_CACHE_LIFETIME:
            redacted = await self.columns.redact_table(await self.engine.read(text), run.tenant)
            self._keep(key, now, redacted)
        else:
            redacted = known[1]
        return redacted._replace(table=redacted.table.replace(name=text.name, heading=text.heading))

    def _keep(self, key: _Key, now: datetime, redacted: RedactedTable) -> None:
        self._kept.pop(key, None)
        self._kept[key] = (now, redacted)
        room = MAX_CACHED_CELLS_AND_CHARACTERS - sum(_size(kept.table) for _, kept in self._kept.values())
        while room < 0:
            _, (_, oldest) = self._kept.popitem(last=False)
            room += _size(oldest.table)


def _key(text: TableText, run: RunRef) -> _Key:
    """Return the cache key. The rows do not depend on name and heading; each session has its own entries."""
    same = text.replace(name="", heading=True)
    return run.tenant, run.session, hashlib.sha256(same.model_dump_json().encode("utf-8", "surrogatepass")).digest()


def _size(table: Table) -> int:
    return sum(len(column.codes) + sum(map(len, column.values)) for column in table.columns)
