"""The analysis agent and the writing agent.

The analysis agent counts which documents say the same and selects the findings nearest to the question; the writing
agent writes a section of quotations for each step, then the report with its summary.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Literal, get_args

from pydantic import JsonValue

from waystation.kernel.patterns import compile_bounded
from waystation.kernel.text import format_count
from waystation.kernel.value import Value
from waystation.plugins.offline.agent_request import AgentRequestView, UpstreamStep
from waystation.plugins.offline.language import (
    QueryTerm,
    apply_idf_weights,
    build_stem_set,
    compute_stem,
    extract_proper_names,
    extract_query_terms,
    iter_words,
    truncate_at_word,
)
from waystation.plugins.offline.plan import ANALYSIS_TITLE, NOTHING_ANSWERS, PERHAPS_NOTHING
from waystation.plugins.offline.quotes import (
    CITED,
    QUOTED,
    TOPIC,
    LineRange,
    extract_citations,
    extract_entry_value,
    format_document_label,
    score_quotation,
)
from waystation.plugins.offline.research import EXCEPTIONS_TITLE, match_document_names
from waystation.plugins.offline.responses import (
    CALL_OVERHEAD,
    CHARACTERS_A_TOKEN,
    OfflineResponse,
    OfflineToolCall,
    build_call,
    build_finding,
)

PAGE = 40
MAX_PAGE_TRIES = 2
"""A page that was requested this often and is not visible is given up."""

_MATERIAL = compile_bounded(
    r'^<(?:findings|analysis) step="([^"\n]{1,200})" title="[^"\n]{0,400}" shown="\d{1,9}" total="(\d{1,9})"[^>\n]*+>$',
    re.MULTILINE,
)
"""Opening tag of what the first message has of a step's result."""
_HEADER = compile_bounded(r"^findings \d+-\d+ of (\d{1,9}) of step (.+)$", re.MULTILINE)
_NONE = compile_bounded(r"^Step .+ has (\d{1,9}) findings?; none")
_LINE = compile_bounded(r"^(\d{1,9})\. (?:(open|conclusion|contradiction|gap): )?(.*)$", re.MULTILINE)

_Kind = Literal["claim", "open", "conclusion", "contradiction", "gap"]


class StepResultEntry(Value):
    """One line of a step's result."""

    kind: _Kind
    text: str
    places: tuple[LineRange, ...]

    @property
    def quote(self) -> str:
        """The quoted words in it; empty without any."""
        found = QUOTED.search(self.text)
        return found.group(1) if found else ""

    @property
    def citations(self) -> tuple[str, ...]:
        """Its citations."""
        return tuple(place.citation for place in self.places)


class StepResultState(Value):
    """What is known of a step's result: its entries by number, and their total number (None: not read yet)."""

    entries: dict[int, StepResultEntry]
    total: int | None

    @property
    def missing(self) -> int:
        """Number of entries that exist and were not seen."""
        return (self.total or 0) - len(self.entries)

    def select(self, *kinds: _Kind) -> tuple[StepResultEntry, ...]:
        """Return the entries of these kinds, in order."""
        return tuple(entry for _, entry in sorted(self.entries.items()) if entry.kind in kinds)


def _handed_in(view: AgentRequestView, step: str) -> StepResultState:
    """Return what the view shows of a step's result."""
    entries, total = _in_first_message(view, step)
    for exchange in view.calls("read_findings"):
        if exchange.text("step") != step or exchange.input.get("notes"):
            continue
        none = _NONE.match(exchange.result)
        header = _HEADER.match(exchange.result)
        if exchange.failed or none:
            total = int(none.group(1)) if none else 0
        if header and header.group(2) == step:
            total = int(header.group(1))
            entries.update(_entries(exchange.result[header.end() :]))
    return StepResultState(entries=entries, total=total)


def _in_first_message(view: AgentRequestView, step: str) -> tuple[dict[int, StepResultEntry], int | None]:
    """Return what the first message has of a step's result, and how many entries there are."""
    opened = next((found for found in _MATERIAL.finditer(view.opening) if found.group(1) == step), None)
    if opened is None:
        return {}, None
    inside = view.opening[opened.end() :].partition("\n</")[0]
    return _entries(inside), int(opened.group(2))


def build_next_page_call(view: AgentRequestView, step: str) -> OfflineToolCall | None:
    """Return the call that shows what is missing of a step's result; None if everything that can be read was read."""
    known = _handed_in(view, step)
    total = 1 if known.total is None else known.total
    first = next((number for number in range(1, total + 1) if number not in known.entries), None)
    if first is None:
        return None
    page = build_call("read_findings", step=step, first=first, count=PAGE)
    tries = sum(exchange.input == page.input for exchange in view.calls("read_findings"))
    return page if tries < MAX_PAGE_TRIES else None


def _entries(text: str) -> dict[int, StepResultEntry]:
    entries: dict[int, StepResultEntry] = {}
    for number, kind, body in _LINE.findall(text):
        cited = extract_citations(body)
        claim = _without_citations(body) if cited else body
        entries[int(number)] = StepResultEntry(kind=_kind(kind), text=claim, places=cited)
    return entries


def _without_citations(text: str) -> str:
    """Return the claim before the citations at the end of a line."""
    claim = text.rstrip()
    while (last := _last_citation(claim)) is not None:
        claim = claim[:last].rstrip()
    return claim


def _last_citation(text: str) -> int | None:
    return next((found.start() for found in CITED.finditer(text) if found.end() == len(text)), None)


def _kind(word: str) -> _Kind:
    return next((kind for kind in get_args(_Kind) if kind == word), "claim")


_Said = tuple[str, tuple[str, ...]]
"""Words, and the citations after them."""

CONCLUSIONS = "Conclusions"
_TITLE_CHARACTERS = 300
_FEW = 6
"""With at most this many quotations of a topic, there is nothing to conclude except what several documents say."""
SECTION_CHARACTERS = 24_000
NOT_JUDGED = "Whether the acceptance criteria are met was not judged: that takes a language model."
QUOTED_ALREADY = "Quoted above already"
NOT_READ = "- What this step submitted was not read before the report had to be finished."
_REMARKS: tuple[tuple[str, _Kind], ...] = (
    ("Contradictions", "contradiction"),
    ("Gaps", "gap"),
    ("Open", "open"),
)
_KEPT = compile_bounded(r"\bsection \d+ kept: (.+?)(?=; (?:section|note) \d+ kept|$)", re.MULTILINE)
"""On a line of its own in a result; in a summary one line lists them all."""


def build_writing_turn(view: AgentRequestView) -> OfflineResponse:
    """Build the next turn of a writing agent. What is written already is known from the results of `write_section`."""
    kept = {heading.rstrip() for text in _told(view) for heading in _KEPT.findall(text)}
    tried = kept | {made.text("heading") for made in view.calls("write_section") if made.failed}
    if not (view.must_finish and kept):
        for need in _sections(view):
            if _heading(view, need) not in tried:
                return _next_section(view, need)
        if not tried:
            return _section(view, CONCLUSIONS, ())
        for need in () if view.must_finish else _summarised(view):
            if (page := build_next_page_call(view, need.step)) is not None:
                return OfflineResponse(text=f"I read what {need.step} submitted.", calls=(page,))
    if sum(made.failed for made in view.calls("submit_report")) > 1:  # the second time, citations are not in the way
        return OfflineResponse(text="I could not submit: the report was refused.")
    question = " ".join(view.brief.question.split())
    title = truncate_at_word(question, _TITLE_CHARACTERS - 1) or "Report"
    if len(title) < len(question):
        title += "…"
    return OfflineResponse(
        calls=(build_call("submit_report", title=title, summary="\n".join(_summary(view, kept)) or IN_THE_SECTIONS),)
    )


def _sections(view: AgentRequestView) -> tuple[UpstreamStep, ...]:
    """Return the steps that have a section; an analysis only if there is nothing else, since the summary repeats it."""
    research = tuple(need for need in view.brief.needs if not _is_analysis(need))
    return research or view.brief.needs


def _summarised(view: AgentRequestView) -> list[UpstreamStep]:
    return [need for need in view.brief.needs if need not in _sections(view)]


def _next_section(view: AgentRequestView, need: UpstreamStep) -> OfflineResponse:
    """Read the step's result, then write its section; at once if there is no budget for reading."""
    if not view.must_finish and (page := build_next_page_call(view, need.step)) is not None:
        return OfflineResponse(text=f"I read what {need.step} submitted.", calls=(page,))
    looked_for = extract_query_terms(need.title) or extract_query_terms(view.brief.question)
    lines = _lines(_handed_in(view, need.step), _above(view, need), looked_for)
    return _section(view, _heading(view, need), lines)


def _above(view: AgentRequestView, need: UpstreamStep) -> frozenset[_Said]:
    """Return what earlier sections quote, as far as it is visible."""
    sections = _sections(view)
    above = sections[: sections.index(need)]
    return frozenset(_said(entry) for other in above for entry in _handed_in(view, other.step).select("claim"))


def _told(view: AgentRequestView) -> Iterator[str]:
    yield view.summaries
    yield from (made.result for made in view.calls("write_section") if not made.failed)


def _is_analysis(need: UpstreamStep) -> bool:
    return need.title == ANALYSIS_TITLE or "analysis" in need.step


def _heading(view: AgentRequestView, need: UpstreamStep) -> str:
    """Return the step's title; with its id if two steps have the same."""
    if _is_analysis(need):
        return CONCLUSIONS
    same = sum(other.title == need.title for other in view.brief.needs)
    return need.title if same == 1 and need.title != CONCLUSIONS else f"{need.title} ({need.step})"


def _section(view: AgentRequestView, heading: str, said: Iterable[str]) -> OfflineResponse:
    """Write as many lines as fit the reply, and say what is left out."""
    lines = list(said) or ["Nothing was found for this part."]
    room = min(SECTION_CHARACTERS, view.max_tokens * CHARACTERS_A_TOKEN - len(heading) - 3 * CALL_OVERHEAD - 120)
    taken: list[str] = []
    for line in lines:
        room -= len(line) + line.count('"') + 4
        if room < 0:
            break
        taken.append(line)
    if len(taken) < len(lines):
        taken.append(
            f"- {format_count(len(lines) - len(taken), 'more line')} did not fit here; see the results of the step."
        )
    return OfflineResponse(calls=(build_call("write_section", heading=heading, markdown="\n".join(taken).strip()),))


def _lines(result: StepResultState, above: frozenset[_Said], looked_for: Sequence[QueryTerm]) -> Iterator[str]:
    new = [entry for entry in result.select("claim") if _said(entry) not in above]
    for group in _alike(new, looked_for):
        yield _shared_bullet(group, looked_for) if len(group) > 1 else _bullet(group[0], looked_for)
    again = [entry for entry in result.select("claim") if _said(entry) in above]
    if again:
        yield f"- {QUOTED_ALREADY}: {', '.join(map(_named, again))}"
    for topic, entries in _by_topic(result.select("conclusion")).items():
        yield from [f"\n**{topic}**\n"] if topic else []
        yield from (_bullet(entry, looked_for) for entry in entries)
    for heading, kind in _REMARKS:
        if entries := result.select(kind):
            yield f"\n**{heading}**\n"
            yield from (_bullet(entry, looked_for) for entry in entries)
    if result.total is None:
        yield NOT_READ
    elif result.missing:
        yield f"- Findings of this step that were not read before the report had to be finished: {result.missing}."


def _alike(entries: Iterable[StepResultEntry], looked_for: Sequence[QueryTerm]) -> list[list[StepResultEntry]]:
    """Group entries of several documents that say the same, the largest groups first, then the others in order.

    `License: MIT` and `License :: MIT License` say the same if the licence is asked for.
    """
    wanted = frozenset[str]().union(*(concept.stems for concept in looked_for))
    groups: dict[object, list[StepResultEntry]] = {}
    for entry in entries:
        value = extract_entry_value(entry.quote, looked_for)
        alike = tuple(word for word in iter_words(value) if compute_stem(word) not in wanted) if value else ()
        groups.setdefault(alike or " ".join((entry.quote or entry.text).casefold().split()), []).append(entry)
    return sorted(groups.values(), key=lambda group: -len({_name(entry) for entry in group}))


def _shared_bullet(group: Sequence[StepResultEntry], looked_for: Sequence[QueryTerm]) -> str:
    """Format what they say in the most common wording, then who says it, with their own words if these differ; for one
    document, its words with their places.
    """
    said = _most_say(group, looked_for)
    cited: dict[tuple[str, str], list[str]] = {}
    for entry in sorted(group, key=_name):
        cited.setdefault((_name(entry), _shown(entry, looked_for)), []).extend(entry.citations)
    if len(cited) == 1:
        return _bullet(group[0].replace(places=tuple(place for entry in group for place in entry.places)), looked_for)
    if len({name for name, _ in cited}) == 1:
        return "\n".join(f'- **{name}**: "{own}" {" ".join(places)}' for (name, own), places in cited.items())
    own_words = {own: "" if own == said else f' ("{own}")' for _, own in cited}
    named = [f"{name}{own_words[own]} {' '.join(places)}" for (name, own), places in cited.items()]
    return f'- "{said}": {", ".join(named)}'


def _most_say(group: Sequence[StepResultEntry], looked_for: Sequence[QueryTerm]) -> str:
    return Counter(_shown(entry, looked_for) for entry in group).most_common(1)[0][0]


def _shown(entry: StepResultEntry, looked_for: Sequence[QueryTerm]) -> str:
    """Return the quoted words; for a header line that names a term, its value."""
    return extract_entry_value(entry.quote, looked_for) or entry.quote or entry.text


def _named(entry: StepResultEntry) -> str:
    return f"{_name(entry)} {' '.join(entry.citations)}".strip()


def _said(entry: StepResultEntry) -> _Said:
    return entry.text, entry.citations


def _name(entry: StepResultEntry) -> str:
    return format_document_label(entry.places[0].document) if entry.places else ""


def _by_topic(conclusions: Sequence[StepResultEntry]) -> dict[str, list[StepResultEntry]]:
    """Group the conclusions, without their topics, by topic, in order."""
    topics: dict[str, list[StepResultEntry]] = {}
    for entry in conclusions:
        topic, said = _topic(entry.text)
        topics.setdefault(topic, []).append(entry.replace(text=said))
    return topics


def _topic(text: str) -> tuple[str, str]:
    """Split topic and text; the mark between them precedes any quotation."""
    topic, mark, said = text.partition(TOPIC)
    return (topic, said) if mark and '"' not in topic else ("", text)


def _bullet(entry: StepResultEntry, looked_for: Sequence[QueryTerm] = ()) -> str:
    """Format a bullet: the document's name, the quotation, and directly after it the citation."""
    name = _name(entry)
    cited = " ".join(entry.citations)
    if name and entry.text.startswith(f"{name}: "):
        key = entry.text.removeprefix(f"{name}: ").removesuffix(f'"{entry.quote}"')
        return f'- **{name}**: {key}"{_shown(entry, looked_for)}" {cited}'
    return f"- {entry.text} {cited}".rstrip()


def _summary(view: AgentRequestView, kept: set[str]) -> Iterator[str]:
    """Yield where the quotations are from, then for each topic what its section cannot show at a glance."""
    found = {need: _handed_in(view, need.step) for need in _sections(view)}
    claims = {_said(entry): entry for result in found.values() for entry in result.select("claim")}
    unread = any(result.total is None or result.missing for result in found.values())
    if not (unread or claims or any(result.select("conclusion") for result in found.values())):
        yield NOTHING_ANSWERS
    shares = [_share(view, need, entry) for need, result in found.items() for entry in result.select("claim")]
    if shares and max(shares) < HALF:
        yield NOTHING_CLOSE
    elif claims and (
        unsaid := _unsaid_names(view, [one for result in found.values() for one in result.select("claim", "open")])
    ):
        yield f"No quotation contains {' or '.join(unsaid)}: check that the quotations are about what you asked."
    if claims and not unread:
        documents = {place.document for entry in claims.values() for place in entry.places}
        quotations, sources = format_count(len(claims), "quotation"), format_count(len(documents), "document")
        yield f"In the sections below: {quotations} from {sources}."
    concluded = [one for need in _summarised(view) for one in _handed_in(view, need.step).select("conclusion")]
    topics = {
        topic: entries
        for topic, entries in _by_topic(concluded).items()
        # The section of any other topic already says everything.
        if topic != EXCEPTIONS_TITLE and any(_QUOTED in entry.text for entry in entries)
    }
    for topic, entries in topics.items():
        # A single topic needs no heading, which its section below has, too.
        yield f"\n**{topic or CONCLUSIONS}**\n" if len(topics) > 1 else ""
        yield from (_bullet(entry, extract_query_terms(topic)) for entry in entries)
    if unwritten := [heading for need in found if (heading := _heading(view, need)) not in kept]:
        yield f"\nNot written: {', '.join(unwritten)}."
    if view.brief.accept:
        yield f"\n{NOT_JUDGED}"


def _share(view: AgentRequestView, need: UpstreamStep, entry: StepResultEntry) -> float:
    """Return the share of its step's terms that a quotation shows, with the name of its document."""
    said = build_stem_set(f"{entry.text} {_name(entry)}")
    named = match_document_names(view.brief.question, [place.document for place in entry.places])
    names = {compute_stem(word) for words_of in named.values() for word in words_of}
    every = extract_query_terms(need.title) or extract_query_terms(view.brief.question)
    looked_for = [one for one in every if not one.aside and names.isdisjoint(one.stems)]
    return sum(not one.stems.isdisjoint(said) for one in looked_for) / max(1, len(looked_for)) if looked_for else 1.0


def _unsaid_names(view: AgentRequestView, claims: Iterable[StepResultEntry]) -> list[str]:
    """Return the names in an English question that neither a quotation nor a document name has."""
    told = " ".join([*(entry.text for entry in claims), *map(format_document_label, view.brief.documents)]).casefold()
    names = [name for name in extract_proper_names(view.brief.question) if len(name) > 2]
    return [] if any(name.casefold() in told for name in names) else names


HALF = 0.5
NOTHING_CLOSE = f"No quotation contains at least half of the search words, so {PERHAPS_NOTHING}"
IN_THE_SECTIONS = "What was found, and what is missing, is in the sections below."
_QUOTED = "quoted documents"
MAX_GROUPS = 6
MAX_SINGLE_FINDINGS = 5
"""Maximum number of findings of one document only, besides those that were counted."""
MAX_NEAREST_FINDINGS = 3
MAX_CITATIONS = 5


def build_analysis_turn(view: AgentRequestView) -> OfflineResponse:
    """Build the next turn of an analysis agent: read every needed step, then submit."""
    if not view.must_finish:
        for need in view.brief.needs:
            if (page := build_next_page_call(view, need.step)) is not None:
                return OfflineResponse(text=f"I read the findings of {need.step}.", calls=(page,))
    results = [(need, _handed_in(view, need.step)) for need in view.brief.needs]
    refused = sum(made.failed for made in view.calls("submit_analysis"))
    # The first time it may be that citations were in the way, which are not the second time.
    dropped = max(0, refused - 1)
    conclusions = [
        build_finding(text, cited) for need, result in results for text, cited in _conclusions(view, need, result)
    ]
    if refused > 1 and not conclusions[: len(conclusions) >> dropped]:
        return OfflineResponse(text="I could not submit: every attempt was refused.")
    gaps: list[JsonValue] = [gap for need, result in results for gap in _gaps(need, result)]
    kept: list[JsonValue] = [*conclusions[: len(conclusions) >> dropped]]
    return OfflineResponse(calls=(build_call("submit_analysis", conclusions=kept, contradictions=[], gaps=gaps),))


def _conclusions(
    view: AgentRequestView, need: UpstreamStep, result: StepResultState
) -> Iterator[tuple[str, Sequence[str]]]:
    """Yield what most documents say in the same words, counted; then the findings nearest to the question."""
    claims = [entry for entry in result.select("claim") if entry.places]
    documents = {place.document for entry in claims for place in entry.places}
    looked_for = extract_query_terms(need.title) or extract_query_terms(view.brief.question)
    groups = _alike(claims, looked_for)
    shared = [group for group in groups if len(group) > 1]
    counts = sum(map(len, shared)) * 2 >= len(claims) > _FEW
    for group in shared[:MAX_GROUPS] if counts else ():
        said = _most_say(group, looked_for)
        # Only documents with these very words count: each of them can be cited for the quotation.
        saying: dict[str, str] = {}
        for entry in group:
            if said in (entry.quote or entry.text):
                saying.setdefault(entry.places[0].document, entry.citations[0])
        cited = [*saying.values()][:MAX_CITATIONS]
        say = "says" if len(saying) == 1 else "say"
        more = "" if len(cited) == len(saying) else f" ({MAX_CITATIONS} cited here)"
        # The count is a sentence of its own, since no document says it.
        yield f'{need.title}{TOPIC}{len(saying)} of {len(documents)} {_QUOTED} {say} this{more}. "{said}"', cited
    singles = [group[0] for group in groups if len(group) == 1 or not counts]
    rare = apply_idf_weights(looked_for, [entry.quote or entry.text for entry in singles])
    nearest = sorted(singles, key=lambda entry: -score_quotation(entry.quote or entry.text, rare))
    for entry in nearest[: MAX_SINGLE_FINDINGS if counts else MAX_NEAREST_FINDINGS]:
        yield f"{need.title}{TOPIC}{entry.text}", entry.citations


def _gaps(need: UpstreamStep, result: StepResultState) -> Iterator[str]:
    yield from (f"{need.title}{TOPIC}{entry.text}" for entry in result.select("open"))
    if result.total is None or result.missing:
        yield f"{need.title}{TOPIC}this analysis was submitted before all findings of this step were read."
