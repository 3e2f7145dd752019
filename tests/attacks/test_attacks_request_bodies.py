"""Bodies of another shape than the API documents: the answer names the field and the right shape, in plain words."""

from pathlib import Path

import pytest
from pydantic import JsonValue

from tests.attacks.test_attacks_web_pages import BEARER, NO_SERVER, open_site_client
from waystation.config.settings import Settings

LIBRARY = ("Input should", "valid dictionary", "instance of", "valid tuple", "valid string", "model_attributes")


@pytest.mark.parametrize(
    ("body", "told"),
    [
        (
            {"question": "Q", "documents": ["/path"]},
            'documents must be a list of objects, each with a name and a text: [{"',
        ),
        ({"question": "Q", "documents": "/path"}, "documents must be a list of objects, each with a name and a text"),
        ({"question": "Q", "documents": [{"name": "a.md"}]}, "documents.0.text: it is missing"),
        ({"question": "Q", "documents": [{"name": "a.md", "text": 3}]}, "documents.0.text: it should be text"),
        ({"question": "Q", "procedures": ["x"]}, "procedures must be a list of objects"),
        ({"question": "Q", "accept": "x"}, "accept must be a list of texts"),
        ({"question": "Q", "accept": [3]}, "accept must be a list of texts"),
        ({"question": "Q", "servers": "github"}, "servers must be a list of names of tool servers"),
        ({"question": 3}, "question: it should be text"),
        ({"question": "Q", "review_plan": []}, "review_plan: it should be true or false"),
        ({"question": "Q", "mode": "x"}, "mode: it should be"),
        ({"question": "Q", "budget": 3}, "budget: it should be text"),
        ({"question": "Q", "color": 3}, "color: there is no such field"),
        ({}, "question: it is missing"),
        (["Q"], "body: it should be a JSON object with named fields"),
    ],
)
async def test_a_body_of_another_shape_is_told_the_right_one(
    body: JsonValue, told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TEMPORAL_ADDRESS", NO_SERVER)
    async with open_site_client(Settings(home=tmp_path)) as asking:
        answer = await asking.post("/v1/tasks", json=body, headers=BEARER)
    assert answer.status_code == 422
    detail = answer.json()["detail"]
    assert told in detail
    assert not [words for words in LIBRARY if words in detail]


@pytest.mark.parametrize("body", [b"[" * 100_000, b'{"a":' * 100_000, b'{"question": "Q"', b"\xff"])
async def test_a_body_that_is_no_json_is_told_so(body: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEMPORAL_ADDRESS", NO_SERVER)
    async with open_site_client(Settings(home=tmp_path)) as asking:
        headers = {**BEARER, "content-type": "application/json"}
        answer = await asking.post("/v1/tasks", content=body, headers=headers)
    assert answer.status_code in {400, 422}
    assert "JSON" in answer.json()["detail"]
    assert "error parsing" not in answer.json()["detail"]


@pytest.mark.parametrize("question", [" ", "\u0000", "\u202e\u200b", "\u2060\ufeff\u3164"])
async def test_a_question_in_which_nobody_can_read_anything_is_refused(
    question: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TEMPORAL_ADDRESS", NO_SERVER)
    asked = {"question": question, "documents": [{"name": "a.md", "text": "A"}]}
    async with open_site_client(Settings(home=tmp_path)) as asking:
        answer = await asking.post("/v1/tasks", json=asked, headers=BEARER)
    assert answer.status_code in {400, 422}
    assert answer.json()["detail"].startswith("question: it ")


async def test_a_document_in_which_nobody_can_read_anything_is_refused_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TEMPORAL_ADDRESS", NO_SERVER)
    documents = [{"name": "a.md", "text": "A"}, {"name": "b.md", "text": "\u200b"}]
    async with open_site_client(Settings(home=tmp_path)) as asking:
        answer = await asking.post("/v1/tasks", json={"question": "Q", "documents": documents}, headers=BEARER)
    assert answer.status_code == 400
    assert answer.json()["detail"].startswith("the document b.md is blank")
