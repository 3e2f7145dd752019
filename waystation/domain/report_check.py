"""What code alone can tell of a draft report against the findings. It reads words, not meaning: it misses much, and
says only what is certain enough to bother a writer with.
"""

from collections.abc import Iterator, Sequence
from typing import Literal

from pydantic import Field

from waystation.domain.citations import CITATION, FailedCitation, citations_in
from waystation.domain.value import Value
from waystation.domain.work import Analysis, Finding, Findings, ReportDraft
from waystation.patterns import proven

FaultKind = Literal["citation", "uncited", "uncovered", "contradiction", "unsupported", "form"]
MOST_CHARACTERS = 400
"""Of one fault."""
UNCITED_WORDS = 40
"""A section with more words than these and no citation claims something."""
WORD = proven(r"[^\W\d_]{4,}")
_SAY_NOTHING = """
about after also answer before between does document documents each every find from give have into list many most much
name only other over said same says should show some such than that their them then there these they this those until
very were what when where which while will with would
"""
SAY_NOTHING = frozenset(_SAY_NOTHING.split())
"""Words of four letters and more that tell no topic."""
STEM_CHARACTERS = 5
"""As many letters of a word tell it: `harbour` is mentioned where `harbours` is."""


class Fault(Value):
    """One thing that is wrong with a report."""

    kind: FaultKind = Field(
        description="citation: it does not hold; uncited: a claim has none; uncovered: something asked for is not "
        "answered; contradiction: documents disagree and the report does not say so; unsupported: the findings do not "
        "say this; form: it is not what was asked for."
    )
    text: str = Field(
        min_length=1, max_length=MOST_CHARACTERS, description="What is wrong, and where, in one sentence."
    )


class Faults(Value):
    """What a review found, as the store keeps it."""

    faults: tuple[Fault, ...] = ()


class Drafted(Value):
    """A draft with all that it is held against."""

    draft: ReportDraft
    asked: tuple[str, ...]
    """The questions of the plan, and the criteria of the person."""
    findings: tuple[Findings, ...]
    analysis: Analysis | None
    failed: tuple[FailedCitation, ...] = ()
    """Citations that do not hold."""

    @property
    def text(self) -> str:
        """Everything that the draft says."""
        sections = [f"{section.heading}\n{section.markdown}" for section in self.draft.sections]
        return "\n\n".join([self.draft.title, self.draft.summary, *sections])

    @property
    def found(self) -> tuple[Finding, ...]:
        """All findings of the research."""
        return tuple(finding for step in self.findings for finding in step.findings)

    @property
    def unused(self) -> int:
        """How many findings the draft cites no place of."""
        cited = {_lines(text) for text in map(str, citations_in(self.text))}
        return sum(not any(_lines(place) in cited for place in finding.citations) for finding in self.found)


def faults_in(drafted: Drafted) -> tuple[Fault, ...]:
    """Everything that is wrong as far as words and places show it."""
    return tuple([*_citations(drafted), *_uncovered(drafted), *_contradictions(drafted)])


def _citations(drafted: Drafted) -> Iterator[Fault]:
    for failed in drafted.failed:
        yield Fault(kind="citation", text=f"{_short(str(failed.citation))}: {failed.reason}"[:MOST_CHARACTERS])
    for section in drafted.draft.sections:
        if len(section.markdown.split()) > UNCITED_WORDS and not CITATION.search(section.markdown):
            yield Fault(kind="uncited", text=f"The section {_short(repr(section.heading))} has no citation.")
    if drafted.found and drafted.unused == len(drafted.found):
        yield Fault(kind="unsupported", text=f"None of the {len(drafted.found)} findings is cited.")


def _uncovered(drafted: Drafted) -> Iterator[Fault]:
    said = _stems(drafted.text)
    for asked in dict.fromkeys(drafted.asked):
        if (wanted := _stems(asked)) and not wanted & said:
            yield Fault(kind="uncovered", text=f"No word of this is in the report: {_short(asked)}")


def _contradictions(drafted: Drafted) -> Iterator[Fault]:
    said = _stems(drafted.text)
    for told in drafted.analysis.contradictions if drafted.analysis else ():
        words = _stems(CITATION.sub(" ", told))
        if 2 * len(words & said) < len(words):
            yield Fault(kind="contradiction", text=f"The analysis found this, and the report does not: {_short(told)}")


def _lines(place: str) -> str:
    return " ".join(place.split()).strip("[]").casefold()


def _stems(text: str) -> frozenset[str]:
    return frozenset(
        word.casefold()[:STEM_CHARACTERS] for word in WORD.findall(text) if word.casefold() not in SAY_NOTHING
    )


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= 300 else f"{line[:298]} …"


def listed(faults: Sequence[Fault]) -> str:
    """One line each."""
    return "\n".join(f"- {fault.kind}: {' '.join(fault.text.split())}" for fault in faults)
