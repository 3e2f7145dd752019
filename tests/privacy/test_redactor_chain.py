"""Several redactors as one: spans in the text that was given, and nothing that breaks the port's promises."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from waystation.kernel.errors import RedactionFailed
from waystation.privacy.policy import (
    RedactionPolicy,
    RedactionResult,
    Span,
    TextDestination,
    with_placeholders,
)
from waystation.privacy.redactor_chain import RedactorChain, merge_redactions
from waystation.security.placeholders import build_placeholder

KEY = bytes(32)


@dataclass
class PatternRedactor:
    """Replaces what a pattern matches."""

    pattern: str
    type: str
    version: str = "1"
    description: str = "what a pattern matches"
    closed: bool = False

    @property
    def placeholder_types(self) -> frozenset[str]:
        return frozenset({self.type})

    async def redact(
        self, texts: Sequence[str], destination: TextDestination, tenant: str
    ) -> tuple[RedactionResult, ...]:
        return tuple(replace_matches(text, self.pattern, self.type) for text in texts)

    def close(self) -> None:
        self.closed = True


def replace_matches(text: str, pattern: str, type_: str) -> RedactionResult:
    spans = [
        Span(
            type=type_,
            start=found.start(),
            end=found.end(),
            score=1,
            placeholder=build_placeholder(KEY, "t", type_, found[0]),
        )
        for found in re.finditer(pattern, text)
        if found[0]
    ]
    return with_placeholders(text, spans)


def chain(*redactors: PatternRedactor) -> RedactorChain:
    return RedactorChain([(one.type.lower(), one) for one in redactors], RedactionPolicy.STANDARD)


async def test_each_redactor_sees_what_the_ones_before_it_left_and_spans_are_those_of_the_text() -> None:
    both = chain(PatternRedactor(r"\d+", "NUMBER"), PatternRedactor(r"[a-z]+ <NUMBER_\w+>", "THING"))
    text = "two 22 and 333, later"
    (found,) = await both.redact([text], TextDestination.TOOL_RESULT, "t")
    assert [(span.type, text[span.start : span.end]) for span in found.spans] == [
        ("THING", "two 22"),
        ("THING", "and 333"),
    ]
    assert with_placeholders(text, found.spans) == found.replace(languages_without_names=())
    (untouched,) = await both.redact(["none"], TextDestination.TOOL_RESULT, "t")
    assert untouched == RedactionResult(text="none")


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("NUMBER", ["22", "333"]),  # within a placeholder: a redactor must leave it
        (r"two <NUM", ["two 22", "333"]),
        (r"\w{6}> and <\w{3}", ["22 and 333"]),
        (r"\w{6}> and|BER_", ["22 and", "333"]),
    ],
)
def test_what_reaches_into_a_placeholder_stands_for_all_of_it(pattern: str, expected: list[str]) -> None:
    text = "two 22 and 333, later"
    first = replace_matches(text, r"\d+", "NUMBER")
    merged = merge_redactions(text, first, replace_matches(first.text, pattern, "THING"))
    assert [text[span.start : span.end] for span in merged.spans] == expected


@given(
    text=st.text(alphabet="ab1 <>_N", max_size=60),
    first=st.sampled_from([r"1+", r"a1|b", r"a+"]),
    second=st.sampled_from([r"b+", r"> ?[a-z]", r"[0-9a-f]{3}> ?<N", r"<\w+>", r"N", r".b."]),
)
def test_two_redactions_merge_to_one_of_the_text(text: str, first: str, second: str) -> None:
    before = replace_matches(text, first, "N")
    after = replace_matches(before.text, second, "B")
    merged = merge_redactions(text, before, after)
    assert with_placeholders(text, merged.spans).text == merged.text
    spans = merged.spans
    assert all(one.end <= other.start for one, other in pairwise(spans))
    assert all(0 <= span.start < span.end <= len(text) for span in spans)
    hidden = {place for span in spans for place in range(span.start, span.end)}
    assert hidden >= {place for span in before.spans for place in range(span.start, span.end)}


@dataclass
class BrokenRedactor(PatternRedactor):
    """Returns what it was made with."""

    results: tuple[RedactionResult, ...] = ()

    async def redact(
        self, texts: Sequence[str], destination: TextDestination, tenant: str
    ) -> tuple[RedactionResult, ...]:
        return self.results


def span(start: int, end: int, placeholder: str = "<A_0123456789ab>") -> Span:
    return Span(type="A", start=start, end=end, score=1, placeholder=placeholder)


@pytest.mark.parametrize(
    "results",
    [
        (),
        (RedactionResult(text="another text"),),
        (RedactionResult(text="<A_0123456789ab>", spans=(span(0, 99),)),),
        (RedactionResult(text="xxxf a key", spans=(span(0, 3, "xxx"),)),),
        (with_placeholders("half a key", [span(0, 4), span(2, 6)]),),
    ],
    ids=["none", "no span", "beyond the end", "no placeholder", "overlapping"],
)
async def test_a_redactor_that_breaks_its_promises_brings_no_text_anywhere(
    results: tuple[RedactionResult, ...],
) -> None:
    both = chain(PatternRedactor(r"\d+", "NUMBER"), BrokenRedactor("", "BROKEN", results=results))
    with pytest.raises(RedactionFailed, match="the redactor broken returned results that do not match"):
        await both.redact(["half a key"], TextDestination.TOOL_RESULT, "t")


@pytest.mark.parametrize("destination", [TextDestination.DOCUMENT, TextDestination.LOG])
async def test_no_redactor_is_asked_about_places_where_no_redacted_text_goes(destination: TextDestination) -> None:
    with pytest.raises(RedactionFailed, match="texts are not redacted for the destination"):
        await chain(PatternRedactor("a", "A")).redact(["a"], destination, "t")


def test_a_chain_is_versioned_described_and_closed_as_a_whole() -> None:
    first, second = PatternRedactor("a", "A"), PatternRedactor("b", "B")
    both = chain(first, second)
    assert both.placeholder_types == {"A", "B"}
    assert both.version != chain(second, first).version
    assert both.version != chain(first, PatternRedactor("b", "B", version="2")).version
    both.close()
    assert (first.closed, second.closed) == (True, True)
