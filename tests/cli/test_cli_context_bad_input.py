"""`waystation context` and files that cannot be used, or not wholly."""

import json
import shutil
import subprocess
import sys
from itertools import product
from pathlib import Path

import pytest

from tests.support.context_command import (
    SUMMARY,
    ContextCommand,
    Json,
    context_cli,
    make_assistant_message,
    make_full_request_body,
    make_request_body,
    make_tool_result_message,
    make_tool_use,
    make_tool_use_message,
    make_user_message,
)

__all__ = ["context_cli"]

DEEP = '{"a":' * 400 + "1" + "}" * 400


def block(**fields: object) -> bytes:
    return json.dumps(make_request_body({"role": "user", "content": [fields]})).encode()


MALFORMED = [
    (b"", "it is empty: give a request body"),
    (b"\xef\xbb\xbf  ", "it is not JSON"),
    (b"3", "the request: must be an object but is a number"),
    (b'"x"', "the request: must be an object but is a string"),
    (b"{", "it is not JSON: Expecting property name"),
    (b'{"messages": []} x', "it is not JSON: Extra data (line 1, column 18)"),
    (b'{"messages": [], "x": NaN}', "NaN is not a number"),
    (b'{"messages": [], "x": -Infinity}', "-Infinity is not a number"),
    (b'{"messages": [], "x": 1e999}', "a number is too large"),
    (b'{"messages": [], "x": ' + b"1" * 5_000 + b"}", "a number has too many digits"),
    (b'{"messages": [{"role": "user", "content": "\xff"}]}', "it is not utf-8 text: byte 43 cannot be read"),
    (b'{"messages": [{"role": "user", "role": "user"}]}', "messages[0]: the key 'role' occurs twice in this object"),
    (b'{"messages": [{"role": "user", "content": "\\ud800"}]}', "messages[0].content: half of a character"),
    (b"[" * 100_000 + b"]" * 100_000, "nested too deeply"),
    (block(type="tool_use", id="a", name="b", input={"deep": 0}).replace(b'{"deep": 0}', DEEP.encode()), "too deeply"),
    (b"{}", "messages: is missing"),
    (b'{"messages": {}}', "messages: must be an array but is an object"),
    (b"[3]", "messages[0]: must be an object but is a number"),
    (b'{"messages": [{"content": "x"}]}', "messages[0].role: is missing"),
    (b'{"messages": [{"role": "tool", "content": "x"}]}', "messages[0].role: must be user, assistant or system"),
    (b'{"messages": [{"role": "user"}]}', "messages[0].content: is missing"),
    (b'{"messages": [{"role": "user", "content": 5}]}', "messages[0].content: must be a string or an array"),
    (b'{"messages": [], "model": 5}', "model: must be a string but is a number"),
    (b'{"messages": [], "system": [{"type": "text"}]}', "system[0].text: is missing"),
    (b'{"messages": [], "tools": [true]}', "tools[0]: must be an object but is a boolean"),
    (block(), "messages[0].content[0].type: is missing"),
    (block(type="tool_result", content="x"), "messages[0].content[0].tool_use_id: is missing"),
    (block(type="tool_result", tool_use_id="", content="x"), "messages[0].content[0].tool_use_id: must not be empty"),
    (
        block(type="tool_result", tool_use_id="a", is_error="no"),
        "messages[0].content[0].is_error: must be true or false",
    ),
    (block(type="tool_result", tool_use_id="a", content=[3]), "messages[0].content[0].content[0]: must be an object"),
    (block(type="tool_use", id="a", name="b", input=[]), "messages[0].content[0].input: must be an object"),
    (block(type="thinking", thinking="x"), "messages[0].content[0].signature: is missing"),
    (block(type="image"), "messages[0].content[0].source: is missing"),
    (block(type="image", source={"type": "base64"}), "messages[0].content[0].source.data: is missing"),
]


def test_a_malformed_file_is_refused_in_one_line_that_names_the_place(context_cli: ContextCommand) -> None:
    wrong, home = dict[tuple[str, bytes], tuple[int, str, str]](), context_cli.folder / "home"
    for command, (raw, words) in product(("compact", "mask", "tokens"), MALFORMED):
        code, out, err = context_cli.run(command, raw, "--json")
        in_one_line = (code, out, err.count("\n")) == (2, "", 1)
        if not in_one_line or "request.json: " not in err or words not in err or home.exists():
            wrong[command, raw[:200]] = (code, out, err)
            shutil.rmtree(home, ignore_errors=True)
    assert wrong == {}


def test_errors_do_not_repeat_the_conversation(context_cli: ContextCommand) -> None:
    given = b'{"messages": [{"role": "hush-1", "content": "hush-2"}]}'
    _, _, err = context_cli.run("compact", given)
    assert "hush" not in err


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--strategy", "clever"], "Invalid value for '--strategy'"),
        (["--pin", "first"], "Invalid value for '--pin'"),
        (["--window", "much"], "--window takes 0 to 1,000,000,000 tokens"),
        (["--summary-file", "/nowhere.txt"], "/nowhere.txt cannot be read: No such file"),
    ],
)
def test_options_that_cannot_be_used_are_bad_usage(context_cli: ContextCommand, options: list[str], words: str) -> None:
    code, out, err = context_cli.run("compact", make_full_request_body(), *options)
    assert (code, out) == (2, "")
    assert words in " ".join(err.split())


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-32-le"])
def test_encodings_of_json_are_understood(context_cli: ContextCommand, encoding: str) -> None:
    given = json.dumps(make_request_body(make_user_message("Grüße 四月")), ensure_ascii=False)
    assert context_cli.run_json("compact", given.encode(encoding))["messages"] == [make_user_message("Grüße 四月")]


def test_an_array_is_taken_for_the_messages(context_cli: ContextCommand) -> None:
    done = context_cli.run_json("compact", [make_user_message("Hello.")])
    assert done["messages"] == [make_user_message("Hello.")]
    assert "The request names no model: assuming a window of 200,000 tokens." in done["notes"]


def test_all_faults_are_listed_with_their_places(context_cli: ContextCommand) -> None:
    marked: Json = {"type": "text", "text": "x", "cache_control": {"type": "ephemeral"}}
    given = make_request_body(
        {"role": "user", "content": [{"type": "tool_result", "content": "x"}, {"type": "text", "text": " "}]},
        make_tool_use_message(
            make_tool_use("bad id", "bad name"), {"type": "image", "source": {"type": "url", "url": "u"}}
        ),
        make_tool_result_message({"type": "tool_result", "tool_use_id": "bad id", "content": [{"type": "thinking"}]}),
        make_tool_use_message(make_tool_use("a"), make_tool_use("a")),
        {"role": "robot", "content": "x"},
        make_tool_result_message(*[marked] * 5),
        model=7,
        tools=[{"name": "t"}, {"name": "t"}],
    )
    code, out, _ = context_cli.run("check", given)
    assert code == 1
    assert out.splitlines() == [
        "model: must be a non-empty string",
        "tools[1].name: is also the name of an earlier tool",
        "the request: has 5 blocks with cache_control; the maximum is 4",
        "messages[0].content[0].tool_use_id: is missing",
        "messages[0]: blank text",
        "messages[1]: a block of type image is not allowed in a message of the assistant",
        "messages[1].content[0].name: must be 1 to 128 letters, digits, hyphens or underscores",
        "messages[1].content[0].id: must be letters, digits, hyphens or underscores",
        "messages[2].content[0].content[0].type: is not a block type that a tool_result can contain",
        "messages[3].content[1].id: is also the id of an earlier call",
        "messages[4].role: must be user, assistant or system",
        "messages[4]: calls of the previous message lack results",
    ]


def test_a_legal_conversation_has_no_faults(context_cli: ContextCommand) -> None:
    assert context_cli.run("check", make_full_request_body()) == (0, "legal\n", "")
    assert context_cli.run_json("check", make_full_request_body()) == {"legal": True, "violations": []}
    code, out, _ = context_cli.run(
        "check", make_request_body(make_user_message("Go."), make_tool_use_message(make_tool_use("a"))), "--json"
    )
    assert code == 1
    assert json.loads(out)["violations"] == [
        {"path": "messages[1]", "index": 1, "fault": "the last calls have no results"}
    ]


def test_instructions_of_the_operator_in_mid_conversation_stay(context_cli: ContextCommand) -> None:
    given = make_full_request_body()
    given["messages"][5:5] = [{"role": "system", "content": "From now on: metric units."}]
    done = context_cli.compact(given)
    assert (done["status"], done["pinned"]) == ("COMPRESSED", [5])
    assert given["messages"][5] in done["messages"]


def process(*arguments: str, stdin: bytes = b"", home: Path) -> subprocess.CompletedProcess[bytes]:
    command = [sys.executable, "-m", "waystation.cli.main", "context", *arguments]
    environment = {"WAYSTATION_HOME": str(home), "PATH": ""}
    return subprocess.run(command, input=stdin, capture_output=True, check=False, env=environment)


def test_a_process_reads_stdin_and_prints_nothing_but_json(tmp_path: Path) -> None:
    (tmp_path / "s.txt").write_text(SUMMARY)
    options = ["--summary-file", str(tmp_path / "s.txt"), "--window", "10k", "--json"]
    told = process("compact", "-", *options, stdin=json.dumps(make_full_request_body()).encode(), home=tmp_path)
    assert (told.returncode, told.stderr) == (0, b"")
    done = json.loads(told.stdout)
    assert done["status"] == "COMPRESSED"
    again = process("compact", "-", *options, stdin=told.stdout, home=tmp_path)
    assert json.loads(again.stdout)["messages"] == done["messages"]


def test_without_a_summary_the_model_reads_a_redacted_conversation_and_the_users_words_stay(
    tmp_path: Path,
) -> None:
    given = make_full_request_body()
    given["messages"][9:9] = [
        make_user_message("Write to anna.lee@example.com by noon."),
        make_assistant_message("I shall."),
    ]
    told = process("compact", "-", "--window", "10k", "--json", stdin=json.dumps(given).encode(), home=tmp_path)
    assert (told.returncode, told.stderr) == (0, b"")
    done = json.loads(told.stdout)
    assert done["status"] == "COMPRESSED"
    assert 9 in done["hidden"]
    written, _, ledger = str(done["messages"][1]["content"]).partition("<ledger>")
    assert "anna.lee@example.com" not in written
    assert "asked: Write to anna.lee@example.com by noon." in ledger
    assert "Asked waystation-offline-1 for the summary, with 1 private value redacted" in done["notes"][0]
