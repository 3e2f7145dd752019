from datetime import UTC, datetime

from hypothesis import given
from hypothesis import strategies as st

from waystation.documents.documents import Document, DocumentPassage
from waystation.kernel.refs import TaskRef
from waystation.memory.passage_builder import (
    SLICE_CHARACTERS,
    build_document_passage,
    find_slice_end,
    find_unindexed_documents,
)
from waystation.privacy.policy import (
    RedactionResult,
    Span,
    make_failed_redaction,
    render_preserving_lines,
    with_placeholders,
)
from waystation.reports.report import render_unindexed_section

REF = TaskRef(store_id="store", tenant="tenant", session="session", task_id="task-1")
LINES = st.lists(st.text(st.sampled_from("ab \né"), max_size=12), max_size=8).map("".join)


def span(start: int, end: int) -> Span:
    return Span(type="GIVEN", start=start, end=end, score=1, placeholder="<GIVEN_0123456789ab>")


@given(LINES, st.data())
def test_a_redacted_text_keeps_its_lines_and_nothing_that_was_replaced(text: str, draw: st.DataObject) -> None:
    places = sorted(draw.draw(st.sets(st.integers(0, len(text)), min_size=2, max_size=4))) if len(text) > 3 else []
    spans = [span(start, end) for start, end in zip(places[::2], places[1::2], strict=False)]
    kept = render_preserving_lines(text, with_placeholders(text, spans))
    assert kept.count("\n") == text.count("\n")
    assert kept.count("<GIVEN_0123456789ab>") == len(spans)
    if not spans:
        assert kept == text


def test_a_secret_over_several_lines_leaves_its_placeholder_and_blank_lines() -> None:
    text = "before\nKEY one\ntwo\nthree after\nlast\n"
    redacted = with_placeholders(text, [span(text.index("one"), text.index(" after"))])
    lines = render_preserving_lines(text, redacted).splitlines()
    assert lines == ["before", "KEY <GIVEN_0123456789ab>", "", " after", "last"]


def test_a_text_that_could_not_be_redacted_is_blank_lines() -> None:
    text = "one\ntwo\n\nthree\n"
    assert render_preserving_lines(text, make_failed_redaction(text, "0" * 64)) == "\n\n\n\n"
    assert render_preserving_lines(text, RedactionResult(text=text)) == text


def test_a_slice_ends_at_a_blank_line_and_never_beyond_its_room() -> None:
    paragraph = ["x" * 99 + "\n"] * 9 + ["\n"]
    lines = paragraph * 1_000
    end = find_slice_end(lines, 0, 10**9)
    assert lines[end - 1] == "\n"
    assert SLICE_CHARACTERS <= sum(map(len, lines[:end])) < SLICE_CHARACTERS + 1_000
    assert sum(map(len, lines[: find_slice_end(lines, 0, 1_234)])) <= 1_234
    assert find_slice_end(lines, 7, 50) == 7


def test_the_same_place_of_the_same_document_is_the_same_passage_in_every_task_of_a_session() -> None:
    now = datetime(2026, 11, 21, tzinfo=UTC)
    cut = DocumentPassage("pilot.md", "# Bar", 3, 4, "Two fathoms.")
    here = build_document_passage(REF, cut, "b" * 64, 1, now)
    assert here.text == "[pilot.md:3-4]\n# Bar\nTwo fathoms."
    assert build_document_passage(REF.replace(task_id="task-2"), cut, "b" * 64, 1, now).id == here.id
    elsewhere = [
        build_document_passage(REF.replace(session="other"), cut, "b" * 64, 1, now),
        build_document_passage(REF.replace(tenant="other"), cut, "b" * 64, 1, now),
        build_document_passage(REF, cut, "c" * 64, 1, now),
        build_document_passage(REF, cut, "b" * 64, 2, now),
        build_document_passage(REF, cut._replace(name="copy.md"), "b" * 64, 1, now),
    ]
    assert here.id not in {one.id for one in elsewhere}
    (turn,) = here.turns
    assert elsewhere[3].turns[0].is_directly_after(turn)
    assert not elsewhere[2].replace(place=2).turns[0].is_directly_after(turn)


def listed(*sizes: int, removed: int | None = None) -> list[Document]:
    return [
        Document(name=f"{number}.md", blob=f"b{number}", lines=1, characters=size, removed=number == removed)
        for number, size in enumerate(sizes)
    ]


def test_which_documents_do_not_all_reach_memory_is_told_with_the_setting_that_decides() -> None:
    found = find_unindexed_documents(listed(100, 300, 50, 10), 250)
    assert found is not None
    assert (found.partial_document, found.missing_documents) == ("1.md", ("2.md", "3.md"))
    assert found.sentence == (
        "Memory keeps 250 characters of a task's documents (limit: WAYSTATION_REMEMBERED_CHARACTERS), but these "
        "documents have 460. Later tasks cannot recall 1.md (its end), 2.md, 3.md. The agents of this task can read "
        "everything."
    )
    many = find_unindexed_documents(listed(*[10] * 20), 100)
    assert many is not None
    assert (many.partial_document, many.name_summary) == (None, "10.md, 11.md, 12.md, 13.md, 14.md and 5 more")
    assert render_unindexed_section(many).splitlines()[:5] == [
        "## Not all in memory",
        "",
        "The agents of this task could read all documents. Memory keeps 100 of the documents' 200 characters for later "
        "tasks (limit: WAYSTATION_REMEMBERED_CHARACTERS). Memory lacks:",
        "",
        "- 10.md",
    ]


def test_what_fits_was_removed_or_is_not_to_be_remembered_at_all_is_not_told() -> None:
    assert find_unindexed_documents(listed(100, 150), 250) is None
    assert find_unindexed_documents(listed(100, 900, 150, removed=1), 250) is None
    assert find_unindexed_documents(listed(100, 900), 0) is None
    assert find_unindexed_documents([], 250) is None
    assert render_unindexed_section(None) == ""


@given(st.lists(st.integers(0, 50), max_size=8), st.integers(1, 120))
def test_each_document_is_told_of_if_and_only_if_it_passes_what_memory_takes(sizes: list[int], most: int) -> None:
    found, total, late = find_unindexed_documents(listed(*sizes), most), 0, list[str]()
    for number, size in enumerate(sizes):
        total += size
        if total > most and (size or late):
            late.append(f"{number}.md")
    told = (
        []
        if found is None
        else [*([found.partial_document] if found.partial_document else []), *found.missing_documents]
    )
    assert told == late
