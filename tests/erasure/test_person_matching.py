"""How a person may be written, and what stands there once they are erased."""

from collections.abc import Mapping
from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from waystation.context.transcript import Message, Text, Thinking, ToolUse
from waystation.erasure.erasure import (
    ERASED_MARKER,
    ErasureMatch,
    ErasureQuery,
    RelatedValue,
    find_related_values,
    sum_matches_by_location,
)
from waystation.kernel.erasure_locations import ErasureLocation
from waystation.kernel.identifiers import Identifier
from waystation.kernel.value import Value


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("Ada Lovelace", "to ADA  lovelace."),
        ("Ada Lovelace", "Interview_ada-lovelace_2.md"),
        ("Ada Lovelace", r'{"said": "Dear\nAda Lovelace\n"}'),
        ("Lovelace", "of Lovelace's"),
        ("Lovelace", "LOVELACE"),
        ("O'Neil", "by o'neil,"),
        ("山田太郎", "昨日山田太郎さんが"),
        ("ada@example.com", "<Ada@Example.com>"),
        ("DE89 3704 0044 0532 0130 00", "IBAN de89370400440532013000"),
        ("+48 600 123 456", "call (48) 600-123-456 now"),
        ("10.0.12.34", "from 10.0.12.34:80"),
    ],
)
def test_a_value_is_found_however_it_is_written(value: str, text: str) -> None:
    assert ErasureQuery(value).count_matches(text) == 1
    assert ErasureQuery(value).erase_text(text).count(ERASED_MARKER) == 1


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("Ada Lovelace", "Ada and Lovelace"),
        ("Ada Lovelace", "Adaz Lovelace, Ada Lovelaces"),
        ("Mark", "mark my words, Markdown"),
        ("10.0.12.34", "100.12.34, 10.0.12.345"),
        ("600123456", "1600123456"),
    ],
)
def test_what_only_looks_like_it_is_left_alone(value: str, text: str) -> None:
    assert ErasureQuery(value).count_matches(text) == 0
    assert ErasureQuery(value).erase_text(text) == text


def test_placeholders_stand_for_the_value() -> None:
    sought = ErasureQuery("Ada Lovelace", ("<PERSON_aaaaaaaaaaaa>", "<LOCATION_aaaaaaaaaaaabbbb>"))
    text = "<PERSON_aaaaaaaaaaaa>, <LOCATION_aaaaaaaaaaaabbbb>, <LOCATION_aaaaaaaaaaaa>"
    assert sought.erase_text(text) == f"{ERASED_MARKER}, {ERASED_MARKER}, <LOCATION_aaaaaaaaaaaa>"


@given(st.lists(st.sampled_from(["Ada", "Lovelace", " ", "\n", "\r\n", "x", "\u2028", "_"])).map("".join))
def test_a_text_keeps_its_lines_and_has_the_person_no_more(text: str) -> None:
    sought = ErasureQuery("Ada Lovelace")
    after = sought.erase_text(text)
    assert len(after.splitlines()) == len(text.splitlines())
    assert sought.count_matches(after) == 0
    assert after.count(ERASED_MARKER) == sought.count_matches(text)


class Incident(Value):
    """A stored value whose free texts have names that other values use for their own words."""

    id: Identifier
    kind: str
    state: str = ""
    phase: Literal["open", "Ada"] = "open"
    witnesses: tuple[str, ...] = ()
    reported_by: Mapping[str, Identifier] = {}
    parts: tuple["Incident", ...] = ()


def test_free_text_is_erased_whatever_its_field_is_called_and_what_things_are_found_by_stays() -> None:
    incident = Incident(
        id="Ada",
        kind="a call by Ada",
        state="Ada waits",
        phase="Ada",
        witnesses=("Ada", "Bob"),
        reported_by={"Ada": "Ada"},
        parts=(Incident(id="2", kind="Ada"),),
    )
    sought = ErasureQuery("Ada")
    assert (sought.count_in_identifiers(incident), sought.count_in_texts(incident)) == (2, 4)
    assert sought.erase_value(incident) == incident.replace(
        kind=f"a call by {ERASED_MARKER}",
        state=f"{ERASED_MARKER} waits",
        witnesses=(ERASED_MARKER, "Bob"),
        parts=(Incident(id="2", kind=ERASED_MARKER),),
    )


def test_what_a_tool_is_called_with_is_words_whatever_its_fields_are_named() -> None:
    sought = ErasureQuery("Ada")
    call = ToolUse(id="Ada", name="find", input={"id": "Ada", "people": [{"session": "Ada"}, {"Ada": 36}]})
    assert (sought.count_in_identifiers(call), sought.count_in_texts(call)) == (1, 3)
    assert sought.erase_value(call) == call.replace(
        input={"id": ERASED_MARKER, "people": [{"session": ERASED_MARKER}, {ERASED_MARKER: 36}]}
    )


def test_signed_reasoning_about_the_person_goes_as_a_whole() -> None:
    thought = Message(id="m", role="assistant", blocks=(Thinking(thinking="Is it Ada?", signature="s"),))
    assert ErasureQuery("Ada").erase_value(thought) == thought.replace(blocks=(Text(text=ERASED_MARKER),))
    assert ErasureQuery("Bob").erase_value(thought) == thought


def test_traces_are_added_up_by_place() -> None:
    traces = [ErasureMatch(place=ErasureLocation.NOTE, task_id=task, count=2) for task in ("a", "b")]
    assert sum_matches_by_location((*traces, ErasureMatch(place=ErasureLocation.REQUEST, count=1))) == {
        ErasureLocation.REQUEST: 1,
        ErasureLocation.NOTE: 4,
    }


# ---------------------------------------------------------------------------------------------------- who else is meant

FAR = "x" * 150


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("A list\nAda Lovelace | 212-555-0147\nBob | 1\n", ["Ada Lovelace | 212-555-0147"]),
        ("a Ada Lovelace\r\nb ADA LOVELACE\x85c", ["a Ada Lovelace", "b ADA LOVELACE"]),
        ("Ada\nLovelace, Oslo\nBob", ["Ada\nLovelace, Oslo"]),
        (f"far {FAR} {FAR} near Ada Lovelace by {FAR} {FAR} far", [f"{FAR} near Ada Lovelace by {FAR}"]),
        ("nobody", []),
    ],
)
def test_what_stands_near_is_on_the_same_line_and_in_whole_words(text: str, lines: list[str]) -> None:
    assert list(ErasureQuery("Ada Lovelace").iter_matching_lines(text)) == lines


@pytest.mark.parametrize(
    ("value", "other", "like"),
    [
        ("Ada Lovelace", "A. Lovelace", True),
        ("Ada Lovelace", "Countess LOVELACE", True),
        ("Ada Lovelace", "alovelace@example.org", True),
        ("ada.lovelace@example.org", "Ada King", True),
        ("Ada Lovelace", "Adam Smith", False),
        ("Ada Lovelace", "bob@lovelace.example", False),
        ("Ada Lovelace", "212-555-0147", False),
    ],
)
def test_names_and_addresses_are_alike_by_their_parts(value: str, other: str, like: bool) -> None:
    assert ErasureQuery(value).is_similar_to(other) is like
    assert ErasureQuery(other).is_similar_to(value) is like


def test_what_is_alike_comes_first_then_what_stands_beside_it_most_and_the_value_itself_is_left_out() -> None:
    beside = {
        ("PERSON", "Bob Smith"): 1,
        ("PHONE", "212-555-0147"): 3,
        ("EMAIL", "Ada.Lovelace@x.org"): 1,
        ("EMAIL", "ada.lovelace@x.org"): 1,
        ("PERSON", "Dr. Ada Lovelace"): 9,
    }
    known = {"ada.lovelace@x.org": "EMAIL", "Lady Lovelace": "PERSON", "Eve": "PERSON"}
    assert find_related_values(ErasureQuery("Ada Lovelace"), beside, known) == [
        RelatedValue(text="Ada.Lovelace@x.org", type="EMAIL", lines=2, alike=True),
        RelatedValue(text="Lady Lovelace", type="PERSON", lines=0, alike=True),
        RelatedValue(text="212-555-0147", type="PHONE", lines=3, alike=False),
        RelatedValue(text="Bob Smith", type="PERSON", lines=1, alike=False),
    ]
