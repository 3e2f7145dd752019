"""The research agent: searches, reads around the hits, quotes, and submits the quotations; its memory is its notes.

Large sets of documents are divided among subagents.
"""

import json
import re
from collections import Counter
from collections.abc import Iterator, Sequence, Set
from itertools import groupby, pairwise, zip_longest

from pydantic import JsonValue

from waystation.kernel.patterns import compile_bounded
from waystation.kernel.text import format_count
from waystation.plugins.offline.agent_request import AgentRequestView, ToolCallRecord, format_document_range
from waystation.plugins.offline.language import (
    ASIDE,
    STOP_WORDS,
    QueryTerm,
    apply_idf_weights,
    build_stem_set,
    compute_stem,
    extract_proper_names,
    extract_query_terms,
    is_about_every_document,
    is_number_or_date_question,
    iter_words,
    normalize_question,
    truncate_at_word,
)
from waystation.plugins.offline.quotes import (
    QUOTED,
    LineRange,
    NoteRecord,
    format_document_label,
    parse_note_list,
    parse_search_hits,
    parse_subagent_notes,
    parse_summary_notes,
    parse_taken_note,
    read_lines,
    score_quotation,
    select_best_quotes,
)
from waystation.plugins.offline.responses import (
    CHARACTERS_A_TOKEN,
    OfflineResponse,
    OfflineToolCall,
    build_call,
    build_finding,
    characters_to_tokens,
)

MANY_DOCUMENTS = 200
"""From this number on, a research agent may have subagents read them."""
PARTS = 4
PERCENT = 20
"""Share of the budget for each subagent; the rest is for submitting."""
MIN_PART_TOKENS = 12_000
"""Minimum tokens of budget and of text for each subagent.

With less budget they would submit, or request more, before reading anything; with less text, their messages would cost
more than their reading.
"""
LISTED = 100
"""Number of documents whose sizes are checked; the others are assumed to be similar."""
READ_CHARACTERS = 3_000
"""Maximum characters read of one document: its beginning, or the text around a hit."""
GOAL_CHARACTERS = 4_000
_MORE = compile_bounded(r'expand with id "([^"]+)" shows all of them')
_CONTINUES = compile_bounded(r"continues at character (\d[\d,]{0,15})")
_SUBAGENT, _PARTIAL = "<subagent ", 'state="partial">'
_SIZE = compile_bounded(r"^.+ \([\d,]+ lines?, (\d[\d,]{0,15}) characters?(?:, dated [^()\n]{1,40})?\)$", re.MULTILINE)


def has_delegated(view: AgentRequestView) -> bool:
    """Return whether subagents have done the reading."""
    return any(not asked.failed for asked in view.calls("delegate"))


def list_unfinished_parts(view: AgentRequestView) -> tuple[str, ...]:
    """Return the ranges of documents that their subagents did not finish."""
    return tuple(asked.text("title") for asked in view.calls("delegate") if _is_partial(asked.result))


def _is_partial(result: str) -> bool:
    opening = result.partition("\n")[0]
    return opening.startswith(_SUBAGENT) and _PARTIAL in opening[len(_SUBAGENT) :]


def build_delegation_turn(view: AgentRequestView) -> OfflineResponse | None:
    """Check the sizes of many documents, start the subagents, then fetch the rest of their results.

    None: all of that is done, there is little to read, or no subagent can be started.
    """
    if has_delegated(view):
        return _expansion(view)
    listed = view.calls("list_documents")
    many = view.brief.last_document is None and view.brief.document_count >= MANY_DOCUMENTS
    rich = view.remaining_tokens is None or view.remaining_tokens * PERCENT // 100 >= MIN_PART_TOKENS
    begins = len(view.exchanges) == len(listed) and not view.gap
    if not (many and rich and begins and {"delegate", "list_documents"} <= view.tools):
        return None
    if not listed:
        sizes = build_call("list_documents", first=1, count=LISTED)
        return OfflineResponse(text="There are many documents, so I check how long they are.", calls=(sizes,))
    return _delegation(view) if _to_read(view, listed[0].result) >= PARTS * MIN_PART_TOKENS else None


def _to_read(view: AgentRequestView, page: str) -> int:
    """Estimate the tokens of reading all documents from those on a page of the list."""
    read = [min(int(size.replace(",", "")), READ_CHARACTERS) for size in _SIZE.findall(page)]
    return characters_to_tokens(sum(read) * view.brief.document_count // max(1, len(read)))


def _delegation(view: AgentRequestView) -> OfflineResponse:
    count = view.brief.document_count
    bounds = [count * part // PARTS for part in range(PARTS + 1)]
    calls = tuple(
        build_call(
            "delegate",
            role="research",
            title=f"Documents {first + 1} to {last}",
            goal=truncate_at_word(view.brief.goal or view.brief.question, GOAL_CHARACTERS),
            context=format_document_range(first + 1, last),
            budget_percent=PERCENT,
        )
        for first, last in pairwise(bounds)
    )
    return OfflineResponse(text="There is much to read, so I divide the documents.", calls=calls)


def _expansion(view: AgentRequestView) -> OfflineResponse | None:
    """Fetch the rest of results that were too long to be shown, in parallel."""
    seen = {(made.text("id"), made.number("first")): made.result for made in view.calls("expand")}
    calls: list[OfflineToolCall] = []
    for name in (found[1] for made in view.calls("delegate") if (found := _MORE.search(made.result))):
        first = 0
        # Untrusted text in a result may claim that it continues where it began.
        while (after := _continues(seen.get((name, first), ""))) > first:
            first = after
        if (name, first) not in seen:
            calls.append(build_call("expand", id=name, first=first))
    return OfflineResponse(text="I read what was left out.", calls=tuple(calls)) if calls else None


def _continues(result: str) -> int:
    """Return the character at which it continues; 0 if it does not."""
    more = _CONTINUES.search(result)
    return int(more[1].replace(",", "")) if more else 0


ENOUGH_DOCUMENTS = 30
ENOUGH_OF_EVERY = 150
"""Number of noted documents that suffices if the question is about every document."""
READS_A_TURN = 3
LINES_BEFORE, LINES_AFTER = 4, 16
HEAD_LINES = 30
SEARCH_LIMIT, FRUGAL_SEARCH_LIMIT = 40, 10
MAX_SEARCHES = 4
WORDS_A_QUERY = 8
NOTES_A_PAGE = 50
MAX_UNQUOTED_NAMES = 5
"""Maximum number of documents named as not quoted."""
OPEN_QUESTIONS_CHARACTERS = 400
"""Characters reserved for open questions in a submission."""
EXCEPTIONS_TITLE = "Exceptions, limits and gaps"
MAX_PLACES, MAX_QUOTES_PER_NAMED = 32, 4
"""Maximum places read of a document that the question names, and quotations of it."""
MAX_NAMED_DOCUMENTS = 3
"""Maximum number of documents named in the question that are searched separately."""
TABLE_WORDS = (("consolidated", "statements", "millions"), ("total",))
_OF_PART = "first_document", "last_document"
NAMED = 2.0
"""Weight of a quotation of a named document, relative to one of another document."""
_IN_NAME = compile_bounded(r"[^\W_]+")
TELLING = 0.2
"""Minimum score of a submitted quotation, as a share of the best one's."""
FRUGAL_BELOW = 12_000
"""With fewer tokens of budget left, read one document at a time, and search for few passages."""


def match_document_names(text: str, documents: Sequence[str]) -> dict[str, frozenset[str]]:
    """Return the documents whose names a text has, nearest first, each with the matching words: for
    `EBAY_2022_10K.pdf`, "eBay".

    A name may be several words in the text ("Best Buy"). Words in most documents' names distinguish none of them.
    """
    said = list(iter_words(text))
    runs = {
        "".join(run): run for size in (1, 2, 3) for at in range(len(said)) if len(run := said[at : at + size]) == size
    }
    own = {name: frozenset(_IN_NAME.findall(format_document_label(name).casefold())) for name in documents}
    counts = Counter(word for parts in own.values() for word in parts)
    telling = {
        word for word in runs if not word.isdecimal() and word not in STOP_WORDS and counts[word] * 2 <= len(own)
    }
    named = [name for name in own if own[name] & telling]
    named.sort(key=lambda name: -len(own[name] & runs.keys()))
    return {name: frozenset(one for word in own[name] & telling for one in (word, *runs[word])) for name in named}


def build_research_turn(view: AgentRequestView) -> OfflineResponse:
    """Build the next turn of a research agent."""
    return ResearchTurnBuilder(view).next_turn()


class ResearchTurnBuilder:
    """Decides on one request of a research agent."""

    def __init__(self, view: AgentRequestView) -> None:
        self._view = view
        goal = extract_query_terms(view.brief.goal)
        self._looked_for: Sequence[QueryTerm] = goal or extract_query_terms(view.brief.question)
        asked = f"{view.brief.goal} {view.brief.question}"
        self._named = {**match_document_names(asked, view.brief.documents), **self._told_of()}
        self._names = frozenset[str]().union(*self._named.values())
        self._own = extract_query_terms(view.brief.question) if view.brief.goal.startswith(EXCEPTIONS_TITLE) else ()
        self._every_document = is_about_every_document(view.brief.goal)
        self._beginnings = self._every_document or is_about_every_document(view.brief.question)
        self._enough = ENOUGH_OF_EVERY if self._beginnings else ENOUGH_DOCUMENTS
        self._notes = tuple(dict.fromkeys(_visible_notes(view)))
        self._noted = frozenset(note.place.document for note in self._notes)

    def next_turn(self) -> OfflineResponse:
        """Return the turn: first read notes that may be hidden; delegate if there is much to read; else quote and read
        on; then search again; then submit.
        """
        if (page := self._hidden_notes()) is not None:
            return OfflineResponse(text="I look up my notes.", calls=(page,))
        must_submit = self._view.must_finish
        if not must_submit and (shared := build_delegation_turn(self._view)) is not None:
            return shared
        if must_submit or has_delegated(self._view):
            return self._submit_findings()
        if not self._view.gap:
            if not self._view.exchanges and (searches := tuple(map(_search_of_name, self._unknown_names))):
                return OfflineResponse(text="I search for the names in the question.", calls=searches)
            named = [made for made in self._view.exchanges if made.text("query") in self._unknown_names]
            if len(self._view.exchanges) == len(named) and (searches := self._named_searches()):
                return OfflineResponse(text="I search the documents that the question names.", calls=searches)
        quoting = self._quoting()
        enough = len(self._noted) + len({str(made.input["document"]) for made in quoting}) >= self._enough
        reading = () if enough else self._reading()
        if quoting or reading:
            return OfflineResponse(text="I keep what matters and read on.", calls=(*quoting, *reading))
        if not enough and (search := self._searching()) is not None:
            return OfflineResponse(text="I search the documents.", calls=(search,))
        return self._submit_findings()

    def _hidden_notes(self) -> OfflineToolCall | None:
        """Return the call for the next page of notes after a gap that may hide some."""
        if not self._view.gap or self._view.is_stalled:
            return None
        pages = [made for made in self._view.exchanges[self._view.after_gap :] if made.name == "read_notes"]
        if not pages:
            return build_call("read_notes", first=1, count=NOTES_A_PAGE)
        listed = sum(1 for _ in parse_note_list(pages[-1].result))
        more = listed == NOTES_A_PAGE or "continues at note" in pages[-1].result
        return (
            build_call("read_notes", first=pages[-1].number("first") + listed, count=NOTES_A_PAGE)
            if more and listed
            else None
        )

    def _quoting(self) -> tuple[OfflineToolCall, ...]:
        """Return notes for the documents that were read and have none yet."""
        tried = self._noted | {made.text("document") for made in self._view.calls("take_note")}
        lines: dict[str, dict[int, str]] = {}
        for read in self._view.calls("read_document"):
            if not read.failed:
                lines.setdefault(read.text("name"), {}).update(read_lines(read.result))
        rare = apply_idf_weights(self._told_by_text, ["\n".join(known.values()) for known in lines.values()])
        return tuple(
            build_call(
                "take_note",
                text=quote.note_text,
                document=name,
                first_line=quote.first_line,
                last_line=quote.last_line,
            )
            for name, known in lines.items()
            if name not in tried
            for quote in select_best_quotes(
                sorted(known.items()), rare, MAX_QUOTES_PER_NAMED if name in self._named else 0
            )
        )

    def _reading(self) -> tuple[OfflineToolCall, ...]:
        """Return the next places to read: all of one document, and of further ones while the reads are few."""
        seen = self._noted | {made.text("name") for made in self._view.calls("read_document")}
        unread = (place for place in self._places() if place.document not in seen)
        chosen: list[LineRange] = []
        for _, lot in groupby(unread, key=lambda place: place.document):
            places = list(lot)
            if chosen and (self._frugal or len(chosen) + len(places) > READS_A_TURN):
                break
            chosen += places
        return tuple(
            build_call("read_document", name=place.document, first_line=place.first_line, last_line=place.last_line)
            for place in chosen
        )

    def _places(self) -> Iterator[LineRange]:
        """Yield places worth reading, best first: each found document around its best hit.

        If the question is about every document, their beginnings are added: there documents say what they are. If the
        goal itself is, so are the beginnings of those that no search found.
        """
        found: dict[str, LineRange] = {}
        named: dict[str, list[LineRange]] = {name: [] for name in self._named}
        searches = [parse_search_hits(search.result) for search in self._view.calls("search_documents")]
        # The best hits of each search come before the second-best of any.
        for hit in (hit for rank in zip_longest(*searches) for hit in rank if hit is not None):
            if len(known := named.get(hit.document, [])) < MAX_PLACES and hit not in known:
                known.append(hit)
            if hit.document not in named:
                found.setdefault(hit.document, hit)
        for several in named.values():
            for hit in several:
                yield from self._around(hit)
        for hit in found.values():
            yield from self._around(hit)
        if self._every_document and found and self._view.brief.last_document is None:
            others = (name for name in self._view.brief.documents if name not in found)
            yield from (LineRange(document=name, first_line=1, last_line=HEAD_LINES) for name in others)

    def _around(self, hit: LineRange) -> Iterator[LineRange]:
        if self._beginnings:
            yield LineRange(document=hit.document, first_line=1, last_line=HEAD_LINES)
        if not self._beginnings or hit.last_line > HEAD_LINES:
            after = LINES_BEFORE if self._frugal else LINES_AFTER
            # The headings of a table are far above its last rows.
            before = LINES_AFTER if hit.document in self._named and not self._frugal else LINES_BEFORE
            first = max(HEAD_LINES + 1 if self._beginnings else 1, hit.first_line - before)
            yield LineRange(document=hit.document, first_line=first, last_line=hit.last_line + after)

    @property
    def _unknown_names(self) -> list[str]:
        """The names in a question for a figure that no document name has: of a company, whose reports they are."""
        brief = self._view.brief
        called = " ".join(map(format_document_label, brief.documents)).casefold()
        several = (
            brief.document_count > 1 and brief.last_document is None and is_number_or_date_question(brief.question)
        )
        names = extract_proper_names(brief.question) if several else []
        return [name for name in names if not any(word in called for word in iter_words(name))][:MAX_NAMED_DOCUMENTS]

    def _told_of(self) -> dict[str, frozenset[str]]:
        """The documents that mention a name most often, with its words."""
        said: dict[str, frozenset[str]] = {}
        for search in self._view.calls("search_documents"):
            if (name := search.text("query")) in self._unknown_names:
                counts = Counter(hit.document for hit in parse_search_hits(search.result))
                most = max(counts.values(), default=0)
                said |= {one: frozenset(iter_words(name)) for one, count in counts.items() if 2 * count >= most}
        return said

    def _named_searches(self) -> tuple[OfflineToolCall, ...]:
        """Return searches in each of the named documents: in a search of all, the others would have most of the
        passages.

        Figures are in tables, so for a figure the words around tables are searched for too.
        """
        documents = self._view.brief.documents
        own, related = self._search_words()
        tables = TABLE_WORDS if any(not one.words for one in self._looked_for) else ()
        return tuple(
            build_call("search_documents", query=" ".join(query), limit=MAX_PLACES, first_document=at, last_document=at)
            for at in [documents.index(name) + 1 for name in self._named][:MAX_NAMED_DOCUMENTS]
            for query in (own, *([*own, *more] for more in tables), related[:WORDS_A_QUERY])
            if query
        )

    def _searching(self) -> OfflineToolCall | None:
        """Return the next search that was not made yet."""
        made = [search.input for search in self._view.calls("search_documents")]
        brief = self._view.brief
        own: dict[str, JsonValue] = {}
        if brief.last_document is not None:
            own = dict(zip(_OF_PART, (brief.first_document, brief.last_document), strict=True))
        asked = [given.get("query") for given in made if all(given.get(key) == own.get(key) for key in _OF_PART)]
        query = next((query for query in self._queries() if query not in asked), None)
        if query is None:
            return None
        # Noted passages are found again, so a search for something new has to look beyond them.
        frugal = min(SEARCH_LIMIT, FRUGAL_SEARCH_LIMIT + len(self._noted))
        limit = frugal if self._frugal else SEARCH_LIMIT
        return build_call("search_documents", query=query, limit=limit, **own)

    def _queries(self) -> list[str]:
        """Return the goal in its own words, then in related words, then the words of title and question."""
        own, related = self._search_words()
        context = iter_words(normalize_question(f"{self._view.brief.title} {self._view.brief.question}"))
        pool = list(dict.fromkeys([*own, *related]))
        context = [word for word in dict.fromkeys(context) if word not in STOP_WORDS and word not in pool]
        lots = [pool[at : at + WORDS_A_QUERY] for at in range(0, len(pool), WORDS_A_QUERY)]
        return [" ".join(lot) for lot in [*lots[:MAX_SEARCHES], context[:WORDS_A_QUERY]] if lot]

    def _search_words(self) -> tuple[list[str], list[str]]:
        """Return the words to search for, and their synonyms."""
        telling = [concept for concept in self._told_by_text if concept.weight > ASIDE]
        own = [word for concept in telling for word in concept.words[:1]]
        return own, [word for concept in telling for word in concept.words[1:]]

    @property
    def _frugal(self) -> bool:
        left = self._view.budget_left
        return self._view.gap or (left is not None and left < FRUGAL_BELOW)

    def _submit_findings(self) -> OfflineResponse:
        """Submit the findings; after a refusal fewer of them, and none that the refusal names."""
        refusals = [made.result for made in self._view.calls("submit_findings") if made.failed]
        rated = self._rate([note for note in self._notes if self._bears(note)])
        if not self._own and not any(rating for rating, _ in rated):
            # The question names documents, but this part of it is about others.
            rated = self._rate(self._notes)
        best = max((rating for rating, _ in rated), default=0.0)
        rated.sort(key=lambda item: (0 if self._every_document else -round(item[0], 1), item[1].place.document))
        telling = [note for rating, note in rated if rating >= TELLING * best > 0]
        kept = [note for note in telling if not any(note.place.citation in refusal for refusal in refusals)]
        kept = kept[: len(kept) >> max(0, len(refusals) - 1)]
        if refusals and not kept and len(refusals) > 1:
            return OfflineResponse(text="I could not submit: every attempt was refused.")
        findings: list[JsonValue] = []
        room = self._view.max_tokens * CHARACTERS_A_TOKEN - OPEN_QUESTIONS_CHARACTERS
        for note in kept:
            quoted = note.text if QUOTED.search(note.text) else f'"{note.text}"'
            findings.append(
                build_finding(f"{format_document_label(note.place.document)}: {quoted}", [note.place.citation])
            )
            room -= len(json.dumps(findings[-1], ensure_ascii=False)) + 2
            if room < 0:
                findings.pop()
                break
        open_questions: list[JsonValue] = [*self._open_questions(kept[: len(findings)], len(kept) - len(findings))]
        return OfflineResponse(calls=(build_call("submit_findings", findings=findings, open_questions=open_questions),))

    def _rate(self, notes: Sequence[NoteRecord]) -> list[tuple[float, NoteRecord]]:
        """Rate each note by what it says of the goal; those of a document that is named count more."""
        rare = apply_idf_weights(self._told_by_text, [note.text for note in notes])
        return [
            (score_quotation(one.text, rare) * (NAMED if one.place.document in self._named else 1), one)
            for one in notes
        ]

    @property
    def _told_by_text(self) -> Sequence[QueryTerm]:
        """The terms to find in a document's text: its name says no more there."""
        names = {compute_stem(name) for name in self._names}
        told = [one for one in self._looked_for if names.isdisjoint(one.stems)]
        aside = [one._replace(weight=ASIDE, aside=True) for one in self._looked_for if not names.isdisjoint(one.stems)]
        return [*told, *aside] if told else self._looked_for

    def _bears(self, note: NoteRecord) -> bool:
        """Return whether a note is about what the question names, and an exception that it asks for."""
        present = build_stem_set(note.text)
        own = sum(not one.stems.isdisjoint(present) for one in self._own)
        named = (
            not self._named or note.place.document in self._named or not self._proper or bool(self._proper & present)
        )
        return named and 2 * own >= len(self._own)

    @property
    def _proper(self) -> frozenset[str]:
        """Stems of proper names: a text without them is about something else."""
        asked = _IN_NAME.findall(self._view.brief.question)[1:]
        return frozenset(compute_stem(word) for word in asked if not word.islower() and word.casefold() in self._names)

    def _open_questions(self, told: Sequence[NoteRecord], untold: int) -> Iterator[str]:
        total = self._view.brief.document_count
        quoted = len({note.place.document for note in told})
        unfinished = list_unfinished_parts(self._view)
        if untold:
            yield f"{format_count(untold, 'more quotation')} did not fit into the reply; see the notes of this step."
        elif not told and not unfinished:
            goal = truncate_at_word(self._view.brief.goal or self._view.brief.question, OPEN_QUESTIONS_CHARACTERS // 2)
            yield f"Nothing in the documents matched: {goal}"
        if unfinished:
            subagents = "The subagent" if len(unfinished) == 1 else "The subagents"
            yield f"Not read to the end: {', '.join(unfinished)}. {subagents} that read them ended early."
        for name in self._unknown_names if told else ():
            subject = [
                format_document_label(one)
                for one, said in self._told_of().items()
                if said == frozenset(iter_words(name))
            ]
            if subject:
                yield (
                    f"Documents assumed to be about {name}, because {name} occurs often in them: "
                    f"{', '.join(subject[:MAX_UNQUOTED_NAMES])}."
                )
        if told and quoted < total:
            others = self._others({note.place.document for note in told})
            yield (f"This step quotes {quoted} of {total} documents; {others} not read, or had no matching passage.")

    def _others(self, quoted: Set[str]) -> str:
        """Name the documents if they are few."""
        brief = self._view.brief
        names = [format_document_label(name) for name in brief.documents if name not in quoted]
        if (
            brief.last_document is not None
            or not 0 < brief.document_count - len(quoted) == len(names) <= MAX_UNQUOTED_NAMES
        ):
            return "the others were"
        return (
            f"{' and '.join(filter(None, [', '.join(names[:-1]), names[-1]]))} {'was' if len(names) == 1 else 'were'}"
        )


def _search_of_name(name: str) -> OfflineToolCall:
    return build_call("search_documents", query=name, limit=SEARCH_LIMIT)


def _visible_notes(view: AgentRequestView) -> Iterator[NoteRecord]:
    if view.is_stalled:
        yield from parse_summary_notes(view.summaries)
    exchanges: Sequence[ToolCallRecord] = view.exchanges
    for exchange in exchanges:
        if exchange.name == "take_note" and not exchange.failed:
            yield parse_taken_note(exchange)
        elif exchange.name == "read_notes":
            yield from parse_note_list(exchange.result)
        elif exchange.name in {"delegate", "expand"}:
            yield from parse_subagent_notes(exchange.result)
