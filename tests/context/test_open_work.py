"""Open work: the newest list that an agent keeps of what there is to do, carried on from summary to summary."""

import pytest

from tests.support.conversations import make_call_message, make_research_turns, make_text_message
from waystation.context.constraints import MAX_ITEMS, OPEN_WORK_CHARACTERS, STEP_ITEM_PREFIX, find_open_items
from waystation.context.summary import build_summary_message, render_ledger
from waystation.context.transcript import Message, ToolUse, build_user_message

CONTRACT = build_user_message("m1", "Find out why.")
PLAN = make_text_message(
    "m2", "My plan:\n- [x] list the files\n- [ ] compare the years\n2. [IN PROGRESS] the table\n[DONE] search"
)


def summary(*lines: str) -> Message:
    return build_summary_message("c", f"It went on.\n\n{render_ledger(lines)}")


def keeping(*todos: object) -> Message:
    call = ToolUse.model_validate({"id": "t1", "name": "TodoWrite", "input": {"todos": [*todos]}})
    return Message(id="m3", role="assistant", blocks=(call,))


def test_what_a_list_says_is_not_done_is_open() -> None:
    assert find_open_items([PLAN], [CONTRACT, PLAN]) == ("[ ] compare the years", "[IN PROGRESS] the table")


def test_a_list_that_a_tool_keeps_counts_as_well() -> None:
    kept = keeping(
        {"content": "read", "status": "completed"}, {"content": "write it", "status": "pending"}, {"content": "x"}, "y"
    )
    assert find_open_items([kept], [CONTRACT, kept]) == ("[pending] write it",)


def test_the_newest_list_counts_alone() -> None:
    newer = make_text_message("m3", "[DONE] compare the years\n[TODO] write")
    assert find_open_items([PLAN, newer], [CONTRACT, PLAN, newer]) == ("[TODO] write",)


def test_nothing_is_open_where_a_newer_list_stays_in_view() -> None:
    newer = make_text_message("m9", "[DONE] compare the years")
    assert find_open_items([PLAN], [CONTRACT, PLAN, *make_research_turns(2, start=5), newer]) == ()


def test_a_list_before_the_middle_is_carried_too_so_that_the_summary_says_how_things_stood() -> None:
    middle = make_research_turns(2, start=2)
    assert find_open_items(middle, [CONTRACT, PLAN, *middle]) == ("[ ] compare the years", "[IN PROGRESS] the table")


def test_an_earlier_summary_carries_on_what_was_open_and_hides_older_lists() -> None:
    carried = summary("user: Never dig.", "open: [TODO] write", f"open: {STEP_ITEM_PREFIX}its result is not submitted")
    assert find_open_items([carried], [CONTRACT, PLAN, carried, *make_research_turns(1)]) == ("[TODO] write",)
    nothing = summary("user: Never dig.")
    assert find_open_items([nothing], [CONTRACT, PLAN, nothing]) == ()


@pytest.mark.parametrize(
    "message",
    [
        build_user_message("m2", "[TODO] the user's list"),
        make_text_message("m2", "I see [TODO] in the text, and a [link] too."),
        make_call_message("m2", "c1"),
        keeping({"content": " ", "status": "pending"}),
        keeping({"content": "a", "status": 1}),
    ],
    ids=["the user's", "no list", "a call", "blank", "no status"],
)
def test_what_is_no_list_of_the_agents_opens_nothing(message: Message) -> None:
    assert find_open_items([message], [CONTRACT, message]) == ()


def test_a_list_is_bounded_and_each_item_is_one_line_without_frames() -> None:
    long = make_text_message(
        "m2", "\n".join([*(f"[TODO] item {n} {'x' * 500}" for n in range(50)), "[TODO] a </ledger> b"])
    )
    items = find_open_items([long], [CONTRACT, long])
    assert len(items) == MAX_ITEMS
    assert max(map(len, items)) == OPEN_WORK_CHARACTERS
    framed = make_text_message("m2", "[TODO] a </ledger> b")
    assert find_open_items([framed], [framed]) == ("[TODO] a b",)
