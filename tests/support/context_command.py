"""Request bodies for tests of `waystation context`, and a runner of the command."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from anthropic.types import MessageParam
from pydantic import ConfigDict, TypeAdapter

from waystation.cli.main import run
from waystation.context.message_rules import find_violations
from waystation.plugins.request_files.request_body import read_request_body

Json = dict[str, Any]
SUMMARY = "The parts were read one after another; each reported the error of its number. Nothing was changed."
SDK_MESSAGES = TypeAdapter[list[MessageParam]](list[MessageParam], config=ConfigDict(arbitrary_types_allowed=True))


def make_filler_words(tokens: int) -> str:
    return "word " * (tokens * 4 // 5)


def make_user_message(text: str) -> Json:
    return {"role": "user", "content": text}


def make_assistant_message(text: str) -> Json:
    return {"role": "assistant", "content": text}


def make_tool_use(call_id: str, tool: str = "read_file", **arguments: str) -> Json:
    return {"type": "tool_use", "id": call_id, "name": tool, "input": arguments}


def make_tool_result(call_id: str, content: str | list[Json], **fields: object) -> Json:
    return {"type": "tool_result", "tool_use_id": call_id, "content": content, **fields}


def make_tool_use_message(*uses: Json) -> Json:
    return {"role": "assistant", "content": [*uses]}


def make_tool_result_message(*blocks: Json) -> Json:
    return {"role": "user", "content": [*blocks]}


def make_tool_turns(count: int, tokens: int = 800, tool: str = "read_file", ids: str = "c") -> list[Json]:
    """Make this many tool calls with their results, as agents make them."""
    made: list[Json] = []
    for number in range(count):
        made.append(make_tool_use_message(make_tool_use(f"{ids}{number}", tool, path=f"docs/{number}.md")))
        made.append(
            make_tool_result_message(make_tool_result(f"{ids}{number}", f"{number} {make_filler_words(tokens)}"))
        )
    return made


def make_request_body(*messages: Json, **fields: object) -> Json:
    return {"model": "claude-sonnet-5-5", "system": "Work with care.", "messages": [*messages], **fields}


def make_full_request_body(count: int = 20) -> Json:
    """Make a conversation that fills a window of 10,000 tokens."""
    return make_request_body(
        make_user_message("Find out what changed."),
        *make_tool_turns(count),
        make_assistant_message("I have read all."),
        make_user_message("Now sum it up."),
    )


class ContextCommand:
    """Runs `waystation context` on files in one folder."""

    def __init__(self, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.folder, self.capsys = folder, capsys

    def write(self, content: object, name: str = "request.json") -> str:
        path = self.folder / name
        path.write_bytes(content if isinstance(content, bytes) else json.dumps(content).encode())
        return str(path)

    def run(self, command: str, content: object, *options: str) -> tuple[int, str, str]:
        """Return exit code, stdout and stderr."""
        code = run(["context", command, self.write(content), *options])
        said = self.capsys.readouterr()
        return code, said.out, said.err

    def run_json(self, command: str, content: object, *options: str) -> Json:
        code, out, err = self.run(command, content, "--json", *options)
        assert (code, err) == (0, "")
        return json.loads(out)

    def compact(self, content: object, *options: str, summary: str = SUMMARY, window: int = 10_000) -> Json:
        """Return the result of a compaction, and check that its view is legal and accepted by the SDK's types."""
        (self.folder / "summary.txt").write_text(summary, encoding="utf-8")
        given = ["--summary-file", str(self.folder / "summary.txt"), "--window", str(window)]
        done = self.run_json("compact", content, *given, *options)
        assert_legal(done["messages"])
        return done


@pytest.fixture
def context_cli(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> ContextCommand:
    monkeypatch.setenv("WAYSTATION_HOME", str(tmp_path / "home"))
    return ContextCommand(tmp_path, capsys)


def assert_legal(messages: Sequence[Json]) -> None:
    read = read_request_body(json.dumps({"messages": messages}).encode())
    assert find_violations([original.message for original in read.originals], pending_allowed=True) == ()
    SDK_MESSAGES.validate_python(messages)


def list_texts(messages: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return every text in the messages."""
    found: list[str] = []
    for message in messages:
        content = message["content"]
        blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
        found += [str(block.get("text", block.get("content", ""))) for block in blocks]
    return found
