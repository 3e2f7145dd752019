"""Tools for documents: list, search and read them, read procedures and their files, and read stored results."""

import asyncio
import sys
from collections.abc import Container, Mapping, Sequence
from difflib import get_close_matches
from itertools import zip_longest
from typing import Annotated

from pydantic import Field

from waystation.agents.ports import AgentTaskReader
from waystation.agents.task_brief import parse_procedures, render_procedure
from waystation.agents.tool_visibility import FIRST, SOON, make_urgency
from waystation.agents.tools.tool import (
    ToolCallRejectedError,
    ToolContext,
    ToolInput,
    TypedTool,
    find_slice_end,
    load_redacted_lines,
    render_text_slice,
    select_page_lines,
)
from waystation.context.history import build_model_view
from waystation.context.transcript import ToolResult, Transcript
from waystation.documents.documents import REMOVED_NAME, Document, DocumentMatch, ShownDocument, find_document_by_name
from waystation.documents.ports import DocumentReader, DocumentSearch
from waystation.documents.procedures import Procedure
from waystation.documents.redacted_documents import RedactedDocumentStore, build_document_names
from waystation.kernel.errors import TextNotFoundError
from waystation.kernel.patterns import compile_bounded
from waystation.kernel.text import format_count
from waystation.privacy.policy import find_cut_position
from waystation.privacy.ports import Redactor
from waystation.security.untrusted import escape_tags, sanitize_line, wrap_untrusted


class ListDocumentsInput(ToolInput):
    """Part of the list of documents."""

    first: int = Field(default=1, ge=1, description="Number of the first document to list.")
    count: int = Field(default=100, ge=1, le=200, description="How many documents to list.")


class ListDocumentsTool(TypedTool[ListDocumentsInput]):
    """Lists documents with lines and sizes."""

    name = "list_documents"
    description = (
        "Lists the task's documents. Use it if the first message does not name them all, or after they changed. "
        "Returns names and sizes. Not for contents."
    )
    rereadable = True
    urgency = make_urgency(FIRST, SOON)
    input_model = ListDocumentsInput

    def __init__(self, store: DocumentReader) -> None:
        self._store = store

    async def run(self, arguments: ListDocumentsInput, ctx: ToolContext) -> str:
        """One line a document, and where to go on."""
        documents = await ctx.list_documents(self._store)
        start = arguments.first - 1
        lines = [_line(document) for document in documents[start : start + arguments.count]]
        taken, _ = select_page_lines(lines, ctx.page_characters)
        shown = start + len(taken)
        if not documents:
            return "The task has no documents."
        if not taken:
            return (
                f"The task has {format_count(len(documents), 'document')}; none has number {arguments.first} or higher."
            )
        rest = [f"the list continues at number {shown + 1} of {len(documents)}"] if shown < len(documents) else []
        return "\n".join([*taken, *rest])


def _line(document: Document) -> str:
    lines, characters = format_count(document.lines, "line"), format_count(document.characters, "character")
    size = f"{lines}, {characters}{document.date_suffix}"
    return f"{sanitize_line(document.name)} ({REMOVED_NAME if document.removed else size})"


LINES_A_PAGE = 200
"""Minimum lines of a page that is not full; a page that grows with the window has more."""
_CHARACTERS_A_LINE = 60
LINE_CHARACTERS = 2_000
"""Characters of a line that are shown; the rest of a longer line is read separately, so that no line
fills the window.
"""


class ReadDocumentInput(ToolInput):
    """Lines of a document."""

    name: str = Field(description="Exactly as listed or cited.")
    first_line: int = Field(default=1, ge=1, description="First line.")
    last_line: int | None = Field(default=None, ge=1, description="Default: as many as fit.")
    first_character: int = Field(
        default=1, ge=1, description=f"First character, in a line over {LINE_CHARACTERS:,} characters."
    )


class ReadDocumentTool(TypedTool[ReadDocumentInput]):
    """Reads a range of lines."""

    name = "read_document"
    description = (
        "Reads lines of a document. Use it for a whole short document, or for the lines around a passage. "
        "Returns a page of numbered lines, to cite as [document:first-last]. Not for finding words: "
        "search_documents."
    )
    rereadable = True
    originals = frozenset({"name"})
    urgency = make_urgency(FIRST)
    input_model = ReadDocumentInput

    def __init__(self, store: DocumentReader, redacted: RedactedDocumentStore) -> None:
        self._store, self._redacted = store, redacted

    async def run(self, arguments: ReadDocumentInput, ctx: ToolContext) -> str:
        """A header, numbered lines, and where to go on."""
        document = find_document(arguments.name, await ctx.list_documents(self._store))
        if arguments.first_line > document.lines:
            raise ToolCallRejectedError(
                f"{sanitize_line(document.name)} has {format_count(document.lines, 'line')}; there is no line "
                f"{arguments.first_line}."
            )
        if arguments.last_line is not None and arguments.last_line < arguments.first_line:
            raise ToolCallRejectedError("last_line is before first_line.")
        lines = await load_redacted_lines(self._redacted, document.blob, document.name, ctx)
        line = lines[arguments.first_line - 1]
        if arguments.first_character > 1 or (
            arguments.last_line == arguments.first_line and len(line) > LINE_CHARACTERS
        ):
            return _within_line(document, arguments, line, ctx)
        most = max(LINES_A_PAGE, ctx.page_characters // _CHARACTERS_A_LINE)
        last = min(arguments.last_line or document.lines, arguments.first_line + most - 1, document.lines)
        # Before lines are numbered: a tag may start on one line and end on another.
        shown_ones = escape_tags("\n".join(map(_cut, lines[arguments.first_line - 1 : last]))).split("\n")
        numbered = [f"{number}| {line}" for number, line in enumerate(shown_ones, arguments.first_line)]
        taken, _ = select_page_lines(numbered, ctx.page_characters)
        shown = arguments.first_line + len(taken) - 1
        header = f"{sanitize_line(document.name)}, lines {arguments.first_line}-{shown} of {document.lines}"
        wanted = min(arguments.last_line or document.lines, document.lines)
        return "\n".join([header, *taken, *([f"continues at line {shown + 1}"] if shown < wanted else [])])


FILE_READING_TOOLS = {ReadDocumentTool.name: "name"}
"""Tools that read files, with the argument that names the file."""


def find_document(name: str, documents: tuple[Document, ...]) -> Document:
    """Find a document by name.

    Raises:
        ToolCallRejectedError: There is none, and the message names the closest ones; or it was removed.
    """
    if document := find_document_by_name(name, documents):
        called = sanitize_line(document.name)
        if document.removed:
            raise ToolCallRejectedError(f"{called} was {REMOVED_NAME}: it is no longer evidence. Go on without it.")
        return document
    close = get_close_matches(name, [document.name for document in documents], n=3)
    hint = f"Did you mean {', '.join(map(sanitize_line, close))}?" if close else "list_documents names all documents."
    raise ToolCallRejectedError(f"There is no document {name!r}. {hint}")


def _within_line(document: Document, arguments: ReadDocumentInput, line: str, ctx: ToolContext) -> str:
    """Return a part of one long line, and where it continues. Raises ToolCallRejectedError."""
    number, first = arguments.first_line, arguments.first_character
    if first > max(1, len(line)):
        raise ToolCallRejectedError(
            f"Line {number} has {len(line):,} characters; character {first:,} is beyond its end."
        )
    head = (
        f"{sanitize_line(document.name)}, line {number} of {document.lines}: {len(line):,} characters, shown from "
        f"character {first:,}"
    )
    start = find_cut_position(line, first - 1)
    end = find_slice_end(line, start, ctx)
    rest = [_GOES_ON.format(number=number, character=end + 1)] if end < len(line) else []
    return "\n".join([head, f"{number}| {escape_tags(line[start:end])}", *rest])


_GOES_ON = "line {number} continues at first_character {character}"


def _cut(line: str) -> str:
    if len(line) <= LINE_CHARACTERS:
        return line
    end = find_cut_position(line, LINE_CHARACTERS)
    return f"{line[:end]} … ({len(line):,} characters in all; read this line alone from first_character {end + 1})"


class ReadSkillInput(ToolInput):
    """Name of a procedure."""

    name: str = Field(min_length=1, max_length=300, description="As listed.")


class ReadSkillTool(TypedTool[ReadSkillInput]):
    """Shows a whole procedure."""

    name = "read_skill"
    description = (
        "Shows a procedure of the user. Use it before you do what the procedure's description names, and follow "
        "the procedure as far as it fits your step. Returns its text. Not for evidence: never cite a procedure."
    )
    rereadable = True
    originals = frozenset({"name"})
    urgency = make_urgency(FIRST)
    input_model = ReadSkillInput

    def __init__(self, store: AgentTaskReader) -> None:
        self._store = store

    async def run(self, arguments: ReadSkillInput, ctx: ToolContext) -> str:
        """Return its text in its tag."""
        return render_procedure(
            await _procedure(arguments.name, ctx.get_argument_with_placeholders("name"), self._store, ctx)
        )


async def _procedure(name: str, written: str, store: AgentTaskReader, ctx: ToolContext) -> Procedure:
    """Find a procedure by its own name, or that of its file or folder. Raises ToolCallRejectedError.

    The name as the model wrote it is tried, too: a document of a similar name may have replaced it.
    """
    found = parse_procedures(await store.get_task(ctx.run.task_id, ctx.run.scope))
    known = [one for one in found if isinstance(one, Procedure)]
    for one in known:
        if {name, written} & {one.name, one.document}:
            return one
    names = ", ".join(one.name for one in known)
    raise ToolCallRejectedError(f"There is no procedure {name!r}. The procedures are: {names or 'none'}.")


class ReadSkillFileInput(ToolInput):
    """File of a skill."""

    skill: str = Field(min_length=1, max_length=300, description="As listed.")
    file: str = Field(min_length=1, max_length=300, description="As read_skill names it.")


class ReadSkillFileTool(TypedTool[ReadSkillFileInput]):
    """Shows a whole file; of a long one the toolbox shows the beginning, and how to read on."""

    name = "read_skill_file"
    description = (
        "Shows a file of a procedure. Use it if the procedure refers to the file. Returns the file's text. Not for "
        "running scripts: they can only be read."
    )
    rereadable = True
    originals = frozenset({"skill", "file"})
    urgency = make_urgency(SOON)
    input_model = ReadSkillFileInput

    def __init__(self, store: AgentTaskReader) -> None:
        self._store = store

    async def run(self, arguments: ReadSkillFileInput, ctx: ToolContext) -> str:
        """Return its text in its tag."""
        skill = await _procedure(arguments.skill, ctx.get_argument_with_placeholders("skill"), self._store, ctx)
        wanted = {name.removeprefix("./") for name in (arguments.file, ctx.get_argument_with_placeholders("file"))}
        for file in skill.files:
            if file.name in wanted:
                return wrap_untrusted(
                    "procedure", file.text, name=sanitize_line(skill.name), file=sanitize_line(file.name)
                )
        names = ", ".join(sanitize_line(file.name) for file in skill.files)
        raise ToolCallRejectedError(
            f"The procedure {sanitize_line(skill.name)} has no file {arguments.file!r}. Its files are: "
            f"{names or 'none'}."
        )


class ReadStoredInput(ToolInput):
    """Position in a stored result."""

    id: str = Field(description="The whole id that the shortened result names.")
    first: int = Field(default=0, ge=0, description="First character.")


class ReadStoredResultTool(TypedTool[ReadStoredInput]):
    """Reads a page of a stored result."""

    name = "read_stored"
    description = (
        "Shows more of a result that was too large to be shown whole. Use it if the part shown is not enough. "
        "Returns a page of the result. Not for documents: use read_document, which gives lines to cite."
    )
    rereadable = True
    urgency = make_urgency(SOON, FIRST)
    input_model = ReadStoredInput

    def __init__(self, redacted: RedactedDocumentStore) -> None:
        self._redacted = redacted

    async def run(self, arguments: ReadStoredInput, ctx: ToolContext) -> str:
        """Return the page, and where to continue."""
        try:
            text = "\n".join(await load_redacted_lines(self._redacted, arguments.id, "This result", ctx))
        except TextNotFoundError as error:
            raise ToolCallRejectedError(
                f"Nothing is stored under {arguments.id!r}. Use the whole id that the shortened result names."
            ) from error
        if arguments.first >= len(text):
            raise ToolCallRejectedError(
                f"This result has {len(text):,} characters; character {arguments.first:,} is beyond its end."
            )
        return render_text_slice(text, arguments.first, ctx)


MAX_MORE_QUERIES = 7
MAX_PASSAGES, MIN_DEFAULT_PASSAGES, PASSAGES_A_QUERY = 40, 10, 5
"""Maximum passages of a search, and how many it returns unless its call says so."""
MAX_REDACTION_ROUNDS = 5
"""Maximum rounds in which the documents of the best hits are redacted, before the passages found so far
must suffice.
"""


class SearchDocumentsInput(ToolInput):
    """Queries and the documents to search."""

    query: str = Field(
        min_length=1, max_length=1_000, description="Two to five words that the source would use, or a question."
    )
    more_queries: tuple[Annotated[str, Field(min_length=1, max_length=1_000)], ...] = Field(
        default=(),
        max_length=MAX_MORE_QUERIES,
        description="Other words for the same point, or other points.",
    )
    limit: int | None = Field(
        default=None,
        ge=1,
        le=MAX_PASSAGES,
        description="Number of passages for all queries together. Default: 5 per query, at least 10.",
    )
    document: str = Field(default="", description="The only document to search.")
    first_document: int = Field(
        default=1, ge=1, description="To search a part of the list: number of the first document."
    )
    last_document: int | None = Field(default=None, ge=1, description="Number of the last document.")


class SearchDocumentsTool(TypedTool[SearchDocumentsInput]):
    """Search by words, meaning and names, best passages first, with their line ranges."""

    name = "search_documents"
    description = (
        "Searches the documents by words, meaning and names. Use it first if they are long, with several queries in "
        "one call. Returns the best passages, each headed by its citation; a passage still in your "
        "context is listed by its citation only. Not for reading on: use read_document."
    )
    rereadable = True
    originals = frozenset({"query", "more_queries", "document"})
    urgency = make_urgency(FIRST)
    input_model = SearchDocumentsInput

    def __init__(
        self, search: DocumentSearch, store: DocumentReader, redactor: Redactor, redacted: RedactedDocumentStore
    ) -> None:
        self._search, self._store, self._redactor, self._redacted = search, store, redactor, redacted

    async def run(self, arguments: SearchDocumentsInput, ctx: ToolContext) -> str:
        """Return one block per passage; of a passage that the agent still sees, only its place."""
        among = await self._find_numbers(arguments, ctx)
        original = (arguments.query, *arguments.more_queries)
        written = (ctx.get_argument_with_placeholders("query"), *ctx.get_arguments_with_placeholders("more_queries"))
        # Original documents contain what placeholders stand for; documents as shown contain the placeholders.
        queries = [
            " ".join(dict.fromkeys(filter(None, both)))
            for both in zip_longest(original, written[: len(original)], fillvalue="")
        ]
        limit = arguments.limit or max(MIN_DEFAULT_PASSAGES, PASSAGES_A_QUERY * len(original))
        found = [await self._found(query, limit, among, ctx) for query in dict.fromkeys(queries)]
        # The best passages of each query come before the second-best of any.
        ranked = (hit for rank in zip_longest(*found) for hit in rank if hit is not None)
        hits = [*{(hit.name, hit.first_line, hit.first_character): hit for hit in ranked}.values()][:limit]
        if not hits:
            return "No passage matches. Try other words, or list_documents."
        seen = await asyncio.to_thread(SeenPassageIndex, ctx.transcript)
        called = await self._name(hits, ctx)
        blocks = [_render_hit(hit, is_seen=seen.has_passage(called[hit.name], hit)) for hit in hits]
        taken, whole = select_page_lines(blocks, ctx.page_characters)
        return "\n".join(
            taken if whole else [*taken, f"{format_count(len(hits) - len(taken), 'more passage')}; narrow the query"]
        )

    async def _find_numbers(self, arguments: SearchDocumentsInput, ctx: ToolContext) -> Container[int]:
        """Return the numbers of the documents to search. Raises ToolCallRejectedError."""
        last = arguments.last_document
        among = range(arguments.first_document, last + 1 if last is not None else sys.maxsize)
        if not arguments.document:
            return among
        documents = await ctx.list_documents(self._store)
        number = documents.index(find_document(arguments.document, documents)) + 1
        if number not in among:
            raise ToolCallRejectedError(
                f"This document has number {number}, outside the range: leave out first_document and last_document."
            )
        return (number,)

    async def _found(self, query: str, limit: int, among: Container[int], ctx: ToolContext) -> Sequence[DocumentMatch]:
        """Search the documents as shown: a hit on a redacted word would confirm it.

        Documents with hits that are not redacted yet are redacted now and searched again.
        """
        hits = await self._search.search(ctx.run.scope, query, limit, among, ctx.documents)
        for _ in range(MAX_REDACTION_ROUNDS):
            if all(hit.is_redacted for hit in hits):
                break
            await self._search.index_redacted_texts(ctx.run.task_id, await self._shown(hits, ctx))
            hits = await self._search.search(ctx.run.scope, query, limit, among, ctx.documents)
        return [hit for hit in hits if hit.is_redacted]

    async def _name(self, hits: Sequence[DocumentMatch], ctx: ToolContext) -> Mapping[str, str]:
        """Return the names by which the agent knows the documents of the hits."""
        found = {hit.name for hit in hits}
        documents = [one for one in await ctx.list_documents(self._store) if one.name in found]
        return (await build_document_names(documents, self._redactor, ctx.run.tenant)).shown_names

    async def _shown(self, hits: Sequence[DocumentMatch], ctx: ToolContext) -> Sequence[ShownDocument]:
        called = await self._name(hits, ctx)
        shown: list[ShownDocument] = []
        for blob, name in dict.fromkeys((hit.blob, hit.name) for hit in hits if not hit.is_redacted):
            text = await self._redacted.get_redacted_text(blob, ctx.run.scope)
            ctx.notes.extend(await self._redacted.build_redaction_notes(text, name, ctx.run.tenant))
            shown.append(ShownDocument(blob=blob, name=name, shown_name=called.get(name, name), text=text.text))
        return shown


SEEN = "You see this passage above."
"""Stands in the place of a passage that the agent was shown before and still sees."""


def _render_hit(hit: DocumentMatch, *, is_seen: bool) -> str:
    return f"[{sanitize_line(hit.name)}:{hit.first_line}-{hit.last_line}]{hit.citation_suffix}\n" + (
        f"{SEEN}\n" if is_seen else f"{escape_tags(hit.text)}\n"
    )


class SeenPassageIndex:
    """Passages in results that the agent still sees: in full, not masked, and not hidden by a compaction or a rewind.

    It follows from the conversation alone, so an attempt after a crash marks the same passages.
    """

    def __init__(self, transcript: Transcript) -> None:
        view = build_model_view(transcript)
        called = {call.id: call.name for message in view for call in message.tool_uses}
        results = [
            (called.get(block.tool_use_id), block.content)
            for message in view
            for block in message.blocks
            if isinstance(block, ToolResult) and not block.is_error
        ]
        self._found = [content for name, content in results if name == SearchDocumentsTool.name]
        self._pages = [page for name, content in results if name == ReadDocumentTool.name and (page := _page(content))]

    def has_passage(self, shown_name: str, hit: DocumentMatch) -> bool:
        """Return whether a hit stands in them. `shown_name`: by which the agent knows its document."""
        called = sanitize_line(shown_name)
        block = _render_hit(hit.replace(name=shown_name), is_seen=False)
        if any(block in content or content.endswith(block.rstrip("\n")) for content in self._found):
            return True
        # A long line is cut on a page, and its parts are shown by themselves.
        return not hit.first_character and any(
            name == called and first <= hit.first_line and hit.last_line <= last for name, first, last in self._pages
        )


def _page(content: str) -> tuple[str, int, int] | None:
    """Return document and lines of a page of `read_document`; None if it is a part of a line."""
    header = _PAGE_HEADER.match(content.partition("\n")[0])
    return (header[1], int(header[2]), int(header[3])) if header else None


_PAGE_HEADER = compile_bounded(r"\A(.+), lines (\d{1,9})-(\d{1,9}) of \d{1,9}")
