import json

import httpx2
import pytest
from pydantic import JsonValue

from waystation.kernel.errors import ModelUnavailable
from waystation.kernel.usage import Usage
from waystation.models.anthropic.model import AnthropicSearch, create_anthropic_search
from waystation.models.ports import WebSearchResult
from waystation.security.web_addresses import DomainPolicy
from waystation.testing.messages_server import ScriptedAnswer, ScriptedServer, build_error_response

ANYWHERE = DomainPolicy(allow=("*",))
HARBOUR, KEEPER = "https://example.org/harbour", "https://example.org/keeper"


def result(url: str, title: str, age: str | None = None) -> JsonValue:
    return {"type": "web_search_result", "url": url, "title": title, "page_age": age, "encrypted_content": "c2VjcmV0"}


def cited(url: str, words: str) -> JsonValue:
    location = {"type": "web_search_result_location", "url": url, "cited_text": words, "encrypted_index": "eA=="}
    return {"type": "text", "text": "It helps.", "citations": [{**location, "title": "Any"}]}


def answer(found: JsonValue, *texts: JsonValue) -> httpx2.Response:
    call = {"type": "server_tool_use", "id": "srv1", "name": "web_search", "input": {"query": "harbour"}}
    results = {"type": "web_search_tool_result", "tool_use_id": "srv1", "content": found}
    body = {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "claude-haiku-5-5",
        "content": [call, results, *texts],
        "stop_reason": "end_turn",
        "stop_sequence": None,
        "usage": {
            "input_tokens": 9_000,
            "output_tokens": 120,
            "server_tool_use": {"web_search_requests": 1, "web_fetch_requests": 0},
        },
    }
    return httpx2.Response(200, json=body)


def search(answers: list[ScriptedAnswer], domains: DomainPolicy = ANYWHERE) -> tuple[AnthropicSearch, ScriptedServer]:
    server = ScriptedServer(answers)
    client = server.build_http_client()
    return create_anthropic_search("key", "claude-haiku-5-5", domains, "http://model.test", client), server


async def test_pages_come_with_what_is_cited_of_them_and_with_what_the_search_used() -> None:
    results = [result(HARBOUR, "The harbour", "May 2026"), result(KEEPER, "The keeper"), result(HARBOUR, "Again")]
    words = [cited(HARBOUR, "It silted up."), cited(HARBOUR, "In 1821."), cited(HARBOUR, "It silted up.")]
    web, _ = search([answer(results, *words)])
    found = await web.search("harbour", 5)
    assert found.hits == (
        WebSearchResult(url=HARBOUR, title="The harbour", excerpt="It silted up. … In 1821.", age="May 2026"),
        WebSearchResult(url=KEEPER, title="The keeper"),
    )
    assert found.usage == Usage(input=9_000, output=120, searches=1)


@pytest.mark.parametrize("used", [None, {}, {"input_tokens": 0, "output_tokens": 0}])
async def test_searches_that_no_usage_tells_of_are_counted_by_their_results(used: dict[str, JsonValue] | None) -> None:
    def without_usage(found: JsonValue) -> httpx2.Response:
        body = json.loads(answer(found).content)
        del body["usage"]
        return httpx2.Response(200, json=body if used is None else {**body, "usage": used})

    failed: JsonValue = {"type": "web_search_tool_result_error", "error_code": "unavailable"}
    web, _ = search([without_usage([result(HARBOUR, "One")]), without_usage(failed)])
    assert (await web.search("harbour", 5)).usage == Usage(searches=1)
    assert (await web.search("harbour", 5)).usage == Usage()


async def test_no_more_pages_are_named_than_asked_for() -> None:
    web, _ = search([answer([result(HARBOUR, "One"), result(KEEPER, "Two")])])
    assert [hit.title for hit in (await web.search("harbour", 1)).hits] == ["One"]


@pytest.mark.parametrize(
    ("domains", "sent"),
    [
        (ANYWHERE, {}),
        (DomainPolicy(), {}),
        (DomainPolicy(allow=("example.org",), deny=("x.example.org",)), {"allowed_domains": ["example.org"]}),
        (DomainPolicy(allow=("*",), deny=("bad.test",)), {"blocked_domains": ["bad.test"]}),
    ],
)
async def test_a_search_is_one_bounded_use_of_the_tool_within_the_domains(
    domains: DomainPolicy, sent: dict[str, JsonValue]
) -> None:
    web, server = search([answer([])], domains)
    await web.search("why did it silt up?", 5)
    (body,) = server.request_bodies
    tool = {"type": "web_search_20260318", "name": "web_search", "max_uses": 1, "allowed_callers": ["direct"]}
    assert body["tools"] == [tool | sent]
    assert body["max_tokens"] == 1_500
    assert body["messages"] == [{"role": "user", "content": "<query>\nwhy did it silt up?\n</query>"}]


async def test_a_search_that_failed_at_the_provider_says_how_and_what_it_used() -> None:
    web, _ = search([answer({"type": "web_search_tool_result_error", "error_code": "too_many_requests"})])
    found = await web.search("harbour", 5)
    assert (found.hits, found.fault, found.usage.input) == ((), "too_many_requests", 9_000)


async def test_a_failed_call_is_not_repeated_in_here() -> None:
    web, server = search([build_error_response(529, "overloaded_error"), answer([])])
    with pytest.raises(ModelUnavailable):
        await web.search("harbour", 5)
    assert len(server.requests) == 1
