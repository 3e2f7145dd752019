"""What changed between two reports: claims that are new, gone or said otherwise, each with its citations.

Only what is cited counts: a sentence without a source is no claim that anybody could check. Where lines have moved,
and the words and the documents are the same, nothing has changed.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from waystation.documents.citations import Claim, extract_claims
from waystation.kernel.patterns import compile_bounded
from waystation.kernel.text import format_count
from waystation.kernel.value import Value
from waystation.reports.report import extract_answer

_WORD = compile_bounded(r"\d[\d.,]*+|[^\W\d_]++")
CHANGES_HEADING, CHANGED_CLAIM_SEPARATOR = "**What changed since last time**", " **is now** "
NEW_CLAIM_PREFIX, REMOVED_CLAIM_PREFIX, CHANGED_CLAIM_PREFIX = "New: ", "Gone: ", "Changed: "
"""What the part that a report opens with is known by, and its lines."""
MIN_CLAIM_SIMILARITY = 0.5
"""Of the words of two claims together, how many both have at least, where one is the other said otherwise."""
_MOST_TOLD = 40
"""Changes of a kind that a report opens with; `waystation diff` tells them all."""
_COMMON = 50
"""Claims that have a word: with more of them, it does not tell which are meant."""


class ChangedClaim(Value):
    """A claim as it was, and as it is."""

    before: Claim
    after: Claim


class ReportChanges(Value):
    """All that changed, in the order of the reports; of claims that are said several times, one."""

    new: tuple[Claim, ...] = ()
    gone: tuple[Claim, ...] = ()
    changed: tuple[ChangedClaim, ...] = ()
    same: int = 0
    """Claims that both have."""

    @property
    def is_empty(self) -> bool:
        """Whether both say the same."""
        return not (self.new or self.gone or self.changed)


def render_report_changes(found: ReportChanges, before: str, after: str) -> str:
    """What a report opens with: all changes since the report of the task `before`, each with its citations.

    One block of Markdown, which begins as warnings do: it is none of the report's own claims.
    """
    numbers = f"{len(found.new)} new, {len(found.gone)} gone, {len(found.changed)} changed, {found.same} the same"
    lines = [f"{CHANGES_HEADING} (`{before}`): {'nothing' if found.is_empty else 'claims'}; {numbers}."]
    lines += _render_change_list(
        [f"{NEW_CLAIM_PREFIX}{render_claim_with_citations(claim)}" for claim in found.new], before, after
    )
    lines += _render_change_list(
        [f"{REMOVED_CLAIM_PREFIX}{render_claim_with_citations(claim)}" for claim in found.gone], before, after
    )
    pairs = [
        f"{CHANGED_CLAIM_PREFIX}{render_claim_with_citations(pair.before)}{CHANGED_CLAIM_SEPARATOR}{render_claim_with_citations(pair.after)}"
        for pair in found.changed
    ]
    return "\n".join(f"> {line}".rstrip() for line in [*lines, *_render_change_list(pairs, before, after)])


def render_claim_with_citations(claim: Claim) -> str:
    """The claim with its citations, on a line."""
    return " ".join([claim.text, *map(str, claim.citations)])


def _render_change_list(lines: Sequence[str], before: str, after: str) -> list[str]:
    shown = [f"- {line}" for line in lines[:_MOST_TOLD]]
    if more := len(lines) - len(shown):
        shown.append(f"- and {format_count(more, 'more such claim')}: `waystation diff {before} {after}`")
    return ["", *shown] if shown else []


class _Known(NamedTuple):
    claim: Claim
    words: frozenset[str]
    documents: frozenset[str]


_Key = tuple[tuple[str, ...], frozenset[str]]


def compare_reports(before: str, after: str) -> ReportChanges:
    """Of two whole reports in Markdown."""
    old, new = _claims(before), _claims(after)
    gone = [known for key, known in old.items() if key not in new]
    come = [known for key, known in new.items() if key not in old]
    pairs = _pairs(gone, come)
    taken = set(pairs.values())
    return ReportChanges(
        new=tuple(known.claim for place, known in enumerate(come) if place not in taken),
        gone=tuple(known.claim for place, known in enumerate(gone) if place not in pairs),
        changed=tuple(
            ChangedClaim(before=gone[ours].claim, after=come[theirs].claim) for ours, theirs in sorted(pairs.items())
        ),
        same=len(old) - len(gone),
    )


def _claims(report: str) -> Mapping[_Key, _Known]:
    """What is claimed, by words and documents, each once."""
    found: dict[_Key, _Known] = {}
    for claim in extract_claims(extract_answer(report)):
        if claim.citations and not claim.is_pointer_only:
            words = tuple(_WORD.findall(claim.text.casefold()))
            documents = frozenset(citation.document for citation in claim.citations)
            found.setdefault((words, documents), _Known(claim, frozenset(words), documents))
    return found


def _pairs(gone: Sequence[_Known], come: Sequence[_Known]) -> Mapping[int, int]:
    """By the place of a claim that is gone, that of the one which took its place; the most alike first."""
    having = _index_by_word(come)
    alike = sorted(
        (-share, ours, theirs) for ours, known in enumerate(gone) for theirs, share in _near(known, come, having)
    )
    pairs: dict[int, int] = {}
    taken: set[int] = set()
    for _, ours, theirs in alike:
        if ours not in pairs and theirs not in taken:
            pairs[ours] = theirs
            taken.add(theirs)
    return pairs


def _index_by_word(come: Sequence[_Known]) -> Mapping[str, Sequence[int]]:
    """By word: the claims that have it. Without the words that too many have."""
    having: defaultdict[str, list[int]] = defaultdict(list)
    for place, known in enumerate(come):
        for word in known.words:
            having[word].append(place)
    return {word: places for word, places in having.items() if len(places) <= _COMMON}


def _near(known: _Known, come: Sequence[_Known], having: Mapping[str, Sequence[int]]) -> Iterator[tuple[int, float]]:
    """The claims that may be this one said otherwise: in the same document, or word for word in another."""
    sharing = Counter(place for word in known.words for place in having.get(word, ()))
    for place in sharing:
        other = come[place]
        share = len(known.words & other.words) / len(known.words | other.words)
        if share >= MIN_CLAIM_SIMILARITY and (known.documents & other.documents or share == 1):
            yield place, share
