"""Blocks of the Messages API that hold words are read where conversations are; what cannot be read is named."""

import asyncio
import json
from typing import Any

import pytest

from tests.support.context_command import (
    ContextCommand,
    Json,
    context_cli,
    make_assistant_message,
    make_full_request_body,
    make_request_body,
    make_tool_result,
    make_tool_result_message,
    make_tool_turns,
    make_user_message,
)
from waystation.agents.summariser import SummaryInput
from waystation.context.constraints import extract_identifiers
from waystation.memory.passage_builder import map_tool_names, render_message
from waystation.plugins.request_files.request_body import read_request_body
from waystation.testing.doubles import PlainRedactor

__all__ = ["context_cli"]
WORDS = "The cap is 424242 euros, see config/prod.yaml."
PLAIN = {"type": "text", "media_type": "text/plain", "data": WORDS}
PICTURE = {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo="}
READ: list[tuple[str, Json]] = [
    ("assistant", {"type": "compaction", "content": WORDS}),
    ("user", {"type": "document", "title": "Terms", "source": PLAIN}),
    ("user", {"type": "document", "source": {"type": "content", "content": [{"type": "text", "text": WORDS}]}}),
    ("user", {"type": "search_result", "source": "x", "title": "t", "content": [{"type": "text", "text": WORDS}]}),
    (
        "assistant",
        {
            "type": "web_fetch_tool_result",
            "tool_use_id": "srvtoolu_1",
            "content": {
                "type": "web_fetch_result",
                "url": "https://example.com",
                "content": {"type": "document", "source": PLAIN},
            },
        },
    ),
    (
        "assistant",
        {
            "type": "bash_code_execution_tool_result",
            "tool_use_id": "srvtoolu_2",
            "content": {"type": "bash_code_execution_result", "stdout": WORDS, "stderr": "", "return_code": 0},
        },
    ),
    ("assistant", {"type": "server_tool_use", "id": "srvtoolu_3", "name": "web_search", "input": {"query": WORDS}}),
]
UNREAD: list[tuple[str, Json]] = [
    ("user", {"type": "image", "source": PICTURE}),
    ("user", {"type": "document", "source": {"type": "base64", "media_type": "application/pdf", "data": "JVBERi0="}}),
    ("user", {"type": "document", "source": {"type": "file", "file_id": "file_1"}}),
    ("user", {"type": "document", "source": {"type": "url", "url": "https://example.com/a.pdf"}}),
]


def message(role: str, block: Json) -> Json:
    return {"role": role, "content": [block]}


@pytest.mark.parametrize(("role", "block"), READ)
def test_a_block_that_holds_words_is_read_as_words(role: str, block: Json) -> None:
    read = read_request_body(
        json.dumps(make_request_body(make_user_message("hi"), message(role, block))).encode()
    ).transcript
    said = render_message(read.messages[1], map_tool_names(read.messages))
    assert WORDS in said
    assert "config/prod.yaml" in str(extract_identifiers(said))
    middle, _ = asyncio.run(
        SummaryInput.build_redacted(read.messages, read, PlainRedactor({"424242": "<CARD_000000000000>"}), "t")
    )
    assert "The cap is <CARD_000000000000> euros" in middle.text


def test_what_comes_beside_a_results_text_is_read_too() -> None:
    attached: Any = {"type": "search_result", "source": "x", "title": "t", "content": [{"type": "text", "text": WORDS}]}
    given = make_request_body(
        make_user_message("hi"),
        *make_tool_turns(1),
        make_tool_result_message(make_tool_result("c9", [{"type": "text", "text": "found"}, attached])),
    )
    read = read_request_body(json.dumps(given).encode()).transcript
    assert WORDS in render_message(read.messages[-1], {})


@pytest.mark.parametrize(("role", "block"), UNREAD)
def test_what_nobody_can_read_is_named_when_it_is_hidden(context_cli: ContextCommand, role: str, block: Json) -> None:
    given = make_full_request_body()
    given["messages"][1:1] = [make_assistant_message("Show me."), message(role, block)]
    done = context_cli.compact(given)
    assert done["hidden"]
    assert f"Hidden but not summarised, because the summariser reads only text: 1 × {block['type']}." in done["notes"]


@pytest.mark.parametrize(("role", "block"), READ[:4])
def test_what_was_read_is_not_named_as_unread(context_cli: ContextCommand, role: str, block: Json) -> None:
    given = make_full_request_body()
    given["messages"][1:1] = [make_assistant_message("Show me."), message(role, block)]
    assert not any("unread" in note for note in context_cli.compact(given)["notes"])
