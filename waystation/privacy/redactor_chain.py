"""Several redactors as one: each is given what the ones before it left."""

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from waystation.kernel.errors import RedactionFailed
from waystation.privacy.policy import (
    PLACEHOLDER_PATTERN,
    RedactionLevel,
    RedactionPolicy,
    RedactionResult,
    Span,
    TextDestination,
    get_redaction_level,
    with_placeholders,
)
from waystation.privacy.ports import ConfiguredRedactor


@dataclass(frozen=True)
class RedactorChain:
    """Implements the port `ConfiguredRedactor` over redactors by name, in the order in which they see a text.

    What a redactor returns is checked: one that gives other results than its port promises must not bring text to a
    place where it may not go, or have the wrong original kept for a placeholder.
    """

    redactors: Sequence[tuple[str, ConfiguredRedactor]]
    policy: RedactionPolicy
    sources: Sequence[str] = ()
    """Digests of the code that they are made by, where that is known."""

    @property
    def version(self) -> str:
        """Of all of them, in their order."""
        return "\n".join([*(f"{name} {redactor.version}" for name, redactor in self.redactors), *self.sources])

    @property
    def placeholder_types(self) -> frozenset[str]:
        """Of all of them."""
        return frozenset[str]().union(*(redactor.placeholder_types for _, redactor in self.redactors))

    @property
    def description(self) -> str:
        """Of all of them. Raises BadInput."""
        return "; then ".join(redactor.description for _, redactor in self.redactors)

    async def redact(
        self, texts: Sequence[str], destination: TextDestination, tenant: str
    ) -> tuple[RedactionResult, ...]:
        """See `Redactor`. Raises RedactionFailed also where a redactor breaks its port's promises."""
        if get_redaction_level(destination, self.policy) in {RedactionLevel.ORIGINAL, RedactionLevel.NO_TEXT}:
            raise RedactionFailed(f"texts are not redacted for the destination {destination}")
        results = tuple(RedactionResult(text=text) for text in texts)
        for name, redactor in self.redactors:
            given = [result.text for result in results]
            found = await redactor.redact(given, destination, tenant)
            if len(found) != len(given) or not all(map(_is_sound, given, found)):
                raise RedactionFailed(f"the redactor {name} returned results that do not match the texts sent to it")
            results = tuple(map(merge_redactions, texts, results, found))
        return results

    def close(self) -> None:
        """Close all."""
        for _, redactor in self.redactors:
            redactor.close()


def _is_sound(text: str, result: RedactionResult) -> bool:
    """Whether the result is the text with its spans replaced, each by a placeholder."""
    spans = result.spans
    in_order = all(one.end <= other.start for one, other in pairwise(spans))
    inside = all(0 <= span.start < span.end <= len(text) or not text for span in spans)
    placeholders = all(PLACEHOLDER_PATTERN.fullmatch(span.placeholder) for span in spans)
    return in_order and inside and placeholders and with_placeholders(text, spans).text == result.text


def merge_redactions(text: str, first: RedactionResult, second: RedactionResult) -> RedactionResult:
    """Two redactions of a text as one, with spans in characters of the text.

    Args:
        text: as the first was given it.
        first: of the text.
        second: of what the first made of it. A span of it within a placeholder of the first does not count, and one
            that reaches into a placeholder stands for all that the placeholder does.
    """
    merged = with_placeholders(text, _merged_spans(first.spans, second.spans)) if second.spans else first
    return merged.replace(
        languages_without_names=tuple(sorted({*first.languages_without_names, *second.languages_without_names})),
        timed_out=first.timed_out or second.timed_out,
    )


def _merged_spans(first: Sequence[Span], second: Sequence[Span]) -> list[Span]:
    placed = _placed(first)
    starts, ends = [start for start, _ in placed], [end for _, end in placed]
    merged: list[Span] = []
    used = 0
    for span in second:
        # The placeholders of the first that this one touches.
        low, high = bisect_right(ends, span.start), bisect_left(starts, span.end)
        if high - low == 1 and starts[low] <= span.start and span.end <= ends[low]:
            continue
        within_first = low < high and span.start > starts[low]
        within_last = low < high and span.end < ends[high - 1]
        start = first[low].start if within_first else _to_original(span.start, low, first, ends)
        end = first[high - 1].end if within_last else _to_original(span.end, high, first, ends)
        merged += first[used:low]
        used = max(used, high)
        # Two spans can reach into one placeholder, from both sides.
        start = max(start, merged[-1].end if merged else 0)
        if start < end:
            merged.append(span.replace(start=start, end=end))
    return [*merged, *first[used:]]


def _placed(spans: Sequence[Span]) -> list[tuple[int, int]]:
    """Where the placeholders of spans stand in the redacted text: start and end of each."""
    shift = 0
    placed: list[tuple[int, int]] = []
    for span in spans:
        start = span.start + shift
        placed.append((start, start + len(span.placeholder)))
        shift += len(span.placeholder) - (span.end - span.start)
    return placed


def _to_original(position: int, before: int, spans: Sequence[Span], ends: Sequence[int]) -> int:
    """The place in the original text of one in the redacted text, behind so many placeholders."""
    return position if before == 0 else position - ends[before - 1] + spans[before - 1].end
