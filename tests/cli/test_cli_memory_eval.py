"""`waystation memory eval`: a conversation and questions from files, through the pipeline, to numbers."""

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from waystation.cli.main import run

TALK = (
    {"id": "a1", "speaker": "Ruth", "text": "The new wheel was audited in March by Nordbau.", "session": "spring"},
    {"id": "a2", "speaker": "Omar", "text": "Good. I am off to lunch now.", "session": "spring"},
    {"id": "a3", "role": "assistant", "text": "Noted for the minutes.", "session": "spring"},
    {
        "id": "b1",
        "role": "user",
        "text": "The brake costs 4,200 euros.",
        "session": "autumn",
        "time": "2026-09-01T08:00",
    },
    {"id": 5, "role": "user", "text": "Call me at 212-555-0147 about the harbour pilot.", "session": "autumn"},
)
ASKED = (
    {"id": "q1", "text": "who audited the wheel", "relevant": ["a1"]},
    {"id": "q2", "text": "what does the brake cost", "relevant": ["b1"]},
    {"id": "q3", "text": "which number for the harbour pilot", "relevant": ["5"]},
)


@pytest.fixture(autouse=True)
def no_embedder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"HOME": str(tmp_path / "home"), "EMBEDDER": "none"}.items():
        monkeypatch.setenv(f"WAYSTATION_{name}", value)


def written(path: Path, lines: Sequence[object]) -> str:
    path.write_text("\n".join(line if isinstance(line, str) else json.dumps(line) for line in lines))
    return str(path)


def evaluate(folder: Path, talk: Sequence[object], asked: Sequence[object], *options: str) -> int:
    conversation, queries = written(folder / "C.jsonl", talk), written(folder / "Q.jsonl", asked)
    return run(["memory", "eval", "--conversation", conversation, "--queries", queries, *options])


def test_a_conversation_is_measured_as_a_whole(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert evaluate(tmp_path, [*TALK, ""], ASKED, "--json", "--no-redact", "--tokens", "2000,10") == 0
    found = json.loads(capsys.readouterr().out)
    assert found["recall"] == [{"tokens": 10, "recall": 0.0}, {"tokens": 2_000, "recall": 1.0}]
    assert (found["mrr"], found["missed"], found["redacted"]) == (1.0, [], False)
    assert {key: found[key] for key in ("messages", "sessions", "questions", "passages", "embedder")} == {
        "messages": 5,
        "sessions": 2,
        "questions": 3,
        "passages": 2,
        "embedder": "none",
    }
    assert 50 < found["bytes_a_passage"] < 300
    assert found["median_ms"] > 0
    assert not (tmp_path / "home").exists()


def test_what_is_asked_with_private_words_is_found_redacted_and_said_in_words(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = [{"id": "q", "text": "who has 212-555-0147", "relevant": ["5"]}]
    assert evaluate(tmp_path, TALK, asked) == 0
    said = capsys.readouterr().out.splitlines()
    assert said[0].startswith("5 messages, 2 sessions: 2 passages of ")
    assert said[0].endswith("bytes on average; redacted; embedder none")
    assert said[1] == "recall 1.00 within 1,000 tokens, 1.00 within 2,000 tokens"
    assert said[3] == "questions with a message that was not found within 2,000 tokens: 0 of 1"


@pytest.mark.parametrize(
    ("talk", "asked", "said"),
    [
        (["{"], ASKED, "C.jsonl, line 1: not a JSON object"),
        ([TALK[0], "", {"id": "x", "role": "user"}], ASKED, "C.jsonl, line 3: text: it is missing"),
        ([{"id": "x", "text": "So."}], ASKED, "C.jsonl, line 1: role or speaker is missing"),
        ([TALK[0], TALK[0]], ASKED, "C.jsonl, line 2: the id 'a1' is already used in line 1"),
        (TALK, [ASKED[0], ASKED[0]], f"Q.jsonl, line 2: the id {ASKED[0]['id']!r} is already used in line 1"),
        (TALK, [{**ASKED[0], "text": " "}], "Q.jsonl, line 1: the question has no text"),
        (
            [{**TALK[0], "id": "a b"}],
            ASKED,
            "C.jsonl, line 1: id: it is too long or too short, or has characters that are not allowed",
        ),
        (
            TALK,
            [ASKED[0], {**ASKED[1], "relevant": ["z9"]}],
            "Q.jsonl, line 2: the field `relevant` names the id 'z9', but no message in",
        ),
        (TALK, [{**ASKED[0], "relevant": []}], "Q.jsonl, line 1: relevant: it is empty"),
        ([], ASKED, "is empty: it needs one JSON object per line"),
        (
            ['{"id": "x", "role": "user", "text": "So.", "text": "No."}'],
            ASKED,
            "line 1: the key 'text' occurs twice in",
        ),
        (['{"id": "x", "role": "user", "text": NaN}'], ASKED, "C.jsonl, line 1: NaN is not valid JSON"),
        (
            ['{"id": "x", "role": "user", "text": "", "more": [-Infinity]}'],
            ASKED,
            "line 1: -Infinity is not valid JSON",
        ),
        ([{**TALK[0], "time": 5}], ASKED, "C.jsonl, line 1: time: write an ISO 8601 time, like 2026-09-01T08:00"),
        ([{**TALK[0], "time": "5"}], ASKED, "line 1: time: write an ISO 8601 time"),
        ([{**TALK[0], "time": "yesterday"}], ASKED, "ISO 8601 time, like 2026-09-01T08:00\n"),
        ([{**TALK[0], "text": " "}], [{**ASKED[0], "relevant": ["a1"]}], "has no text: every message is empty"),
    ],
    ids=[
        "no JSON",
        "no text",
        "nobody",
        "twice",
        "asked twice",
        "asks nothing",
        "no id",
        "unknown id",
        "no evidence",
        "empty",
        "a key twice",
        "no number",
        "no number within",
        "a number as time",
        "a number in quotes as time",
        "words as time",
        "nothing said",
    ],
)
def test_a_line_that_cannot_be_used_is_named(
    tmp_path: Path, talk: Sequence[object], asked: Sequence[object], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert evaluate(tmp_path, talk, asked) == 2
    told = capsys.readouterr().err
    assert said in told
    assert told.count("ISO 8601") <= 1


def test_one_of_something_is_said_so_and_tokens_are_written_as_elsewhere(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    talk = [{**TALK[3], "time": time} for time in ("2026-09-01T08:00:00+02:00",)]
    assert evaluate(tmp_path, talk, [ASKED[1]], "--tokens", "1, 50k", "--no-redact") == 0
    said = capsys.readouterr().out
    assert said.startswith("1 message, 1 session: 1 passage of ")
    assert "recall 0.00 within 1 token, 1.00 within 50,000 tokens" in said


@pytest.mark.parametrize("tokens", ["none", "0", "1000,", "-5"])
def test_tokens_that_are_no_numbers_are_refused(
    tmp_path: Path, tokens: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert evaluate(tmp_path, TALK, ASKED, f"--tokens={tokens}") == 2
    assert "write numbers separated by commas, like 1000,2000" in capsys.readouterr().err
