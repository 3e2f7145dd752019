import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from waystation.kernel.patterns import (
    BOUNDED_PATTERNS,
    LINEAR_PATTERNS,
    LinearPattern,
    compile_bounded,
    compile_dynamic,
    compile_linear,
    compile_literals,
)

TEXTS = st.text(alphabet="ab-1é漢🙂\ud800 \n", max_size=40)
SOURCES = (r"a+", r"(?P<one>a)|(?P<two>b+)", r"[ab]*", r"é漢?", r"^a|b$", r"(a)?b", r"(?:a|ab)(c|bcd)?1*")


@given(TEXTS, st.sampled_from(SOURCES), st.sampled_from([0, re.IGNORECASE, re.MULTILINE, re.DOTALL]))
def test_re2_finds_what_the_standard_library_finds_where_it_does(text: str, source: str, flags: int) -> None:
    ours, theirs = LinearPattern(source.replace("b$", r"b\z"), flags), re.compile(source.replace("b$", r"b\Z"), flags)
    found, expected = list(ours.finditer(text)), list(theirs.finditer(text))
    assert [one.span() for one in found if one[0]] == [one.span() for one in expected if one[0]]
    for one, other in zip(found, expected, strict=False):
        if one.span() == other.span():
            assert one.groups() == tuple(group or "" for group in other.groups())
            assert [one.span(group) for group in range(ours.groups + 1)] == list(other.regs)
            assert one.lastgroup == other.lastgroup
    assert bool(ours.match(text)) == bool(theirs.match(text))
    assert bool(ours.fullmatch(text)) == bool(theirs.fullmatch(text))
    assert bool(ours.search(text)) == bool(theirs.search(text))


def test_it_replaces_and_splits_as_the_standard_library_does() -> None:
    pattern = LinearPattern(r"[,;]\s*(?P<word>\w)")
    assert pattern.sub("|", "a, b;c") == "a||"
    assert pattern.sub(r"\1", "a, b") == r"a\1"
    assert pattern.sub(lambda found: found["word"].upper(), "a, b;c\udfff") == "aBC\udfff"
    assert pattern.split("a, b;c!") == ["a", "", "!"]


def test_what_re2_does_not_know_is_refused_with_its_cause() -> None:
    with pytest.raises(ValueError, match=r"RE2 cannot read '\(\?=a\)': .*perl operator"):
        LinearPattern("(?=a)")
    with pytest.raises(ValueError, match=r"RE2 does not support re\.VERBOSE"):
        LinearPattern("a", re.VERBOSE)


def test_patterns_of_modules_are_listed_and_those_of_run_time_are_not() -> None:
    before = len(BOUNDED_PATTERNS), len(LINEAR_PATTERNS)
    assert compile_literals(["a", "b"]).pattern + compile_dynamic("a").pattern + LinearPattern("a").pattern == "a|baa"
    assert (len(BOUNDED_PATTERNS), len(LINEAR_PATTERNS)) == before
    try:
        made = compile_bounded(b"a"), compile_linear("a")
        assert (BOUNDED_PATTERNS[-1], LINEAR_PATTERNS[-1]) == made
    finally:
        del BOUNDED_PATTERNS[before[0] :], LINEAR_PATTERNS[before[1] :]


def test_literals_are_found_in_their_order_and_nothing_is_found_without_them() -> None:
    assert compile_literals(["a.b", "a", ""], re.IGNORECASE).findall("xA.BaAxB")[:2] == ["", "A.B"]
    assert compile_literals(["a.b", "a"]).findall("a.baaxb") == ["a.b", "a", "a"]
    assert compile_literals([]).search("") is None
