"""Whatever is sent to the API: it is answered as its own description says, and never by a failure of the server."""

import asyncio
import json
import re
from collections.abc import Mapping, Sequence
from html import unescape
from pathlib import Path
from socket import create_server
from typing import Any, NamedTuple

import httpx2
import pytest
from fastapi import FastAPI
from hypothesis import HealthCheck, given
from hypothesis import settings as examples
from hypothesis import strategies as st
from starlette.types import Receive, Scope, Send

from tests.attacks.test_attacks_web_pages import ACCESS, BEARER, HERE, NO_SERVER, SITE, open_site_client
from tests.support.finished_tasks import make_task_row, store_finished_task
from waystation.client import Client
from waystation.config.settings import Settings
from waystation.kernel.amount import Amount
from waystation.kernel.clock import utc_now
from waystation.kernel.errors import BadInput
from waystation.plugins.web.api import v1
from waystation.plugins.web.app import ServerDeps, SiteServer, create_app
from waystation.runtime.sql_store import SqlStore
from waystation.tasks.task import TaskPhase, TaskRequest
from waystation.tasks.view import as_stored

WITHOUT_END = "/v1/events"
NEVER = "task-fedcba9876543210"
PAGES = ("", "/report", "/run.html", "/agents/writing", "/agents/writing/compactions")
ODD = ["", " ", "\x00", "é\u202e", "../x", "-1", "0", "1" * 400, "$2.00", "600k", "m1", "writing", "1e9", "null", "🙂"]
WORDS = st.sampled_from(ODD) | st.text(max_size=20)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | WORDS, lambda inner: st.lists(inner, max_size=3), max_leaves=4
)


class Operation(NamedTuple):
    """One entry of the description."""

    method: str
    path: str
    query: Sequence[str]
    fields: Mapping[str, Sequence[str]]
    """Of the body, with values that one of them names."""
    statuses: frozenset[int]


def operations() -> list[Operation]:
    """As the OpenAPI of the routes has them."""
    described = FastAPI()
    described.include_router(v1)
    openapi: dict[str, Any] = described.openapi()
    shapes = openapi["components"]["schemas"]
    found: list[Operation] = []
    for path, methods in openapi["paths"].items():
        for method, said in methods.items():
            query = [one["name"] for one in said.get("parameters", []) if one["in"] == "query"]
            body = said.get("requestBody", {}).get("content", {}).get("application/json", {}).get("schema", {})
            fields = shapes.get(body.get("$ref", "").rpartition("/")[2], {}).get("properties", {})
            known = {name: one.get("enum", []) for name, one in fields.items()}
            found.append(Operation(method, path, query, known, frozenset(map(int, said["responses"]))))
    return [one for one in found if one.path != WITHOUT_END]


OPERATIONS = operations()


class Asked(NamedTuple):
    """A request, and what it may be answered with."""

    method: str
    path: str
    query: Mapping[str, str]
    body: bytes
    statuses: frozenset[int]


def asked_of(data: st.DataObject, operation: Operation, task: str) -> Asked:
    places = {"{task}": st.sampled_from([task, task[:9], "task-0123456789abcdef"]) | WORDS, "{agent}": WORDS}
    path = operation.path
    for place, values in {**places, "{session}": WORDS}.items():
        if place in path:
            path = path.replace(place, httpx2.URL("/", params={"p": data.draw(values)}).query.decode()[2:] or "x")
    query = {name: data.draw(WORDS) for name in operation.query if data.draw(st.booleans())}
    fields = {
        name: data.draw(st.sampled_from(known) if known else VALUES)
        for name, known in operation.fields.items()
        if data.draw(st.booleans())
    }
    body = json.dumps(fields).encode() if data.draw(st.integers(0, 9)) else b"{"
    return Asked(operation.method, path, query, body, operation.statuses)


async def answered(settings: Settings, requests: Sequence[Asked]) -> list[tuple[Asked, httpx2.Response]]:
    async with await Client.connect(settings) as client:
        transport = httpx2.ASGITransport(app=create_app(SITE, client, settings.tenant, ServerDeps(ACCESS)))
        headers = {**BEARER, "Content-Type": "application/json"}
        async with httpx2.AsyncClient(transport=transport, base_url=HERE, headers=headers) as asking:
            return [
                (one, await asking.request(one.method, one.path, params=one.query, content=one.body))
                for one in requests
            ]


@pytest.fixture(scope="module")
def ended(tmp_path_factory: pytest.TempPathFactory) -> tuple[Settings, str]:
    """A task that is over, in a home of its own."""
    settings = Settings(home=Path(tmp_path_factory.mktemp("home")) / "home", offline=True)
    return settings, asyncio.run(store_finished_task(settings))


@given(data=st.data())
@examples(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_every_answer_is_one_that_the_description_names(ended: tuple[Settings, str], data: st.DataObject) -> None:
    settings, task = ended
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("TEMPORAL_ADDRESS", NO_SERVER)
        requests = [asked_of(data, operation, task) for operation in OPERATIONS]
        for request, answer in asyncio.run(answered(settings, requests)):
            assert answer.status_code in request.statuses, (request, answer.text)
            if answer.status_code >= 400:
                assert answer.headers["content-type"] == "application/problem+json"
                assert answer.json()["detail"]


@given(data=st.data())
@examples(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_on_no_route_does_a_tenant_tell_anothers_task_from_one_that_never_was(
    ended: tuple[Settings, str], data: st.DataObject
) -> None:
    settings, task = ended
    other = settings.replace(tenant="other")
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("TEMPORAL_ADDRESS", NO_SERVER)
        theirs = [asked_of(data, operation, task) for operation in OPERATIONS if "{task}" in operation.path]
        theirs += [Asked("GET", f"/tasks/{task}{rest}", {}, b"", frozenset()) for rest in PAGES]
        none = [one._replace(path=one.path.replace(task, NEVER).replace(task[:9], NEVER[:9])) for one in theirs]
        answers = asyncio.run(answered(other, [*theirs, *none]))
    for (request, answer), (_, of_none) in zip(answers[: len(none)], answers[len(none) :], strict=True):
        said = answer.text.replace(task, NEVER).replace(task[:9], NEVER[:9])
        assert (answer.status_code, said) == (of_none.status_code, of_none.text), request


@pytest.mark.parametrize("seen", ["x", "-1", "1e3", "9" * 16, "1, 2"])
async def test_a_number_that_is_none_is_refused(seen: str, ended: tuple[Settings, str]) -> None:
    settings, task = ended
    async with open_site_client(settings) as asking:
        answers = [
            await asking.get(path, headers={**BEARER, "Last-Event-ID": seen})
            for path in ("/v1/events", f"/v1/tasks/{task}/events")
        ]
    assert [answer.status_code for answer in answers] == [422, 422]


async def test_a_refusal_repeats_neither_long_names_nor_every_fault(ended: tuple[Settings, str]) -> None:
    settings, _ = ended
    long = "x" * 100_000
    many = [{long[:1_000]: "a"}] * 900
    async with open_site_client(settings) as asking:
        refused = [
            (await asking.post("/v1/tasks", headers={**BEARER, "Idempotency-Key": "q"}, json=body)).json()["detail"]
            for body in ({"question": "Why?", long: 1}, {"question": "Why?", "documents": many})
        ]
        known = {"question": "Why?", "documents": [{"name": "a.md", "text": "a"}] * 1_001}
        too_many = await asking.post("/v1/tasks", headers={**BEARER, "Idempotency-Key": "q"}, json=known)
    assert [len(one) < 15_000 for one in refused] == [True, True]
    assert refused[1].endswith(f"and {3 * 900 - 20:,} more")
    assert "1,001 documents are too many for one request (maximum 1,000)" in too_many.json()["detail"]


@pytest.mark.parametrize("nothing", ["0", "$0", "0+$0.00"])
async def test_an_amount_of_nothing_is_refused_and_not_read_as_what_was_asked_for(
    nothing: str, ended: tuple[Settings, str]
) -> None:
    settings, task = ended
    given, ours = {"request_id": "r-1", "add": nothing}, {**BEARER, "Origin": HERE}
    async with open_site_client(settings) as asking:
        answers = [
            await asking.post(f"/v1/tasks/{task}/approve", headers=BEARER, json=given),
            await asking.post(f"/tasks/{task}/approve", headers=ours, data={**given, "mark": ACCESS.csrf_token}),
        ]
    for answer in answers:
        assert (answer.status_code, "an amount of zero grants nothing" in answer.text.lower()) == (400, True)


async def test_a_plain_small_amount_is_refused_with_a_question_after_its_unit(ended: tuple[Settings, str]) -> None:
    settings, task = ended
    async with open_site_client(settings) as asking:
        answer = await asking.post(
            f"/v1/tasks/{task}/approve", headers=BEARER, json={"request_id": "r-1", "add": "200"}
        )
    assert (answer.status_code, "did you mean 200k or '$200'?" in answer.text) == (400, True)


async def test_a_client_grants_no_amount_of_nothing(ended: tuple[Settings, str]) -> None:
    settings, task = ended
    async with await Client.connect(settings) as client:
        with pytest.raises(BadInput, match="leave the amount out to grant the requested one"):
            await client.approve(task, request_id="r-1", amount=Amount())
        with pytest.raises(BadInput, match="leave the amount out to grant the requested one"):
            await client.approve_many(task, ["r-1"], Amount())


async def test_who_listens_to_all_tasks_hears_of_no_other_tenant(ended: tuple[Settings, str]) -> None:
    settings, _ = ended
    async with open_site_client(settings, tenant="other") as asking:
        answer = await asking.get("/v1/events?after=1", headers=BEARER)
    assert (answer.status_code, "the newest is 0" in answer.json()["detail"]) == (400, True)


async def test_tasks_in_a_phase_are_found_behind_more_than_fifty_newer_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TEMPORAL_ADDRESS", NO_SERVER)
    settings = Settings(home=tmp_path / "home", offline=True)
    task = await store_finished_task(settings)
    store = await SqlStore.open(settings.database_url, utc_now)
    for number in range(51):
        asked = TaskRequest(question="Later?", session="default", request_id=f"later-{number}")
        row = make_task_row(asked, settings, await store.get_store_id())
        await store.register_task(row, ())
        await store.save_task_progress(row.ref.task_id, as_stored(row, TaskPhase.DONE))
    await store.aclose()
    async with open_site_client(settings) as asking:
        newest, partial, done, both, to_come, worded = [
            [one["task_id"] for one in (await asking.get(f"/v1/tasks{query}", headers=BEARER)).json()]
            for query in (
                "",
                "?phase=partial",
                "?phase=done",
                "?phase=done&phase=partial&since=2026-01-01",
                "?since=2999-01-01T00:00",
                "?text=cocoa",
            )
        ]
        refused = await asking.get("/v1/tasks?since=soon", headers=BEARER)
    assert (len(newest), task in newest, partial, len(done)) == (50, False, [task], 51)
    assert (len(both), to_come, worded, refused.status_code) == (52, [], [], 422)


async def test_the_list_of_tasks_is_looked_through_by_state_text_and_session(
    ended: tuple[Settings, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TEMPORAL_ADDRESS", NO_SERVER)
    settings, task = ended
    looked: dict[str, int] = {}
    async with open_site_client(settings) as asking:
        for query in ("", "phase=&text=&session=", "phase=partial&text=", "phase=done", "text=cocoa", "session=default",
                      "session=spring", "first=1", "phase=partial&session=spring"):  # fmt: skip
            answer = await asking.get(f"/?{query}", headers=BEARER)
            looked[query] = answer.text.count(f'href="/tasks/{task}"') if answer.status_code == 200 else -1
        wrong = await asking.get("/?phase=never", headers=BEARER)
        last = await asking.get("/?phase=partial&text=%22%3E%3Cscript%3Ealert(1)&session=x", headers=BEARER)
    assert looked == {
        "": 1, "phase=&text=&session=": 1, "phase=partial&text=": 1, "phase=done": 0, "text=cocoa": 0,
        "session=default": 1, "session=spring": 0, "first=1": 0, "phase=partial&session=spring": 0,
    }  # fmt: skip
    assert (wrong.status_code, "No task matches." in last.text, "<script>alert" in last.text) == (422, True, False)
    assert "<option selected>partial</option>" in last.text


async def test_what_a_list_does_not_show_is_behind_a_link_that_keeps_what_is_looked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TEMPORAL_ADDRESS", NO_SERVER)
    settings = Settings(home=tmp_path / "home", offline=True)
    await store_finished_task(settings)
    store = await SqlStore.open(settings.database_url, utc_now)
    for number in range(2):
        asked = TaskRequest(question="Later?", session="a&b", request_id=f"page-{number}")
        row = make_task_row(asked, settings, await store.get_store_id())
        await store.register_task(row, ())
        await store.save_task_progress(row.ref.task_id, as_stored(row, TaskPhase.DONE))
    await store.aclose()
    async with open_site_client(settings) as asking:
        page = await asking.get("/?session=a%26b&count=1", headers=BEARER)
        (link,) = re.findall(r'href="(/\?[^"]*)">More tasks', page.text)
        rest = await asking.get(unescape(link), headers=BEARER)
    assert link == "/?phase=&amp;text=&amp;session=a%26b&amp;first=1"
    assert (rest.text.count('<td><a href="/tasks/'), "More tasks" in rest.text) == (1, False)


async def test_who_comes_when_all_connections_are_held_is_sent_away_and_let_in_again(
    ended: tuple[Settings, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    settings, _ = ended
    monkeypatch.setenv("TEMPORAL_ADDRESS", NO_SERVER)
    listener = create_server(("127.0.0.1", 0))
    port = listener.getsockname()[1]
    access = ACCESS.replace(port=port)
    async with await Client.connect(settings) as client, httpx2.AsyncClient(headers=BEARER) as asking:
        server = SiteServer(create_app(SITE, client, settings.tenant, ServerDeps(access)), at_once=3)
        running = asyncio.create_task(server.serve_until_cancelled(listener))
        held = [await asyncio.open_connection("127.0.0.1", port) for _ in range(3)]
        one_too_many = await asking.get(f"http://127.0.0.1:{port}/v1/tasks")
        for _, writer in held:
            writer.close()
        async with asyncio.timeout(30):
            while (again := await asking.get(f"http://127.0.0.1:{port}/v1/tasks")).status_code == 503:
                await asyncio.sleep(0.05)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
    assert (one_too_many.status_code, again.status_code, len(again.json())) == (503, 200, 1)


async def test_what_breaks_in_the_server_is_logged_by_its_kind_and_place_and_without_words(
    capsys: pytest.CaptureFixture[str],
) -> None:
    words = "ada@example.com \x1b[2J"

    async def broken(scope: Scope, receive: Receive, send: Send) -> None:
        raise KeyError(words) from ValueError(words)

    with create_server(("127.0.0.1", 0)) as listener:
        running = asyncio.create_task(SiteServer(broken).serve_until_cancelled(listener))
        async with httpx2.AsyncClient() as asking:
            answer = await asking.get(f"http://127.0.0.1:{listener.getsockname()[1]}/")
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
    logged = capsys.readouterr().err
    assert answer.status_code == 500
    assert ("in broken" in logged, "KeyError" in logged) == (True, True)
    assert ("ada@" in logged, "\x1b" in logged) == (False, False)
