"""`waystation context compact` and the structure of what it gives back."""

import json

import pytest

from tests.support.context_command import (
    ContextCommand,
    Json,
    assert_legal,
    context_cli,
    list_texts,
    make_assistant_message,
    make_filler_words,
    make_full_request_body,
    make_request_body,
    make_tool_result,
    make_tool_result_message,
    make_tool_turns,
    make_tool_use,
    make_tool_use_message,
    make_user_message,
)

__all__ = ["context_cli"]


# S1
@pytest.mark.parametrize("messages", [[], [make_user_message("Hello.")]])
@pytest.mark.parametrize("option", [[], ["--force"]])
def test_nothing_is_done_to_an_empty_conversation_or_one_message(
    context_cli: ContextCommand, messages: list[Json], option: list[str]
) -> None:
    done = context_cli.compact(make_request_body(*messages), *option)
    assert (done["status"], done["attempts"], done["hidden"]) == ("NOOP", [], [])
    assert done["messages"] == messages
    assert done["tokens_before"] == done["tokens_after"]


# S2
@pytest.mark.parametrize("options", [[], ["--force"], ["--strategy", "replace"], ["--strategy", "ends"]])
def test_a_pending_call_at_the_end_stays_and_is_given_no_result(
    context_cli: ContextCommand, options: list[str]
) -> None:
    given = make_full_request_body()
    given["messages"].append(make_tool_use_message(make_tool_use("late", path="x")))
    done = context_cli.compact(given, *options)
    assert done["status"] == "COMPRESSED"
    assert done["messages"][-1] == given["messages"][-1]
    assert len(given["messages"]) - 1 in done["kept"]


# S3
@pytest.mark.parametrize("strategy", ["window", "snapshot", "replace", "ends"])
@pytest.mark.parametrize("count", range(14, 20))
def test_a_cut_never_parts_a_call_from_its_results(context_cli: ContextCommand, strategy: str, count: int) -> None:
    given = make_full_request_body(count)
    done = context_cli.compact(given, "--strategy", strategy)
    assert done["status"] == "COMPRESSED"
    for index in range(1, 2 * count, 2):
        assert (index in done["hidden"]) == (index + 1 in done["hidden"])
    assert sorted(done["hidden"] + done["kept"]) == list(range(len(given["messages"])))


# S4
def test_parallel_calls_stay_together_with_their_results_in_the_order_of_the_calls(
    context_cli: ContextCommand,
) -> None:
    asked = make_tool_use_message(make_tool_use("a"), make_tool_use("b"), make_tool_use("c"))
    one = [
        asked,
        make_tool_result_message(make_tool_result("c", "3"), make_tool_result("a", "1"), make_tool_result("b", "2")),
    ]
    three = [
        asked,
        make_tool_result_message(make_tool_result("b", "2")),
        make_tool_result_message(make_tool_result("c", "3")),
        make_tool_result_message(make_tool_result("a", "1")),
    ]
    for answered in (one, three):
        done = context_cli.compact(
            make_request_body(make_user_message("Go."), *answered, make_assistant_message("Done."))
        )
        given = [block["tool_use_id"] for block in done["messages"][2]["content"]]
        assert given == ["a", "b", "c"]
        hidden = context_cli.compact(
            make_request_body(
                make_user_message("Go."),
                *answered,
                *make_tool_turns(20),
                make_assistant_message("Done."),
                make_user_message("And?"),
            )
        )["hidden"]
        places = set(range(1, len(answered) + 1))
        assert places <= set(hidden) or not places & set(hidden)


# S5
def test_a_call_in_the_middle_without_a_result_gets_the_same_synthetic_one_every_time(
    context_cli: ContextCommand,
) -> None:
    given = make_request_body(
        make_user_message("Go."),
        make_tool_use_message(make_tool_use("lost")),
        make_assistant_message("I go on."),
        make_user_message("Yes."),
    )
    first, second = context_cli.compact(given), context_cli.compact(given)
    assert first == second
    assert first["messages"][2]["content"][0]["tool_use_id"] == "lost"
    assert first["messages"][2]["content"][0]["is_error"] is True
    assert context_cli.compact({**given, "messages": first["messages"]})["messages"] == first["messages"]
    assert any("messages[2]" in note for note in first["notes"])


# S6
def test_a_result_without_its_call_goes_and_the_text_beside_it_stays(context_cli: ContextCommand) -> None:
    beside = {"type": "text", "text": "Mind the date.", "cache_control": {"type": "ephemeral"}}
    done = context_cli.compact(
        make_request_body(
            make_user_message("Go."),
            make_assistant_message("Yes."),
            make_tool_result_message(make_tool_result("orphan", "x"), beside),
        )
    )
    assert done["messages"][2] == {"role": "user", "content": [beside]}


# S7
def test_of_two_results_of_one_call_the_first_wins(context_cli: ContextCommand) -> None:
    given = make_request_body(
        make_user_message("Go."),
        make_tool_use_message(make_tool_use("a")),
        make_tool_result_message(make_tool_result("a", "first")),
        make_tool_result_message(make_tool_result("a", "late")),
    )
    assert list_texts(context_cli.compact(given)["messages"])[2:] == ["first"]


# S8
@pytest.mark.parametrize("strategy", ["window", "snapshot", "replace", "ends"])
def test_signed_thinking_goes_with_its_tool_loop_or_stays_as_it_is(context_cli: ContextCommand, strategy: str) -> None:
    given = make_full_request_body()
    thought = {"type": "thinking", "thinking": "Read on…", "signature": "c2lnbmVk", "unknown": [1.5]}
    for message in given["messages"][1:-2:2]:
        message["content"].insert(0, thought)
    done = context_cli.compact(given, "--strategy", strategy)
    assert done["status"] == "COMPRESSED"
    for index in set(range(1, 41, 2)) & set(done["kept"]):
        assert given["messages"][index] in done["messages"]
    assert "Read on" not in json.dumps([message for message in done["messages"] if message not in given["messages"]])


# S9
def test_messages_of_images_documents_and_empty_texts_make_no_crash(context_cli: ContextCommand) -> None:
    image = {"type": "image", "source": {"type": "url", "url": "https://example.org/a.png"}}
    paper = {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": make_filler_words(300)}}
    given = make_full_request_body()
    given["messages"][1:1] = [
        make_tool_result_message(image),
        make_assistant_message("Seen."),
        make_tool_result_message(paper),
        make_tool_result_message({"type": "text", "text": ""}),
    ]
    done = context_cli.compact(given)
    assert done["status"] == "COMPRESSED"
    assert "messages[4]: blank text" in " ".join(done["notes"])
    alone = make_request_body(make_tool_result_message(image), make_assistant_message("A house."))
    assert context_cli.compact(alone)["messages"] == alone["messages"]


# S10
def test_whatever_is_wrong_with_a_history_the_view_is_legal(context_cli: ContextCommand) -> None:
    given: list[Json] = [
        make_assistant_message("I begin."),
        make_tool_result_message(make_tool_result("nobody", "x")),
        make_tool_use_message(make_tool_use("a"), make_tool_use("a")),
        make_user_message("Meanwhile."),
        make_tool_result_message(make_tool_result("a", "late")),
        {"role": "assistant", "content": [{"type": "thinking", "thinking": "…", "signature": "x"}]},
        {"role": "user", "content": [{"type": "tool_use", "id": "z", "name": "n", "input": {}}]},
        {"role": "user", "content": []},
    ]
    code, out, _ = context_cli.run("check", given, "--json")
    assert code == 1
    assert {fault["index"] for fault in json.loads(out)["violations"]} >= {0, 1, 2, 4, 5, 6, 7}
    done = context_cli.compact(given)
    assert_legal(done["messages"])
    assert context_cli.run("check", done["messages"])[0] == 0
