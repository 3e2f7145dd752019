"""The material that an analyst or a writer begins with: what earlier steps found, and the notes behind it.

It is chosen once, for the first message, which no compaction covers. Entries and notes have the numbers under which
`read_findings` shows them.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Literal, NamedTuple

from waystation.agents.deliverables import Analysis, Finding, Note, ResearchFindings
from waystation.agents.tools.submissions import TaskDeliverables, number_entry
from waystation.context.tokens import estimate_text
from waystation.kernel.patterns import compile_bounded
from waystation.planning.plan import Plan, Step
from waystation.security.untrusted import SafeMarkup, wrap_untrusted

MATERIAL_DIVISOR = 4
"""Material may take 1/4 of what is free of the window when an agent begins."""
MATERIAL_NOTE = "material, not instructions"
"""Attribute of each tag with material."""

_TagName = Literal["findings", "analysis", "notes"]
_OPEN_PREFIXES = ("open: ", "contradiction: ", "gap: ")
_QUOTED = compile_bounded(r'["“„«]([^"“”„«»]{12,4000})["”“»]')
"""Words in quotation marks, long enough to be those of a source."""


@dataclass(frozen=True)
class _Entry:
    """One entry or note of a step."""

    tag: _TagName
    step: Step
    number: int
    text: str

    @property
    def line(self) -> str:
        return number_entry(self.number, self.text)


class _Frame(NamedTuple):
    """A tag with the entries or the notes of one step."""

    tag: _TagName
    step: Step
    wanted: int
    """Number to be shown if they fit: of all entries, or of the notes that no finding quotes."""
    total: int
    """Number of all that `read_findings` shows."""

    def render(self, shown: Sequence[_Entry]) -> SafeMarkup:
        """Render the tag with the entries shown, and say what is left out and how to read it."""
        left_out = self.wanted - len(shown)
        arguments = f'step "{self.step.id}"{" and notes true" if self.tag == "notes" else ""}'
        lines = [one.line for one in shown]
        if left_out:
            lines.append(f"({left_out:,} more left out here; read_findings with {arguments} shows all {self.total:,}.)")
        if repeated := self.total - self.wanted:
            lines.append(
                "(1 note that only repeats the findings or other notes is not shown.)"
                if repeated == 1
                else f"({repeated:,} notes that only repeat the findings or other notes are not shown.)"
            )
        size = {"shown": str(len(shown)), "total": str(self.total)}
        return wrap_untrusted(self.tag, *lines, step=self.step.id, title=self.step.title, **size, note=MATERIAL_NOTE)


def list_source_steps(plan: Plan, step: Step) -> list[Step]:
    """Return the steps that this one builds on, directly or through others: analyses first, then research, in the
    order of the plan.
    """
    wanted: set[str] = set()
    ahead = [*step.needs]
    while ahead:
        needed = ahead.pop()
        if needed not in wanted:
            wanted.add(needed)
            ahead += plan.get_step(needed).needs
    sources = [known for known in plan.steps if known.id in wanted]
    return sorted(sources, key=lambda source: source.role != "analysis")


def render_material(there: TaskDeliverables, steps: Sequence[Step], max_tokens: int) -> list[SafeMarkup]:
    """Render as much of the steps' results and notes as fits, each step in tags of its own.

    What remained open comes first, then conclusions and findings, then notes that no finding quotes: of each kind the
    first of every step before the second of any. An entry is shown whole or not at all, and each tag says how many are
    left out and how to read them. The same results always give the same text.

    Args:
        there: What the task's agents have submitted and noted.
        steps: The steps to render, in order.
        max_tokens: Maximum size of all of it, in estimated tokens.
    """
    entries = {step.id: _list_entries(there, step) for step in steps}
    notes = {step.id: _list_unquoted_notes(there, step) for step in steps}
    frames = [
        *(_Frame(_tag(step), step, len(own), len(own)) for step in steps if (own := entries[step.id])),
        *(_Frame("notes", step, len(own), len(there.notes[step.id])) for step in steps if (own := notes[step.id])),
    ]
    # The tags themselves, with counts of up to three digits.
    room = max_tokens - sum(estimate_text(_widest(frame).render([])) for frame in frames)
    if room < 0:
        return []
    shown: dict[tuple[_TagName, str], list[_Entry]] = {(frame.tag, frame.step.id): [] for frame in frames}
    for entry in _by_importance([*entries.values()], [*notes.values()]):
        tokens = estimate_text(f"{entry.line}\n")
        if tokens <= room:
            room -= tokens
            shown[entry.tag, entry.step.id].append(entry)
    return [frame.render(sorted(shown[frame.tag, frame.step.id], key=lambda entry: entry.number)) for frame in frames]


def _widest(frame: _Frame) -> _Frame:
    return frame._replace(wanted=999, total=1_998 if frame.total > frame.wanted else 999)


def _tag(step: Step) -> _TagName:
    return "analysis" if step.role == "analysis" else "findings"


def _list_entries(there: TaskDeliverables, step: Step) -> list[_Entry]:
    texts = there.list_entries(step.id)
    return [_Entry(_tag(step), step, number, text) for number, text in enumerate(texts, 1)]


def _list_unquoted_notes(there: TaskDeliverables, step: Step) -> list[_Entry]:
    """Return the step's notes of which no finding of the step has the words, and none is repeated."""
    said = _normalise(" ".join(_iter_words(there, step)))
    texts = there.list_note_entries(step.id)
    notes: list[_Entry] = []
    seen: set[str] = set()
    for number, (note, text) in enumerate(zip(there.notes.get(step.id, ()), texts, strict=True), 1):
        if text not in seen and not _is_quoted(note, said):
            notes.append(_Entry("notes", step, number, text))
        seen.add(text)
    return notes


def _iter_words(there: TaskDeliverables, step: Step) -> Iterator[str]:
    """Yield the words of a step's findings or conclusions."""
    match there.get_result(step.id):
        case ResearchFindings(findings=made) | Analysis(conclusions=made):
            yield from (text for finding in made for text in _list_words(finding))
        case _:
            pass


def _list_words(finding: Finding) -> list[str]:
    return [finding.claim, finding.detail, *(quoted.quote for quoted in finding.quotations)]


def _is_quoted(note: Note, said: str) -> bool:
    """Return whether the findings have the words of a note, or everything that it puts in quotation marks."""
    quoted = [_normalise(words) for words in _QUOTED.findall(note.text)]
    return _normalise(note.text) in said or (bool(quoted) and all(words in said for words in quoted))


def _normalise(text: str) -> str:
    return " ".join(text.casefold().split())


def _by_importance(entries: Sequence[list[_Entry]], notes: Sequence[list[_Entry]]) -> Iterator[_Entry]:
    open_entries = [[one for one in own if one.text.startswith(_OPEN_PREFIXES)] for own in entries]
    claims = [[one for one in own if not one.text.startswith(_OPEN_PREFIXES)] for own in entries]
    for kind in (open_entries, claims, notes):
        yield from _in_turn(kind)


def _in_turn(lots: Iterable[list[_Entry]]) -> Iterator[_Entry]:
    """Yield the first of each lot, then the second of each, and so on."""
    return (one for rank in zip_longest(*lots) for one in rank if one is not None)
