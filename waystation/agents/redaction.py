"""Redaction for agents: the process-wide `TextRedactor`, task redactors, and restoring of placeholders.

`TextRedactor` stores originals in the vault before the redacted text goes anywhere, counts replacements, bounds
retries, and redacts titles twice. `build_task_redactor` knows one task's documents. Placeholders are restored for
owners, and for tools that are granted it.
"""

import asyncio
import logging
import re
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from datetime import datetime
from types import MappingProxyType
from typing import Literal, NamedTuple, NoReturn, TypeVar

from waystation.agents.ports import Meter
from waystation.context.transcript import Block, Text, ToolUse
from waystation.documents.documents import Document
from waystation.documents.ports import DocumentReader
from waystation.documents.redacted_documents import redact_document_names
from waystation.kernel.clock import Clock
from waystation.kernel.errors import (
    RedactionAbandonedError,
    RedactionBlockedError,
    RedactionFailed,
    RedactionTimeoutError,
    StoreError,
    TextRedactionError,
)
from waystation.kernel.patterns import compile_bounded
from waystation.kernel.scopes import TaskScope
from waystation.kernel.value import ARGUMENTS, is_unusual_name, iter_strings, map_object_strings, text_hash
from waystation.privacy.policy import (
    FINGERPRINT_DIGITS,
    PLACEHOLDER_PATTERN,
    UNREDACTABLE_TYPE,
    VAULT_CACHE_LIFETIME,
    RedactionFailureMode,
    RedactionResult,
    RestoredText,
    Span,
    TextDestination,
    VaultEntry,
    make_failed_redaction,
    restore_originals,
    with_placeholders,
)
from waystation.privacy.ports import Redactor, SlowTextStore, Vault
from waystation.security.placeholders import SECRET

NEVER_STORED_TYPES = frozenset({SECRET})
"""Types of credentials: nothing that is restored ever holds one."""
LENGTHENED_BY = 4
"""Hexadecimal digits (16 bits) added to a placeholder when the shorter one stands for another value."""
MAX_CACHED_PLACEHOLDERS = 100_000

Fingerprint = Callable[[str, str, str], str]
"""Returns 64 hexadecimal digits for tenant, type and value; the placeholder shows the first of them."""


_Redact = Callable[[Sequence[str], TextDestination, str], Awaitable[tuple[RedactionResult, ...]]]
_Value = tuple[str, str, str]


def _no_session() -> str:
    return ""


class _Kept(NamedTuple):
    placeholder: str
    at: datetime


@dataclass(frozen=True)
class VaultPlaceholderFactory:
    """Implements the port `PlaceholderFactory`: originals are stored in the vault.

    If the vault cannot be written, nothing is redacted: no placeholder leaves that could not be restored. A value that
    occurs again costs a hash and no vault access.
    """

    vault: Vault
    fingerprint: Fingerprint
    clock: Clock
    session: Callable[[], str] = _no_session
    """Returns the hash of the session that the current text belongs to; originals are stored for that session."""
    _kept: dict[_Value, _Kept] = field(default_factory=dict[_Value, _Kept], init=False)
    """By tenant, session and fingerprint."""

    async def store_originals(
        self, texts: Sequence[str], results: Sequence[RedactionResult], tenant: str
    ) -> tuple[RedactionResult, ...]:
        """Store the originals and return the results with the vault's placeholders. Raises RedactionFailed."""
        found = [
            [self._original(tenant, span, text) for span in result.spans]
            for text, result in zip(texts, results, strict=True)
        ]
        placeholders = await self._keep(tenant, {one.fingerprint: one for each in found for one in each})
        return tuple(
            _settled(text, result, [placeholders.get(one.fingerprint, one.placeholder) for one in originals])
            for text, result, originals in zip(texts, results, found, strict=True)
        )

    async def make_placeholders(self, type_: str, values: Sequence[str], tenant: str) -> Mapping[str, str]:
        """See `PlaceholderFactory`."""
        found = {value: self._made(tenant, type_, value) for value in values}
        settled = await self._keep(tenant, {one.fingerprint: one for one in found.values()})
        return {value: settled.get(one.fingerprint, one.placeholder) for value, one in found.items()}

    def _made(self, tenant: str, type_: str, value: str) -> VaultEntry:
        fingerprint = self.fingerprint(tenant, type_, value)
        placeholder = f"<{type_}_{fingerprint[:FINGERPRINT_DIGITS]}>"
        return VaultEntry(type=type_, placeholder=placeholder, fingerprint=fingerprint, text=value)

    def _original(self, tenant: str, span: Span, text: str) -> VaultEntry:
        value = text[span.start : span.end]
        fingerprint = self.fingerprint(tenant, span.type, value)
        return VaultEntry(type=span.type, placeholder=span.placeholder, fingerprint=fingerprint, text=value)

    async def _keep(self, tenant: str, originals: Mapping[str, VaultEntry]) -> Mapping[str, str]:
        """Store values and return the vault's placeholders by fingerprint. Credentials are never stored."""
        now, session = self.clock(), self.session()
        known = {one: self._remembered((tenant, session, one), now) for one in originals}
        settled = {one: kept.placeholder for one, kept in known.items() if kept}
        waiting = [
            one for one in originals.values() if one.fingerprint not in settled and one.type not in NEVER_STORED_TYPES
        ]
        while waiting:
            try:
                taken = await self.vault.store_originals(tenant, waiting, session)
            except StoreError as error:
                raise RedactionFailed(
                    f"nothing is sent, because the originals of placeholders cannot be stored: {error}"
                ) from error
            for one in waiting:
                if one.fingerprint not in taken:
                    settled[one.fingerprint] = one.placeholder
                    self._remember((tenant, session, one.fingerprint), _Kept(one.placeholder, now))
            waiting = [_lengthened(one) for one in waiting if one.fingerprint in taken]
        return settled

    def _remembered(self, value: _Value, now: datetime) -> _Kept | None:
        kept = self._kept.get(value)
        return kept if kept is not None and now - kept.at < VAULT_CACHE_LIFETIME else None

    def _remember(self, value: _Value, kept: _Kept) -> None:
        if len(self._kept) >= MAX_CACHED_PLACEHOLDERS:
            self._kept.clear()
        self._kept[value] = kept


def _settled(text: str, result: RedactionResult, placeholders: Sequence[str]) -> RedactionResult:
    if all(span.placeholder == settled for span, settled in zip(result.spans, placeholders, strict=True)):
        return result
    spans = [span.replace(placeholder=settled) for span, settled in zip(result.spans, placeholders, strict=True)]
    return with_placeholders(text, spans).replace(languages_without_names=result.languages_without_names)


def _lengthened(original: VaultEntry) -> VaultEntry:
    label, _, digits = original.placeholder.strip("<>").rpartition("_")
    longer = original.fingerprint[: len(digits) + LENGTHENED_BY]
    return original.replace(placeholder=f"<{label}_{longer}>")


PAID_DESTINATIONS = frozenset({TextDestination.MODEL_OUTPUT, TextDestination.TOOL_ARGUMENT, TextDestination.SUMMARY})
"""Texts that a model was paid for. A new attempt at the work would pay again, so redaction is retried here."""
REQUIRED_DESTINATIONS = frozenset({TextDestination.USER_INPUT, TextDestination.TASK_BRIEF})
"""Texts without which an agent does not know its task."""
MAX_PAUSE_S = 60
MAX_TIMEOUTS = 2

_T = TypeVar("_T")
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class RedactionRetryPolicy:
    """How often redaction of a text is tried: after enough attempts, nothing of the text passes.

    Before that, the redactor's errors are raised, so that the activity waits and is retried. A redactor that is down
    altogether is waited for without end.

    A text that times out delays others each time. It gets two attempts in a row, whatever its destination, and is then
    put aside: under the same rules no worker tries it again, not even after a restart.
    """

    fingerprint: Fingerprint
    slow_texts: SlowTextStore
    """Stores which texts timed out, and how often, across restarts."""
    current_attempt: Callable[[], int]
    """Returns the current attempt at the work. Temporal counts attempts, including those that crashed."""
    max_attempts: int
    failure_mode: RedactionFailureMode
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    """Waits for a number of seconds."""

    _times: dict[str, int] = field(default_factory=dict[str, int], init=False)
    """Time-outs by fingerprint, as this process knows them."""
    _read: asyncio.Event = field(default_factory=asyncio.Event, init=False)

    async def redact_with_retries(
        self, redact: _Redact, texts: Sequence[str], destination: TextDestination, tenant: str
    ) -> tuple[RedactionResult, ...]:
        """See `Redactor`. Also raises RedactionAbandonedError and RedactionBlockedError."""
        if destination in PAID_DESTINATIONS:
            return tuple([await self._paid(redact, text, destination, tenant) for text in texts])
        if self.current_attempt() < self.max_attempts:
            return await self._all(redact, texts, destination, tenant)
        return tuple([await self._last_attempt(redact, text, destination, tenant) for text in texts])

    async def _all(
        self, redact: _Redact, texts: Sequence[str], destination: TextDestination, tenant: str
    ) -> tuple[RedactionResult, ...]:
        if len(texts) > 1 and not await self._any_aside(texts, tenant):
            try:
                return await redact(texts, destination, tenant)
            except RedactionTimeoutError:
                # Only redacting one by one shows which text it was. What was redacted already is instant.
                pass
        return tuple([await self._once(redact, text, destination, tenant) for text in texts])

    async def _any_aside(self, texts: Sequence[str], tenant: str) -> bool:
        times = await self._known()
        return bool(times) and any(times.get(self._key(text, tenant), 0) >= MAX_TIMEOUTS for text in texts)

    async def _last_attempt(
        self, redact: _Redact, text: str, destination: TextDestination, tenant: str
    ) -> RedactionResult:
        try:
            return await self._once(redact, text, destination, tenant)
        except (RedactionAbandonedError, RedactionBlockedError):
            raise
        except TextRedactionError as failed:
            if self.failure_mode == "pause" or destination in REQUIRED_DESTINATIONS:
                self._stop(failed)
            return self._placeholder(text, tenant)

    async def _paid(self, redact: _Redact, text: str, destination: TextDestination, tenant: str) -> RedactionResult:
        failures = pause = 0
        while True:
            try:
                return await self._once(redact, text, destination, tenant)
            except RedactionFailed as failed:
                failures += isinstance(failed, TextRedactionError)
            if failures == self.max_attempts:
                return self._placeholder(text, tenant)
            pause = min(max(1, pause * 2), MAX_PAUSE_S)
            await self.sleep(pause)

    async def _once(self, redact: _Redact, text: str, destination: TextDestination, tenant: str) -> RedactionResult:
        """Redact one text.

        Raises the redactor's errors, except that a timeout is raised only if a person has to act on it.
        """
        times, key, tried = await self._known(), self._key(text, tenant), False
        while times.get(key, 0) < MAX_TIMEOUTS:
            try:
                (redacted,) = await redact([text], destination, tenant)
            except RedactionTimeoutError:
                times[key], tried = await _kept(self.slow_texts.record_timeout(tenant, key)), True
            else:
                return redacted
        if destination not in PAID_DESTINATIONS and (
            self.failure_mode == "pause" or destination in REQUIRED_DESTINATIONS
        ):
            # A person may have acted by the time it comes again.
            await _kept(self.slow_texts.reset_timeouts(tenant, key))
            times.pop(key, None)
            kind = RedactionBlockedError if self.failure_mode == "pause" else RedactionAbandonedError
            raise kind(
                f"a text (for: {destination}) could not be redacted in time in two attempts: submit shorter texts, or "
                "raise the setting redaction_seconds"
            )
        placeholder = make_failed_redaction(text, key, put_aside=True)
        if tried:
            _log.warning(
                "a text (for: %s) could not be redacted in time in two attempts: %s replaces it",
                destination,
                placeholder.text,
            )
        return placeholder

    async def _known(self) -> dict[str, int]:
        """Return the known time-outs.

        Read once: another worker's counts are seen when the text is slow here for the first time.
        """
        if not self._read.is_set():
            self._times.update(await _kept(self.slow_texts.load_slow_texts()))
            self._read.set()
        return self._times

    def _key(self, text: str, tenant: str) -> str:
        # Exact text: in a normalised form, all texts of symbols alone would be the same.
        return self.fingerprint(tenant, UNREDACTABLE_TYPE, text_hash(text))

    def _placeholder(self, text: str, tenant: str) -> RedactionResult:
        return make_failed_redaction(text, self._key(text, tenant))

    def _stop(self, failed: TextRedactionError) -> NoReturn:
        kind = RedactionBlockedError if self.failure_mode == "pause" else RedactionAbandonedError
        raise kind(f"a text could not be redacted in {self.max_attempts} attempts: {failed}") from failed


async def _kept(answer: Awaitable[_T]) -> _T:
    """Await the store's answer. Raises RedactionFailed if the store does not answer, so that the work waits for it."""
    try:
        return await answer
    except StoreError as error:
        raise RedactionFailed(
            f"the list of texts that take too long to redact cannot be read or updated: {error}"
        ) from error


TitlePolicy = Literal["redacted", "none"]
"""Titles show the redacted words of the question and of the plan, or none of them."""
NO_TITLE = "(no title)"
_PERSON = "PERSON"
_WORD = compile_bounded(rf"{PLACEHOLDER_PATTERN.pattern}|[^\W\d_]+")
_HALVES = compile_bounded("[\ud800-\udfff]")
"""Lone surrogates: JSON escapes can produce them, and no encoding can store them."""
_MAX_CODE_LETTERS = 3
"""Words in capitals of up to this many letters keep their spelling."""
_NO_NAMES = compile_bounded(
    "a|about|after|all|an|and|any|are|as|ask|at|be|between|by|call|can|could|did|do|does|draft|find|for|from"
    "|had|has|have|he|her|his|how|if|in|into|is|it|its|me|my|not|of|on|or|our|out|over|said|say|says|she"
    "|should|so|tell|than|that|the|their|them|then|they|this|to|told|up|us|was|we|were|what|when|where|which"
    "|who|whom|whose|why|will|with|would|write|you|your"
)
"""Function words, which keep their spelling: between them a model recognises a name best."""


@dataclass(frozen=True)
class TextRedactor:
    """Implements the port `Redactor` on top of a plain redactor; each field adds one duty.

    With a retry policy it also raises RedactionAbandonedError and RedactionBlockedError.
    """

    redactor: Redactor
    placeholder_factory: VaultPlaceholderFactory | None = None
    """Without it, no replacement can be restored."""
    meter: Meter | None = None
    """Counts replacements, again for a text that is redacted again."""
    retry_policy: RedactionRetryPolicy | None = None
    """Without it, the first failure is raised."""
    titles: TitlePolicy | None = None
    """None: titles are redacted like other texts. Titles are public and too short for a language model, which often
    misses a name that stands alone in lower case or in capitals. Spelled with a capital letter it may be found;
    replacing too much costs little there.
    """

    async def redact(
        self, texts: Sequence[str], destination: TextDestination, tenant: str
    ) -> tuple[RedactionResult, ...]:
        """Redact texts; see `Redactor`. For titles only the text is meaningful: spans do not refer to the given text.

        Lone surrogates in texts of a model or tool become U+FFFD: they can be neither stored nor hashed.
        """
        texts = [_HALVES.sub("\ufffd", text) for text in texts]
        if destination is not TextDestination.TITLE or self.titles is None:
            return await self._tried(texts, destination, tenant)
        if self.titles == "none":
            return tuple([RedactionResult(text=NO_TITLE) for _ in texts])
        once = await self._tried(texts, destination, tenant)
        spelled = await self._tried([_WORD.sub(_as_a_name, one.text) for one in once], destination, tenant)
        return tuple(_without_names(one, again) for one, again in zip(once, spelled, strict=True))

    async def _tried(
        self, texts: Sequence[str], destination: TextDestination, tenant: str
    ) -> tuple[RedactionResult, ...]:
        if self.retry_policy is None:
            return await self._replaced(texts, destination, tenant)
        return await self.retry_policy.redact_with_retries(self._replaced, texts, destination, tenant)

    async def _replaced(
        self, texts: Sequence[str], destination: TextDestination, tenant: str
    ) -> tuple[RedactionResult, ...]:
        results = await self.redactor.redact(texts, destination, tenant)
        if self.placeholder_factory is not None:
            results = await self.placeholder_factory.store_originals(texts, results, tenant)
        if self.meter is not None:
            self.meter.record_redactions(destination, sum(len(result.spans) for result in results))
        return results


def _as_a_name(word: re.Match[str]) -> str:
    written = word[0]
    if _NO_NAMES.fullmatch(written.lower()):
        return written
    spelled = written[0].upper() + written[1:].lower()
    other = written.islower() or (written.isupper() and len(written) > _MAX_CODE_LETTERS)
    return spelled if other and len(spelled) == len(written) else written


def _without_names(once: RedactionResult, again: RedactionResult) -> RedactionResult:
    # A single capitalised word is mistaken for a name too often.
    names = [span for span in again.spans if span.type == _PERSON and " " in once.text[span.start : span.end]]
    if once.redaction_failed or not names:
        return once
    return once.replace(text=with_placeholders(once.text, names).text, spans=())


TOOLS_GRANTED_ORIGINALS: Mapping[str, Set[str]] = MappingProxyType(
    {
        "query_table": {"tables"},
        "read_document": {"name"},
        "read_skill": {"name"},
        "read_skill_file": {"skill", "file"},
        "search_documents": {"query", "more_queries", "document"},
        "take_note": {"document"},
    }
)
"""Tools that may receive originals, by name, and the arguments in which they may: names of documents, and search
queries. No external tool is among them.
"""


async def restore_text_from_vault(text: str, vault: Vault, tenant: str, session: str | None = None) -> RestoredText:
    """Restore the placeholders of a text.

    Args:
        text: Redacted text.
        vault: Store of the originals.
        tenant: Hash of the tenant.
        session: Hash of the session: only what was met there is restored, for use by the session's tools. None:
            everything, for the owner.

    Raises:
        StoreError: The vault does not answer.
        WrongKey: No available key decrypts an entry.
    """
    return restore_originals(
        text, await vault.load_originals(tenant, frozenset(PLACEHOLDER_PATTERN.findall(text)), session)
    )


async def redact_reply(
    blocks: Sequence[Block], redactor: Redactor, tenant: str
) -> tuple[tuple[Block, ...], tuple[RedactionResult, ...]]:
    """Redact a model's reply. Return the blocks to store, and the redactions made.

    Models are shown no originals and still write some: guessed, recited, or decoded from what redaction cannot read.
    Signed reasoning is left as it is: the provider accepts it unchanged or not at all. Raises RedactionFailed.
    """
    words = [block.text for block in blocks if isinstance(block, Text)]
    calls = [block.input for block in blocks if isinstance(block, ToolUse)]
    arguments = [text for call in calls for _, text in iter_strings(call, ARGUMENTS, is_unusual_name)]
    said = await redactor.redact(words, TextDestination.MODEL_OUTPUT, tenant)
    given = await redactor.redact(arguments, TextDestination.TOOL_ARGUMENT, tenant)
    said_texts, given_texts = iter([one.text for one in said]), iter([one.text for one in given])
    return tuple([_kept_words(block, said_texts, given_texts) for block in blocks]), (*said, *given)


def _kept_words(block: Block, said: Iterator[str], given: Iterator[str]) -> Block:
    if isinstance(block, Text):
        return block.replace(text=next(said))
    if isinstance(block, ToolUse):
        # `map_object_strings` visits the texts in the order in which `iter_strings` yielded them.
        return block.replace(input=map_object_strings(block.input, lambda _: next(given), is_unusual_name))
    return block


@dataclass(frozen=True)
class _TaskRedactor:
    redactor: Redactor
    documents: Sequence[Document]

    async def redact(
        self, texts: Sequence[str], destination: TextDestination, tenant: str
    ) -> tuple[RedactionResult, ...]:
        """Redact texts with the names that documents have at this destination; see `Redactor`."""
        called = await redact_document_names(texts, self.documents, self.redactor, tenant, destination)
        return await self.redactor.redact(called, destination, tenant)


def build_task_redactor(redactor: Redactor, documents: Sequence[Document]) -> Redactor:
    """Build a redactor that knows one task's documents, for places where more is replaced than where agents work.

    In a text, the name of a file counts as code, in which names of people are not searched for.

    Args:
        redactor: Redactor of this process.
        documents: The task's documents, read when the texts are known or later.
    """
    return _TaskRedactor(redactor, documents)


async def load_task_redactor(redactor: Redactor, store: DocumentReader, task: TaskScope) -> Redactor:
    """Build the redactor of a task, whose documents are read now. Raises StoreError."""
    return build_task_redactor(redactor, await store.list_documents(task.task_id, task))
