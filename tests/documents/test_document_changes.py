"""Documents that are given again: what is compared, where each stays, and which lines changed."""

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from waystation.documents import documents
from waystation.documents.documents import (
    MAX_TASK_DOCUMENTS,
    ChangedLineRange,
    Document,
    DocumentChange,
    DocumentSet,
    RecordedDocumentsUpdate,
    apply_document_set,
    compute_document_changes,
    find_changed_lines,
    get_earlier_versions,
    merge_document_changes,
    resolve_document_names,
    validate_document_count,
)
from waystation.kernel.errors import BadInput

NOON = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)
NAMES = st.sampled_from("abcdef")


def document(name: str, blob: str = "1", *, removed: bool = False) -> Document:
    return Document(name=name, blob=blob, lines=1, characters=1, removed=removed)


def made(number: int, *changed: DocumentChange) -> RecordedDocumentsUpdate:
    return RecordedDocumentsUpdate(number=number, document_set="0" * 64, updated_at=NOON, changes=changed)


lists = st.lists(st.builds(document, NAMES, st.sampled_from("123")), unique_by=lambda one: one.name).map(tuple)
sets = st.builds(DocumentSet, documents=lists, missing=st.lists(NAMES).map(tuple))
texts = st.lists(st.sampled_from(["", "one", "two", "three"]), max_size=12)


@given(lists, st.lists(sets, max_size=4))
def test_no_document_ever_gets_another_number(known: tuple[Document, ...], given_again: list[DocumentSet]) -> None:
    now = known
    for one in given_again:
        before, now = now, apply_document_set(now, one)
        assert [document.name for document in now[: len(before)]] == [document.name for document in before]
        assert len({document.name for document in now}) == len(now)


@given(lists, sets)
def test_the_same_set_again_changes_nothing(known: tuple[Document, ...], one: DocumentSet) -> None:
    now = apply_document_set(known, one)
    assert apply_document_set(now, one) == now
    assert compute_document_changes(now, apply_document_set(now, one)) == ()


@given(lists, sets, sets)
def test_two_updates_did_together_what_is_different_in_the_end(
    known: tuple[Document, ...], first: DocumentSet, second: DocumentSet
) -> None:
    between = apply_document_set(known, first)
    after = apply_document_set(between, second)
    did = merge_document_changes(
        [made(1, *compute_document_changes(known, between)), made(2, *compute_document_changes(between, after))]
    )
    assert did == compute_document_changes(known, after)


def test_what_is_missing_goes_only_where_that_is_said_and_comes_back_under_its_number() -> None:
    known = (document("a"), document("b"), document("c"))
    kept = apply_document_set(known, DocumentSet(documents=(document("b", "2"), document("d"))))
    assert [(one.name, one.blob) for one in kept] == [("a", "1"), ("b", "2"), ("c", "1"), ("d", "1")]
    gone = apply_document_set(kept, DocumentSet(missing=("a",)))
    assert [one.name for one in gone if one.removed] == ["a"]
    back = apply_document_set(gone, DocumentSet(documents=(document("a", "3"),)))
    assert next((one.name, one.removed) for one in back) == ("a", False)
    assert [(change.position, change.kind) for change in compute_document_changes(known, back)] == [
        (0, "changed"),
        (1, "changed"),
        (3, "added"),
    ]


def test_a_task_that_has_too_many_documents_from_before_takes_new_versions_and_none_more() -> None:
    validate_document_count(MAX_TASK_DOCUMENTS)
    validate_document_count(MAX_TASK_DOCUMENTS + 5, had=MAX_TASK_DOCUMENTS + 5)
    for had in (0, MAX_TASK_DOCUMENTS, MAX_TASK_DOCUMENTS + 4):
        with pytest.raises(BadInput, match=r"5,005 documents are too many: a task can have 5,000 documents\."):
            validate_document_count(MAX_TASK_DOCUMENTS + 5, had=had)


def test_versions_before_are_known_by_name_the_newest_first() -> None:
    first = made(1, DocumentChange(position=0, name="a", before="1", after="2"))
    second = made(2, DocumentChange(position=0, name="a", before="2", after="3"))
    assert get_earlier_versions([first, second]) == {"a": ("2", "1")}


def test_a_file_that_is_reached_by_another_path_is_the_document_that_it_was() -> None:
    assert resolve_document_names(["notes/a.md", "b.md"], ["a.md", "b.md"]) == {"notes/a.md": "a.md", "b.md": "b.md"}
    assert resolve_document_names(["x/a.md", "y/a.md"], ["a.md"]) == {"x/a.md": "x/a.md", "y/a.md": "y/a.md"}
    assert resolve_document_names(["x/a.md", "a.md"], ["a.md"]) == {"x/a.md": "x/a.md", "a.md": "a.md"}
    assert resolve_document_names(["x/sub/a.md"], ["a.md", "sub/a.md"]) == {"x/sub/a.md": "x/sub/a.md"}
    assert resolve_document_names(["data.md"], ["a.md"]) == {"data.md": "data.md"}


@given(texts, texts)
def test_beside_the_changed_lines_the_new_version_has_only_lines_of_the_old_one(
    before: list[str], after: list[str]
) -> None:
    places = find_changed_lines(before, after)
    assert bool(places) == (before != after)
    fresh = {number for place in places for number in range(place.first, place.last + 1)}
    assert fresh <= set(range(1, len(after) + 1))
    rest = iter(before)
    assert all(line in rest for number, line in enumerate(after, 1) if number not in fresh)


def test_changed_lines_are_said_in_the_numbers_of_the_new_version() -> None:
    assert [str(place) for place in find_changed_lines(list("abcdef"), list("aXYcde"))] == [
        "lines 2-3",
        "lines removed after line 6",
    ]
    assert [str(place) for place in find_changed_lines(list("abc"), list("abZ"))] == ["line 3"]


def test_versions_of_lines_that_come_again_and_again_have_one_change_between_their_equal_ends() -> None:
    before = ["start", *["30 days", "ok"] * 9_999, "30 days", "end"]
    after = ["start", *["ok"] * 197, "end"]
    assert find_changed_lines(before, after) == (ChangedLineRange(2, 198),)


def test_lines_that_are_there_once_part_what_is_compared() -> None:
    before = [line for number in range(500) for line in (f"line {number}", "-")]
    after = [line.replace("line 250", "changed") for line in before if line != "line 400"]
    assert [str(place) for place in find_changed_lines(before, after)] == ["line 501", "lines removed after line 800"]


def test_versions_that_are_too_large_to_compare_have_one_change_between_their_equal_ends() -> None:
    before = ["head", *(f"old {number}" for number in range(2_100)), "tail"]
    after = ["head", *(f"new {number}" for number in range(2_100)), "tail"]
    assert documents.MAX_COMPARED_LINE_PAIRS < 2_100 * 2_100
    assert find_changed_lines(before, after) == (ChangedLineRange(2, 2_101),)
