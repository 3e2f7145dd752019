"""`waystation context compact`, `mask` and `tokens`, and sizes."""

import base64
import json
import struct
from pathlib import Path

import pytest

from tests.support.context_command import (
    SUMMARY,
    ContextCommand,
    Json,
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


def png(width: int, height: int) -> Json:
    head = b"\x89PNG\r\n\x1a\n" + struct.pack(">I4sII", 13, b"IHDR", width, height)
    data = base64.b64encode(head + bytes(9)).decode()
    return {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": data}}


# Z1
def test_a_summary_longer_than_what_it_replaces_is_refused_and_nothing_changes(context_cli: ContextCommand) -> None:
    given = make_full_request_body()
    done = context_cli.compact(given, "--force", summary=make_filler_words(40_000))
    assert done["status"] == "FAILED_INFLATED"
    assert [(attempt["status"], attempt["rule"]) for attempt in done["attempts"]] == [("FAILED_INFLATED", "inflated")]
    assert (done["messages"], done["hidden"], done["compaction_id"]) == (given["messages"], [], "")
    assert done["tokens_after"] == done["tokens_before"]


# Z1
def test_where_it_is_full_a_refused_summary_leads_to_a_truncation(context_cli: ContextCommand) -> None:
    done = context_cli.compact(make_full_request_body(), summary=make_filler_words(40_000))
    assert [attempt["status"] for attempt in done["attempts"]] == ["FAILED_INFLATED", "TRUNCATED"]
    assert done["status"] == "TRUNCATED"
    assert done["tokens_after"] < done["threshold"]
    assert list_texts(done["messages"])[0] == "Find out what changed."
    assert list_texts(done["messages"])[-1] == "Now sum it up."


# Z2: of agents, who remember it, in tests/agents/test_compactor_summary_retries.py
def test_a_summary_is_tried_once_a_command_and_again_where_a_person_forces_it(context_cli: ContextCommand) -> None:
    done = context_cli.compact(make_full_request_body(), summary=" ")
    assert [attempt["status"] for attempt in done["attempts"]] == ["FAILED_EMPTY_SUMMARY", "TRUNCATED"]
    again = context_cli.compact(done, summary=" ")
    assert (again["status"], again["attempts"]) == ("NOOP", [])
    forced = context_cli.compact(done, "--force", summary=" ")
    assert [attempt["status"] for attempt in forced["attempts"]] == ["FAILED_EMPTY_SUMMARY"]


# Z3
@pytest.mark.parametrize(
    ("summary", "status"),
    [
        ("", "FAILED_EMPTY_SUMMARY"),
        (" \n\t", "FAILED_EMPTY_SUMMARY"),
        ("<thinking>What shall I say?</thinking>", "FAILED_EMPTY_SUMMARY"),
        ("Error: 529 overloaded", "FAILED_CHECK"),
        ("I'm sorry, I cannot help with that.", "FAILED_CHECK"),
    ],
)
def test_a_summary_that_says_nothing_is_refused_and_the_history_stays_whole(
    context_cli: ContextCommand, summary: str, status: str
) -> None:
    given = make_full_request_body()
    done = context_cli.compact(given, "--force", summary=summary)
    assert (done["status"], done["messages"]) == (status, given["messages"])


# Z4
def test_the_turn_after_a_compaction_does_not_compact_again(context_cli: ContextCommand) -> None:
    done = context_cli.compact(make_full_request_body())
    more = [*done["messages"], *make_tool_turns(1, ids="next"), make_user_message("And?")]
    assert context_cli.compact({**make_full_request_body(), "messages": more})["status"] == "NOOP"


# Z5
@pytest.mark.parametrize("options", [[], ["--force"]])
def test_a_system_prompt_over_the_window_cannot_fit_and_its_size_is_told(
    context_cli: ContextCommand, options: list[str]
) -> None:
    tools = [{"name": "t", "description": make_filler_words(9_000), "input_schema": {"type": "object"}}]
    given = make_request_body(
        make_user_message("Go."),
        make_assistant_message("Yes."),
        make_user_message("On."),
        system=make_filler_words(3_000),
        tools=tools,
    )
    done = context_cli.compact(given, *options)
    assert (done["status"], len(done["attempts"])) == ("CANNOT_FIT", 1)
    assert "system prompt and tools 1" in done["attempts"][0]["reason"]
    assert done["messages"] == given["messages"]


# Z6
@pytest.mark.parametrize(
    ("options", "window", "threshold", "note"),
    [
        (["--window", "50M"], 880_000, 660_000, "--window 50,000,000 is not available"),
        (["--window", "0"], 200_000, 150_000, "--window 0 is not available"),
        (["--window=-3"], 200_000, 150_000, "is not available"),
        (["--max-output", "9M", "--window", "1M"], 880_000, 660_000, "--max-output 9,000,000 is not available"),
        (
            ["--threshold", "120"],
            200_000,
            150_000,
            "--threshold '120' is invalid, because the threshold must be 5 to 100, or -1 for the default. "
            "Using the default, 75",
        ),
        (["--threshold", "full"], 200_000, 150_000, "--threshold 'full' is invalid"),
        (["--threshold", "nan"], 200_000, 150_000, "--threshold 'nan' is invalid"),
        (["--threshold", "4"], 200_000, 150_000, "--threshold '4' is invalid"),
    ],
)
def test_a_window_or_threshold_that_cannot_be_is_replaced_and_reported(
    context_cli: ContextCommand, options: list[str], window: int, threshold: int, note: str
) -> None:
    done = context_cli.run_json("compact", make_request_body(make_user_message("Go.")), *options)
    assert (done["window"], done["threshold"]) == (window, threshold)
    assert note in " ".join(done["notes"])


def test_window_and_threshold_follow_model_profile_and_options(context_cli: ContextCommand) -> None:
    def terms(model: str | None, *options: str) -> tuple[int, int, int]:
        told = context_cli.run_json("tokens", {"model": model, "messages": []}, *options)
        return told["window"], told["threshold"], len(told["notes"])

    assert terms("claude-opus-5-5") == (200_000, 160_000, 0)
    assert terms("claude-haiku-4-5-20251001") == (160_000, 96_000, 0)
    assert terms("claude-haiku-4-5", "--max-output", "4k") == (176_000, 105_600, 0)
    assert terms("claude-sonnet-5-5", "--window", "10k", "--threshold", "50") == (10_000, 5_000, 0)
    assert terms("claude-opus-5-5", "--threshold", "-1") == (200_000, 160_000, 0)
    assert terms("somebodys-own") == (171_808, 128_856, 1)
    assert terms(None) == (171_808, 128_856, 1)


# Z8
def test_one_line_of_five_megabytes_becomes_a_preview_with_a_pointer(
    context_cli: ContextCommand, tmp_path: Path
) -> None:
    line = "x" * 5_000_000
    given = make_request_body(
        make_user_message("Go."),
        make_tool_use_message(make_tool_use("a")),
        make_tool_result_message(make_tool_result("a", line, cache_control={"type": "ephemeral"})),
    )
    done = context_cli.compact(given, window=100_000)
    assert done["status"] == "OFFLOADED"
    (block,) = done["messages"][2]["content"]
    assert len(block["content"]) < 5_000
    assert "All 5,000,000 characters are in messages[2] of the file that was compacted" in block["content"]
    assert block["cache_control"] == {"type": "ephemeral"}
    kept = context_cli.compact(given, "--originals", str(tmp_path / "whole"), window=100_000)
    (written,) = (tmp_path / "whole").iterdir()
    assert written.read_text() == line
    assert str(written) in kept["messages"][2]["content"][0]["content"]
    assert context_cli.compact(done, window=100_000)["messages"] == done["messages"]


# Z8
def test_where_an_original_cannot_be_written_nothing_is_hidden(context_cli: ContextCommand, tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("a file")
    given = make_request_body(
        make_user_message("Go."),
        make_tool_use_message(make_tool_use("a")),
        make_tool_result_message(make_tool_result("a", "x" * 900_000)),
    )
    code, out, err = context_cli.run("compact", given, "--window", "100k", "--originals", str(tmp_path / "taken"))
    assert (code, out) == (2, "")
    assert "cannot be written to" in err


# Z10
def test_a_truncation_after_a_compaction_makes_the_view_smaller_and_says_what_is_gone(
    context_cli: ContextCommand,
) -> None:
    first = context_cli.compact(make_full_request_body())
    given = {
        **make_full_request_body(),
        "messages": [*first["messages"], *make_tool_turns(20, ids="n"), make_user_message("And?")],
    }
    done = context_cli.compact(given, summary="")
    assert done["status"] == "TRUNCATED"
    assert done["tokens_after"] < done["tokens_before"]
    (marker,) = [text for text in list_texts(done["messages"]) if "earlier messages are hidden" in text]
    assert f"[{len(done['hidden'])} earlier" in marker
    assert sorted(done["hidden"] + done["kept"]) == list(range(len(given["messages"])))


# Z11
def test_every_size_is_of_the_whole_request(context_cli: ContextCommand) -> None:
    tools = [{"name": "read_file", "description": make_filler_words(2_000), "input_schema": {"type": "object"}}]
    given = {**make_full_request_body(), "system": make_filler_words(500), "tools": tools}
    counted = context_cli.run_json("tokens", given)
    done = context_cli.compact(given, window=20_000)
    assert done["tokens_before"] == counted["total"]
    assert done["tokens_after"] == context_cli.run_json("tokens", {**given, "messages": done["messages"]})["total"]
    assert counted["total"] == counted["system"] + counted["tools"] + sum(one["tokens"] for one in counted["messages"])
    assert counted["tools"] >= 2_000


def test_tokens_are_told_by_kind(context_cli: ContextCommand) -> None:
    attached: list[Json] = [{"type": "text", "text": make_filler_words(100)}, png(1_000, 750)]
    told = context_cli.run_json(
        "tokens",
        make_request_body(
            make_user_message("Hello."),
            make_tool_use_message(make_tool_use("a")),
            make_tool_result_message(make_tool_result("a", attached), png(9_999, 9_999)),
        ),
    )
    assert told["messages"][2]["kinds"] == {"overhead": 5, "image": 1_000 + 1_600, "tool_result": 100}
    assert told["kinds"]["image"] == 2_600
    code, out, _ = context_cli.run("tokens", make_request_body(make_user_message("Hello.")))
    assert code == 0
    assert "0 user: text 2" in out


def test_masking_spares_the_last_results_and_twice_is_once(context_cli: ContextCommand) -> None:
    given = make_request_body(
        make_user_message("Go."),
        *make_tool_turns(6, 1_500),
        *make_tool_turns(2, 1_500, tool="write_file", ids="w"),
        make_user_message("And?"),
    )
    done = context_cli.run_json("mask", given)
    assert (done["status"], done["masked"]) == ("MASKED", [2, 4, 6])
    assert done["tokens_after"] < done["tokens_before"]
    assert done["messages"][1] == given["messages"][1]
    assert done["messages"][2]["content"][0]["tool_use_id"] == "c0"
    again = context_cli.run_json("mask", done)
    assert (again["status"], again["messages"]) == ("NOOP", done["messages"])
    named = context_cli.run_json("mask", given, "--rereadable", "write_file")
    assert (named["status"], named["masked"]) == ("NOOP", [])


def test_masks_come_before_a_summary_where_they_are_enough(context_cli: ContextCommand) -> None:
    given = make_request_body(make_user_message("Go."), *make_tool_turns(8, 1_500), make_user_message("And?"))
    done = context_cli.compact(given, "--rereadable", "read_file", window=14_000)
    assert [attempt["status"] for attempt in done["attempts"]] == ["MASKED"]
    assert (done["status"], done["hidden"]) == ("MASKED", [])
    assert context_cli.compact(given, window=14_000)["status"] == "COMPRESSED"


# I6
def test_what_is_pinned_is_neither_masked_nor_previewed(context_cli: ContextCommand) -> None:
    given = make_request_body(make_user_message("Go."), *make_tool_turns(12, 1_500), make_user_message("And?"))
    options = ["--rereadable", "read_file", "--pin", "2"]
    done = context_cli.compact(given, *options, window=22_000)
    assert (done["status"], done["masked"]) == ("MASKED", [4, 6, 8, 10, 12, 14, 16, 18])
    assert done["messages"][2] == given["messages"][2]
    large = make_request_body(
        make_user_message("Go."),
        *make_tool_turns(1, 2_500),
        *make_tool_turns(4, 2_500, ids="n"),
        make_user_message("And?"),
    )
    done = context_cli.compact(large, "--pin", "2", window=14_500)
    assert done["messages"][done["kept"].index(2)] == large["messages"][2]


def test_a_manual_compaction_summarises_though_nothing_is_full(context_cli: ContextCommand) -> None:
    assert context_cli.compact(make_full_request_body(), window=200_000)["status"] == "NOOP"
    done = context_cli.compact(make_full_request_body(), "--force", window=200_000)
    assert (done["status"], len(done["attempts"])) == ("COMPRESSED", 1)
    assert SUMMARY in json.dumps(done["messages"])


def test_the_text_says_what_was_done_and_where_the_messages_are(context_cli: ContextCommand) -> None:
    (context_cli.folder / "s.txt").write_text(SUMMARY)
    options = ["--summary-file", str(context_cli.folder / "s.txt"), "--window", "10k", "--strategy", "window"]
    code, out, _ = context_cli.run("compact", make_full_request_body(), *options)
    assert code == 0
    assert out.startswith("COMPRESSED  ")
    assert "hidden: 3" in out
    assert "--json > compacted.json" in out
