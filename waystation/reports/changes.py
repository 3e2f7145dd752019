"""Compares two reports: claims that are new, gone or changed, each with its citations.

Only cited sentences count: without a source, a claim cannot be checked. If only the line numbers have moved, with the
same words and documents, nothing has changed.
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
"""Prefixes that identify the lines of the changes at the top of a report."""
MIN_CLAIM_SIMILARITY = 0.5
"""Minimum share of common words, of all words of two claims, for one to be a changed version of the other."""
_MAX_LISTED_CHANGES = 40
"""Maximum changes of a kind at the top of a report; `waystation diff` shows all."""
_COMMON = 50
"""A word that more claims than this contain does not help to identify one."""


class ChangedClaim(Value):
    """A claim as it was, and as it is."""

    before: Claim
    after: Claim


class ReportChanges(Value):
    """All changes, in the order of the reports; a claim that is repeated is listed once."""

    new: tuple[Claim, ...] = ()
    gone: tuple[Claim, ...] = ()
    changed: tuple[ChangedClaim, ...] = ()
    same: int = 0
    """Number of claims in both."""

    @property
    def is_empty(self) -> bool:
        """Whether both say the same."""
        return not (self.new or self.gone or self.changed)


def render_report_changes(found: ReportChanges, before: str, after: str) -> str:
    """Render the top part of a report: all changes since the report of the task `before`, each with its citations.

    One Markdown block that begins like a warning: it is not one of the report's own claims.
    """
    new = format_count(len(found.new), "new claim")
    numbers = f"{new}, {len(found.gone)} gone, {len(found.changed)} changed, {found.same} unchanged"
    lines = [f"{CHANGES_HEADING} (`{before}`): {numbers}."]
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
    """Render the claim with its citations on one line."""
    return " ".join([claim.text, *map(str, claim.citations)])


def _render_change_list(lines: Sequence[str], before: str, after: str) -> list[str]:
    shown = [f"- {line}" for line in lines[:_MAX_LISTED_CHANGES]]
    if more := len(lines) - len(shown):
        shown.append(f"- and {format_count(more, 'more such claim')} (see `waystation diff {before} {after}`)")
    return ["", *shown] if shown else []


class _Known(NamedTuple):
    claim: Claim
    words: frozenset[str]
    documents: frozenset[str]


_Key = tuple[tuple[str, ...], frozenset[str]]


def compare_reports(before: str, after: str) -> ReportChanges:
    """Compare two whole reports in Markdown."""
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
    """Return the claims by words and documents, each once."""
    found: dict[_Key, _Known] = {}
    for claim in extract_claims(extract_answer(report)):
        if claim.citations and not claim.is_pointer_only:
            words = tuple(_WORD.findall(claim.text.casefold()))
            documents = frozenset(citation.document for citation in claim.citations)
            found.setdefault((words, documents), _Known(claim, frozenset(words), documents))
    return found


def _pairs(gone: Sequence[_Known], come: Sequence[_Known]) -> Mapping[int, int]:
    """Map the index of each claim that is gone to that of the one that replaced it; the most similar pairs first."""
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
    """Return the claims that contain each word, without the words that too many contain."""
    having: defaultdict[str, list[int]] = defaultdict(list)
    for place, known in enumerate(come):
        for word in known.words:
            having[word].append(place)
    return {word: places for word, places in having.items() if len(places) <= _COMMON}


def _near(known: _Known, come: Sequence[_Known], having: Mapping[str, Sequence[int]]) -> Iterator[tuple[int, float]]:
    """Yield the claims that may be a changed version of this one: in the same document, or word for word in another."""
    sharing = Counter(place for word in known.words for place in having.get(word, ()))
    for place in sharing:
        other = come[place]
        share = len(known.words & other.words) / len(known.words | other.words)
        if share >= MIN_CLAIM_SIMILARITY and (known.documents & other.documents or share == 1):
            yield place, share
