"""`waystation context compact` and the structure of what it gives back."""

import json

import pytest

from tests.unit.context_files import (
    Context,
    Json,
    assistant,
    body,
    calls,
    context,
    full,
    legal,
    result,
    results,
    texts,
    turns,
    use,
    user,
    words,
)

__all__ = ["context"]


# S1
@pytest.mark.parametrize("messages", [[], [user("Hello.")]])
@pytest.mark.parametrize("option", [[], ["--force"]])
def test_nothing_is_done_to_an_empty_conversation_or_one_message(
    context: Context, messages: list[Json], option: list[str]
) -> None:
    done = context.compacted(body(*messages), *option)
    assert (done["status"], done["attempts"], done["hidden"]) == ("NOOP", [], [])
    assert done["messages"] == messages
    assert done["tokens_before"] == done["tokens_after"]


# S2
@pytest.mark.parametrize("options", [[], ["--force"], ["--strategy", "replace"], ["--strategy", "ends"]])
def test_a_pending_call_at_the_end_stays_and_is_given_no_result(context: Context, options: list[str]) -> None:
    given = full()
    given["messages"].append(calls(use("late", path="x")))
    done = context.compacted(given, *options)
    assert done["status"] == "COMPRESSED"
    assert done["messages"][-1] == given["messages"][-1]
    assert len(given["messages"]) - 1 in done["kept"]


# S3
@pytest.mark.parametrize("strategy", ["window", "snapshot", "replace", "ends"])
@pytest.mark.parametrize("count", range(14, 20))
def test_a_cut_never_parts_a_call_from_its_results(context: Context, strategy: str, count: int) -> None:
    given = full(count)
    done = context.compacted(given, "--strategy", strategy)
    assert done["status"] == "COMPRESSED"
    for index in range(1, 2 * count, 2):
        assert (index in done["hidden"]) == (index + 1 in done["hidden"])
    assert sorted(done["hidden"] + done["kept"]) == list(range(len(given["messages"])))


# S4
def test_parallel_calls_stay_together_with_their_results_in_the_order_of_the_calls(context: Context) -> None:
    asked = calls(use("a"), use("b"), use("c"))
    one = [asked, results(result("c", "3"), result("a", "1"), result("b", "2"))]
    three = [asked, results(result("b", "2")), results(result("c", "3")), results(result("a", "1"))]
    for answered in (one, three):
        done = context.compacted(body(user("Go."), *answered, assistant("Done.")))
        given = [block["tool_use_id"] for block in done["messages"][2]["content"]]
        assert given == ["a", "b", "c"]
        hidden = context.compacted(body(user("Go."), *answered, *turns(20), assistant("Done."), user("And?")))["hidden"]
        places = set(range(1, len(answered) + 1))
        assert places <= set(hidden) or not places & set(hidden)


# S5
def test_a_call_in_the_middle_without_a_result_gets_the_same_synthetic_one_every_time(context: Context) -> None:
    given = body(user("Go."), calls(use("lost")), assistant("I go on."), user("Yes."))
    first, second = context.compacted(given), context.compacted(given)
    assert first == second
    assert first["messages"][2]["content"][0]["tool_use_id"] == "lost"
    assert first["messages"][2]["content"][0]["is_error"] is True
    assert context.compacted({**given, "messages": first["messages"]})["messages"] == first["messages"]
    assert any("messages[2]" in note for note in first["notes"])


# S6
def test_a_result_without_its_call_goes_and_the_text_beside_it_stays(context: Context) -> None:
    beside = {"type": "text", "text": "Mind the date.", "cache_control": {"type": "ephemeral"}}
    done = context.compacted(body(user("Go."), assistant("Yes."), results(result("orphan", "x"), beside)))
    assert done["messages"][2] == {"role": "user", "content": [beside]}


# S7
def test_of_two_results_of_one_call_the_first_wins(context: Context) -> None:
    given = body(user("Go."), calls(use("a")), results(result("a", "first")), results(result("a", "late")))
    assert texts(context.compacted(given)["messages"])[2:] == ["first"]


# S8
@pytest.mark.parametrize("strategy", ["window", "snapshot", "replace", "ends"])
def test_signed_thinking_goes_with_its_tool_loop_or_stays_as_it_is(context: Context, strategy: str) -> None:
    given = full()
    thought = {"type": "thinking", "thinking": "Read on…", "signature": "c2lnbmVk", "unknown": [1.5]}
    for message in given["messages"][1:-2:2]:
        message["content"].insert(0, thought)
    done = context.compacted(given, "--strategy", strategy)
    assert done["status"] == "COMPRESSED"
    for index in set(range(1, 41, 2)) & set(done["kept"]):
        assert given["messages"][index] in done["messages"]
    assert "Read on" not in json.dumps([message for message in done["messages"] if message not in given["messages"]])


# S9
def test_messages_of_images_documents_and_empty_texts_make_no_crash(context: Context) -> None:
    image = {"type": "image", "source": {"type": "url", "url": "https://example.org/a.png"}}
    paper = {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": words(300)}}
    given = full()
    given["messages"][1:1] = [results(image), assistant("Seen."), results(paper), results({"type": "text", "text": ""})]
    done = context.compacted(given)
    assert done["status"] == "COMPRESSED"
    assert "messages[4]: blank text" in " ".join(done["notes"])
    alone = body(results(image), assistant("A house."))
    assert context.compacted(alone)["messages"] == alone["messages"]


# S10
def test_whatever_is_wrong_with_a_history_the_view_is_legal(context: Context) -> None:
    given: list[Json] = [
        assistant("I begin."),
        results(result("nobody", "x")),
        calls(use("a"), use("a")),
        user("Meanwhile."),
        results(result("a", "late")),
        {"role": "assistant", "content": [{"type": "thinking", "thinking": "…", "signature": "x"}]},
        {"role": "user", "content": [{"type": "tool_use", "id": "z", "name": "n", "input": {}}]},
        {"role": "user", "content": []},
    ]
    code, out, _ = context.told("check", given, "--json")
    assert code == 1
    assert {fault["index"] for fault in json.loads(out)["violations"]} >= {0, 1, 2, 4, 5, 6, 7}
    done = context.compacted(given)
    legal(done["messages"])
    assert context.told("check", done["messages"])[0] == 0
