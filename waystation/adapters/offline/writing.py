"""The writing agent: one section of quotations for each step, then what was counted, then the report."""

import re
from collections.abc import Iterator, Sequence

from waystation.adapters.offline.citing import TOPIC, label
from waystation.adapters.offline.findings import Entry, HandedIn, Kind, handed_in, next_page
from waystation.adapters.offline.language import shortened
from waystation.adapters.offline.planning import ANALYSIS_TITLE
from waystation.adapters.offline.replies import CALL_OVERHEAD, Reply, call
from waystation.adapters.offline.usage import CHARACTERS_A_TOKEN
from waystation.adapters.offline.view import Need, View

CONCLUSIONS = "Conclusions"
TITLE_CHARACTERS = 120
SUMMARY_LINES = 3
"""Of each topic."""
SECTION_CHARACTERS = 24_000
NO_MODEL = (
    "No LLM wrote this: the built-in offline model picked quotations by matching words and counted which documents say "
    "the same. Nothing was judged, paraphrased or inferred."
)
NOT_JUDGED = "Whether the acceptance criteria are met was not judged: that takes a language model."
_REMARKS: tuple[tuple[str, Kind], ...] = (
    ("Contradictions", "contradiction"),
    ("Gaps", "gap"),
    ("Open", "open"),
)
_KEPT = re.compile(r"\bsection \d+ kept: (.+?)(?=; (?:section|note) \d+ kept|\s*$)", re.MULTILINE)
"""On a line of its own in a result; in a summary one line lists them all."""


def writing(view: View) -> Reply:
    """The next turn of a writing agent. What is written is known from the results of `write_section`."""
    kept = {heading for text in _told(view) for heading in _KEPT.findall(text)}
    tried = kept | {made.text("heading") for made in view.calls("write_section") if made.failed}
    if not (view.must_hand_in and kept):
        for need in view.contract.needs:
            if _heading(view, need) not in tried:
                return _next_section(view, need)
        if not tried:
            return _section(view, CONCLUSIONS, HandedIn(entries={}, total=0))
    if any(made.failed for made in view.calls("submit_report")):
        return Reply(text="I could not hand in: the report was refused.")
    title = shortened(" ".join(view.contract.question.split()), TITLE_CHARACTERS) or "Report"
    return Reply(calls=(call("submit_report", title=title, summary="\n".join(_summary(view, kept))),))


def _next_section(view: View, need: Need) -> Reply:
    """Reads what the step handed in, then writes its section; right away where there is no budget for reading."""
    if not view.must_hand_in and (page := next_page(view, need.step)) is not None:
        return Reply(text=f"I read what {need.step} handed in.", calls=(page,))
    return _section(view, _heading(view, need), handed_in(view, need.step))


def _told(view: View) -> Iterator[str]:
    yield view.earlier
    yield from (made.result for made in view.calls("write_section") if not made.failed)


def _is_analysis(need: Need) -> bool:
    return need.title == ANALYSIS_TITLE or "analysis" in need.step


def _heading(view: View, need: Need) -> str:
    """The step's title; with its id where two steps have the same."""
    if _is_analysis(need):
        return CONCLUSIONS
    same = sum(other.title == need.title for other in view.contract.needs)
    return need.title if same == 1 and need.title != CONCLUSIONS else f"{need.title} ({need.step})"


def _section(view: View, heading: str, result: HandedIn) -> Reply:
    """As many lines as the reply may hold; what is left out is said."""
    lines = list(_lines(result)) or ["Nothing was found for this part."]
    room = min(SECTION_CHARACTERS, view.max_tokens * CHARACTERS_A_TOKEN - len(heading) - 3 * CALL_OVERHEAD - 120)
    taken: list[str] = []
    for line in lines:
        room -= len(line) + line.count('"') + 4
        if room < 0:
            break
        taken.append(line)
    if len(taken) < len(lines):
        taken.append(f"- {len(lines) - len(taken)} more lines did not fit here; the step's findings have them.")
    return Reply(calls=(call("write_section", heading=heading, markdown="\n".join(taken)),))


def _lines(result: HandedIn) -> Iterator[str]:
    yield from (_bullet(entry) for entry in result.of("claim"))
    for topic, entries in _by_topic(result.of("conclusion")).items():
        yield from [f"\n**{topic}**\n"] if topic else []
        yield from (_bullet(entry) for entry in entries)
    for heading, kind in _REMARKS:
        if entries := result.of(kind):
            yield f"\n**{heading}**\n"
            yield from (_bullet(entry) for entry in entries)
    if result.total is None:
        yield "- What this step handed in was not read before the report had to be finished."
    elif result.missing:
        yield f"- {result.missing} more findings of this step were not read before the report had to be finished."


def _by_topic(conclusions: Sequence[Entry]) -> dict[str, list[Entry]]:
    """The conclusions without their topics, by topic, in order."""
    topics: dict[str, list[Entry]] = {}
    for entry in conclusions:
        topic, said = _topic(entry.text)
        topics.setdefault(topic, []).append(entry.model_copy(update={"text": said}))
    return topics


def _topic(text: str) -> tuple[str, str]:
    """Topic and what is said of it; the mark between them stands before any quotation."""
    topic, mark, said = text.partition(TOPIC)
    return (topic, said) if mark and '"' not in topic else ("", text)


def _bullet(entry: Entry) -> str:
    """A quotation stands directly before its citation, after the document's name."""
    name = label(entry.places[0].document) if entry.places else ""
    cited = " ".join(entry.citations)
    if name and entry.text == f'{name}: "{entry.quote}"':
        return f'- **{name}**: "{entry.quote}" {cited}'
    return f"- {entry.text} {cited}".rstrip()


def _summary(view: View, kept: set[str]) -> Iterator[str]:
    yield NO_MODEL
    entries = {need.step: handed_in(view, need.step) for need in view.contract.needs}
    claims = [entry for result in entries.values() for entry in result.of("claim")]
    documents = {place.document for entry in claims for place in entry.places}
    if claims and not any(result.total is None or result.missing for result in entries.values()):
        yield f"\n{len(claims)} quotations from {len(documents)} documents are in the sections below."
    counted = [entry for result in entries.values() for entry in result.of("conclusion")]
    for topic, first in _by_topic(counted).items():
        yield f"\n**{topic or CONCLUSIONS}**\n"
        yield from (_bullet(entry) for entry in first[:SUMMARY_LINES])
    unwritten = [heading for need in view.contract.needs if (heading := _heading(view, need)) not in kept]
    if unwritten:
        yield f"\nNot written: {', '.join(unwritten)}."
    if view.contract.accept:
        yield f"\n{NOT_JUDGED}"
