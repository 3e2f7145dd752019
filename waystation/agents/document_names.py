"""How the documents of a task are called where agents work and what they did is kept: without private values."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from waystation.agents.restoring import restored
from waystation.domain.documents import Document, DocumentFinder
from waystation.domain.foreign_text import one_line
from waystation.domain.ownership import OfTask
from waystation.domain.privacy import Place
from waystation.domain.redaction import PLACEHOLDER, Redacted, with_placeholders
from waystation.patterns import literals, proven
from waystation.ports import DocumentStore, Redactor, Vault

_SUFFIX = proven(r"\.[A-Za-z][A-Za-z0-9]{0,5}\Z")
_JOINTS = str.maketrans("_-/", "   ")
"""Between words of a file's name: a language model finds nobody in `interview_Ada_Lovelace`."""


@dataclass(frozen=True)
class DocumentNames:
    """The documents of one task, by both of their names."""

    documents: Sequence[Document]
    shown: Mapping[str, str]
    """What agents are told, by the name as handed in."""
    vault: Vault | None
    tenant: str
    session: str = ""
    """What placeholders stand for is found where this session met it, and nowhere else."""
    resolved: set[str] = field(default_factory=set[str])
    """Placeholders that were, so far."""

    def shown_in(self, text: str) -> str:
        """The text with documents called as agents know them."""
        return self._private.sub(lambda name: self._called[name[0]], text) if self._called else text

    @cached_property
    def as_shown(self) -> tuple[Document, ...]:
        """The documents under the names that agents know."""
        return tuple([_under(self.shown[one.name], one) for one in self.documents])

    async def original(self, words: str) -> str:
        """The name as handed in of the document that is called so; of other words, what placeholders in them stand for.

        Raises StoreError, WrongKey.
        """
        if (called := self._as_shown.index(words)) is not None:
            return self.documents[called].name
        if self.vault is None:
            return words
        text = (await restored(words, self.vault, self.tenant, self.session)).text
        self.resolved.update(set(PLACEHOLDER.findall(words)).difference(PLACEHOLDER.findall(text)))
        return text

    def of(self, vault: Vault | None, session: str) -> "DocumentNames":
        """The same names, with what placeholders stand for in this session."""
        return replace(self, vault=vault, session=session, resolved=set[str]())

    @cached_property
    def _as_shown(self) -> DocumentFinder:
        return DocumentFinder(self.as_shown)

    @cached_property
    def _called(self) -> Mapping[str, str]:
        """What private names are called, by how they were handed in and by how tools write that on one line."""
        private = {name: one_line(shown) for name, shown in self.shown.items() if name != shown}
        return {one_line(name): shown for name, shown in private.items()} | private

    @cached_property
    def _private(self) -> re.Pattern[str]:
        """Longer names first: one may be part of another."""
        return literals(sorted(self._called, key=len, reverse=True))


async def document_names(
    documents: Sequence[Document],
    redactor: Redactor,
    tenant: str,
    place: Place = Place.TOOL_RESULT,
) -> DocumentNames:
    """As they are called at this place.

    Names are redacted with and without their suffix: `.eml` hides that `a@example.org.eml` is an address, and `.org` is
    no suffix of it. Raises RedactionFailed.
    """
    names = [one.name for one in documents]
    stems = [*names, *(_SUFFIX.sub("", name) for name in names)]
    redacted = await redactor.redact([stem.translate(_JOINTS) for stem in stems], place, tenant)
    pairs = zip(redacted[: len(names)], redacted[len(names) :], strict=True)
    fuller = [max(pair, key=_covered) for pair in pairs]
    shown = [
        with_placeholders(name, found.spans).text if found.spans else name
        for name, found in zip(names, fuller, strict=True)
    ]
    return DocumentNames(documents, dict(zip(names, shown, strict=True)), None, tenant)


async def told_name(name: str, redactor: Redactor, tenant: str) -> str:
    """What people are told of a document, a page or an agent's result that is called so: redacted as titles are.

    With and without its suffix, as other names of documents. Raises RedactionFailed.
    """
    spaced = name.translate(_JOINTS)
    (whole,) = await redactor.redact([spaced], Place.TITLE, tenant)
    stem = _SUFFIX.sub("", whole.text)
    (without,) = await redactor.redact([stem], Place.TITLE, tenant)
    if without.text != stem:
        return one_line(without.text)
    return one_line(name if whole.text == spaced else whole.text)


@dataclass(frozen=True)
class NamingRedactor:
    """The redactor of one task, for places where more is replaced than where agents work.

    In a text the name of a file counts as code, where names of people are not looked for.
    """

    redactor: Redactor
    documents: DocumentStore
    task: OfTask

    async def redact(self, texts: Sequence[str], place: Place, tenant: str) -> tuple[Redacted, ...]:
        """See `Redactor`; documents are called as at this place. Raises StoreError, too."""
        documents = await self.documents.documents(self.task.task_id, self.task)
        names = await document_names(documents, self.redactor, tenant, place=place)
        return await self.redactor.redact([names.shown_in(text) for text in texts], place, tenant)


def _under(name: str, document: Document) -> Document:
    return document if document.name == name else document.model_copy(update={"name": name})


def _covered(redacted: Redacted) -> int:
    return sum(span.end - span.start for span in redacted.spans)
