"""What other sites, other tenants and foreign words try on `waystation serve`, and what a person sees there."""

import asyncio
import json
import re
from collections.abc import AsyncGenerator
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from socket import create_server

import httpx2
import pytest
from fastapi import APIRouter
from starlette.exceptions import HTTPException

from tests.support.finished_tasks import make_task_row, store_finished_task
from tests.support.store_values import make_charge, make_intent, make_reply
from waystation.agents.action_approvals import ActionQuestion
from waystation.agents.task_messages import TaskMessage
from waystation.client import Client
from waystation.client.submission import NOT_FOLLOWED
from waystation.config.settings import Settings
from waystation.documents.documents import SourceDocument
from waystation.kernel.amount import Amount, Limit
from waystation.kernel.clock import utc_now
from waystation.kernel.refs import RunRef
from waystation.planning.plan import Plan, PlanVersion, Step, build_standard_plan
from waystation.plugins.web.access import COOKIE, MAX_BODY_BYTES, AccessPolicy, BrowserSession
from waystation.plugins.web.api import v1
from waystation.plugins.web.app import ServerDeps, SiteConfig, SiteServer, create_app
from waystation.plugins.web.charts import build_budget_bar
from waystation.plugins.web.diagrams import build_plan_diagram
from waystation.plugins.web.pages import pages, render_error_page
from waystation.plugins.web.request_bodies import raise_if_refused
from waystation.plugins.web.task_page import FOLDER
from waystation.reports.markdown import render_report_html
from waystation.runtime.sql_store import SqlStore
from waystation.tasks.signals import AnswerResult
from waystation.tasks.task import ApprovalRequest, TaskPhase, TaskRequest
from waystation.tasks.view import TaskBudgetView, as_stored
from waystation.workers.memory import MemoryReader

ACCESS = AccessPolicy(token="t" * 43, port=8520)
SITE = SiteConfig(api=v1, pages=pages, files=FOLDER / "static", render_error=render_error_page)
HERE = "http://127.0.0.1:8520"
BEARER = {"Authorization": f"Bearer {ACCESS.token}"}
SIGNED_IN = ACCESS.make_cookie(BrowserSession("", "1"))
COOKIES = {"Cookie": f"{COOKIE}={SIGNED_IN}"}
SCRIPT = "<script>alert(1)</script>"
NO_SERVER = "127.0.0.1:9"
DOCUMENT = {"name": "a.md", "text": "# A"}


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    monkeypatch.setenv("TEMPORAL_ADDRESS", NO_SERVER)
    return Settings(home=tmp_path / "home", offline=True)


@asynccontextmanager
async def open_site_client(settings: Settings, tenant: str | None = None) -> AsyncGenerator[httpx2.AsyncClient]:
    settings = settings if tenant is None else settings.replace(tenant=tenant)
    async with await Client.connect(settings) as client, aclosing(MemoryReader(settings)) as memory:
        asked = ServerDeps(ACCESS, memory=memory)
        transport = httpx2.ASGITransport(app=create_app(SITE, client, settings.tenant, asked))
        async with httpx2.AsyncClient(transport=transport, base_url=HERE) as asking:
            yield asking


async def store_hostile_task(settings: Settings) -> str:
    """A task that is over, in which everything foreign is markup."""
    settings.home.mkdir(exist_ok=True)
    store = await SqlStore.open(settings.database_url, utc_now)
    row = make_task_row(
        TaskRequest(question=SCRIPT, session="default", request_id="r2"), settings, await store.get_store_id()
    )
    await store.register_task(row, (SourceDocument(name="a.md", text="# A\n"),))
    words = (
        f'# Report\n\n{SCRIPT}\n\n[x](javascript:alert(1)) ![p](https://a.example/p.png) <img src=x onerror="a()">\n'
    )
    question = ActionQuestion(call_id="c1", tool="send", text=SCRIPT, digest="d")
    asked = ApprovalRequest(
        request_id="q1", agent="writing", action=question, requested=Amount(), decision="denied", note=SCRIPT
    )
    told = TaskMessage(number=1, text=await store.put_text(SCRIPT, row.ref.scope), by=SCRIPT, sent_at=utc_now())
    over = as_stored(row, TaskPhase.PARTIAL).replace(
        task_messages=(told,),
        notes=(SCRIPT,),
        title=f'{SCRIPT}"\u202e\u001b[2J',
        approvals=(asked,),
        report=await store.put_text(words, row.ref.scope),
    )
    await store.save_task_progress(row.ref.task_id, over)
    await store.aclose()
    return row.ref.task_id


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:8520", "127.0.0.1", "127.0.0.1:8521", "localhost.evil.example:8520", ""]
)
async def test_a_name_that_was_bound_to_this_machine_is_refused(host: str, settings: Settings) -> None:
    async with open_site_client(settings) as asking:
        answer = await asking.get("/v1/tasks", headers={**BEARER, "Host": host})
    assert answer.status_code == 421


@pytest.mark.parametrize(
    "origin",
    ["https://evil.example", "null", "http://127.0.0.1:3000", "https://127.0.0.1:8520", f"{HERE}.evil.example"],
)
async def test_pages_of_other_origins_change_nothing(origin: str, settings: Settings) -> None:
    task = await store_finished_task(settings)
    async with open_site_client(settings) as asking:
        answer = await asking.post(
            f"/tasks/{task}/cancel", headers={**COOKIES, "Origin": origin}, data={"mark": ACCESS.csrf_token}
        )
        read = await asking.get("/v1/tasks", headers={**BEARER, "Origin": origin})
    assert (answer.status_code, read.status_code) == (403, 403)


async def test_a_browser_that_names_no_page_changes_nothing(settings: Settings) -> None:
    task = await store_finished_task(settings)
    async with open_site_client(settings) as asking:
        answer = await asking.post(f"/v1/tasks/{task}/cancel", headers=COOKIES)
    assert answer.status_code == 403


@pytest.mark.parametrize("mark", ["", "0" * 64, SIGNED_IN, ACCESS.token])
@pytest.mark.parametrize("action", ["approve", "deny", "deliver", "cancel", "message", "fork", "agents/writing/edit"])
async def test_a_form_that_is_not_ours_changes_nothing(action: str, mark: str, settings: Settings) -> None:
    task = await store_finished_task(settings)
    async with open_site_client(settings) as asking:
        answer = await asking.post(
            f"/tasks/{task}/{action}", headers={**COOKIES, "Origin": HERE}, data={"mark": mark, "request_id": "q"}
        )
    assert (answer.status_code, "server has restarted" in answer.text) == (403, True)


async def test_our_own_form_is_taken(settings: Settings) -> None:
    task = await store_finished_task(settings)
    async with open_site_client(settings) as asking:
        answer = await asking.post(
            f"/tasks/{task}/cancel", headers={**COOKIES, "Origin": HERE}, data={"mark": ACCESS.csrf_token}
        )
    assert (answer.status_code, answer.headers["location"]) == (303, f"/tasks/{task}")


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Authorization": "Bearer "},
        {"Authorization": f"Bearer {SIGNED_IN}"},
        {"Authorization": f"Basic {ACCESS.token}"},
        {"Cookie": f"{COOKIE}={ACCESS.token}"},
        {"Cookie": f"{COOKIE}=; {COOKIE}é="},
        {"Cookie": f"{COOKIE}={SIGNED_IN}; {COOKIE}=x"},
    ],
)
@pytest.mark.parametrize(
    "path",
    [
        "/",
        "/?token=wrong",
        f"/?{'a=1&' * 9}",
        "/v1/tasks",
        "/v1/openapi.json",
        "/sessions",
    ],
)
async def test_who_has_no_token_sees_nothing(path: str, headers: dict[str, str], settings: Settings) -> None:
    async with open_site_client(settings) as asking:
        answer = await asking.get(path, headers=[(name.encode(), value.encode()) for name, value in headers.items()])
    assert (answer.status_code, answer.headers["content-type"]) == (401, "application/problem+json")


async def test_the_printed_address_signs_a_browser_in_and_leaves_no_token_in_it(settings: Settings) -> None:
    async with open_site_client(settings) as asking:
        answer = await asking.get(f"/?token={ACCESS.token}")
        front = await asking.get("/")
    assert (answer.status_code, answer.headers["location"], front.status_code) == (303, "/", 200)
    cookie, _, attributes = answer.headers["set-cookie"].partition("; ")
    assert ACCESS.parse_cookie(cookie.removeprefix(f"{COOKIE}=")) is not None
    assert attributes == "HttpOnly; Path=/; SameSite=strict"
    assert ACCESS.token not in front.text


async def test_cookies_of_other_programs_do_not_hide_ours(settings: Settings) -> None:
    async with open_site_client(settings) as asking:
        answer = await asking.get("/v1/tasks", headers={"Cookie": f'theme={{"a": 1}}; a b; {COOKIE}={SIGNED_IN}'})
    assert answer.status_code == 200


async def test_failures_nobody_foresaw_are_told_without_their_words_one_after_the_other(settings: Settings) -> None:
    broken = APIRouter(prefix="/v1")

    @broken.get("/broken")
    async def fail() -> None:  # pyright: ignore[reportUnusedFunction] # a route
        raise RuntimeError("the words of a document")

    async with await Client.connect(settings) as client:
        app = create_app(SITE._replace(api=broken), client, settings.tenant, ServerDeps(ACCESS))
        with create_server(("127.0.0.1", 0)) as listener:
            running = asyncio.create_task(SiteServer(app).serve_until_cancelled(listener))
            async with httpx2.AsyncClient(base_url=f"http://127.0.0.1:{listener.getsockname()[1]}") as asking:
                asked = {**BEARER, "Host": HERE.removeprefix("http://")}
                answers = [await asking.get("/v1/broken", headers=asked) for _ in range(3)]
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
    for answer in answers:
        assert (answer.status_code, answer.headers["content-type"]) == (500, "application/problem+json")
        assert answer.headers["connection"] == "close", "who sends the next request on it would be cut off"
        assert "RuntimeError" not in answer.text
        assert "the words" not in answer.text
        assert "content-security-policy" in answer.headers


async def test_every_form_for_a_task_has_an_id_of_its_own_so_that_a_second_click_finds_the_first(
    settings: Settings,
) -> None:
    async with open_site_client(settings) as asking:
        pages_seen = [(await asking.get("/", headers=BEARER)).text for _ in range(2)]
    first, second = [text.partition('name="request_id" value="')[2][:16] for text in pages_seen]
    assert len(first) == 16
    assert first != second


def test_who_answers_second_is_told_so() -> None:
    with pytest.raises(HTTPException) as refused:
        raise_if_refused(AnswerResult(outcome="refused", reason="it was approved by Ada"))
    assert (refused.value.status_code, refused.value.detail) == (409, "it was approved by Ada")


async def test_foreign_words_are_text_on_every_page(settings: Settings) -> None:
    task = await store_hostile_task(settings)
    async with open_site_client(settings) as asking:
        paths = ("/", f"/tasks/{task}", "/session?name=default", f"/tasks/{task}/run.html", f"/session?name={SCRIPT}")
        texts = [(await asking.get(path, headers=BEARER)).text for path in paths]
        html = await asking.get(f"/v1/tasks/{task}/report?form=html", headers=BEARER)
    for text in (*texts, html.text):
        assert "<script>alert" not in text
        assert "<img" not in text
        assert 'javascript:alert(1)"' not in text
        assert not {"\u202e", "\u001b"} & set(text)
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in texts[0]
    # Its title, what it was told and by whom, what was noted, and the request.
    assert texts[1].count("&lt;script&gt;") >= 6
    assert all("&lt;script&gt;" in text for text in texts[2:])


async def test_every_answer_forbids_inline_code_and_frames(settings: Settings) -> None:
    async with open_site_client(settings) as asking:
        answers = [await asking.get(path, headers=BEARER) for path in ("/", "/v1/tasks", "/static/live.js", "/nothing")]
        answers.append(await asking.get("/"))
    for answer in answers:
        policy = answer.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "frame-ancestors 'none'" in policy
        assert "unsafe" not in policy
        assert answer.headers["x-content-type-options"] == "nosniff"
    assert all(" style=" not in answer.text and " onclick" not in answer.text for answer in answers)


@pytest.mark.parametrize(
    "path",
    [
        "/v1/tasks/{}", "/v1/tasks/{}/report", "/v1/tasks/{}/cost", "/v1/tasks/{}/documents",
        "/v1/tasks/{}/compactions", "/v1/tasks/{}/events", "/v1/tasks/{}/agents/writing/transcript",
        "/v1/tasks/{}/agents/writing/view", "/tasks/{}", "/tasks/{}/report", "/tasks/{}/agents/writing",
    ],
)  # fmt: skip
async def test_another_tenants_task_is_as_unknown_as_none(path: str, settings: Settings) -> None:
    task = await store_finished_task(settings)
    none = "task-0123456789abcdef"
    async with open_site_client(settings, tenant="other") as asking:
        theirs, nothing = [await asking.get(path.format(one), headers=BEARER) for one in (task, none)]
    assert (theirs.status_code, theirs.text.replace(task, none)) == (404, nothing.text)


@pytest.mark.parametrize("action", ["cancel", "approve", "deny", "deliver", "message"])
async def test_another_tenants_task_takes_no_orders(action: str, settings: Settings) -> None:
    task = await store_finished_task(settings)
    async with open_site_client(settings, tenant="other") as asking:
        answer = await asking.post(
            f"/v1/tasks/{task}/{action}",
            headers=BEARER,
            json={"message": {"message": "m"}, "deliver": {}}.get(action, {"request_id": "q"}),
        )
    assert answer.status_code == 404


@pytest.mark.parametrize(
    "path",
    ["/static/../app.py", "/static/%2e%2e/app.py", "/static/..%2f..%2fclient/client.py", "/static//etc/passwd",
     "/tasks/..%2f..%2fetc", "/v1/tasks/task-%25", "/v1/tasks/____", "/tasks/task-0/agents/..%2f.."],
)  # fmt: skip
async def test_paths_lead_nowhere_else(path: str, settings: Settings) -> None:
    async with open_site_client(settings) as asking:
        answer = await asking.get(path, headers=BEARER)
    assert answer.status_code == 404


@pytest.mark.parametrize("announced", [True, False])
async def test_a_body_has_an_end(announced: bool, settings: Settings) -> None:
    async def endless() -> AsyncGenerator[bytes]:
        for _ in range(MAX_BODY_BYTES // 1_000_000 + 2):
            yield b" " * 1_000_000

    async with open_site_client(settings) as asking:
        more = {"Content-Length": "5000000000"} if announced else {}
        answer = await asking.post("/v1/tasks", headers={**BEARER, **more}, content=b"{}" if announced else endless())
    assert answer.status_code == 413


async def test_a_server_that_is_away_is_said_and_what_is_stored_still_shown(settings: Settings) -> None:
    task = await store_finished_task(settings)
    async with open_site_client(settings) as asking:
        waiting = await asking.get("/v1/approvals", headers=BEARER)
        front = await asking.get("/", headers=BEARER)
        listed = await asking.get("/v1/tasks", headers=BEARER)
        report = await asking.get(f"/v1/tasks/{task}/report", headers=BEARER)
    assert "Nothing waits" not in front.text
    assert (waiting.status_code, waiting.json()["title"]) == (503, "Not reachable")
    assert (front.status_code, 'class="remark"' in front.text) == (200, True)
    assert [one["task_id"] for one in listed.json()] == [task]
    versions = [{"number": 1, "phase": "partial", "stored_at": None}]
    stored = {
        "task_id": task,
        "phase": "partial",
        "version": 1,
        "markdown": "# Report",
        "versions": versions,
        "sentences": [],
    }
    assert report.json() == stored | {"model": "waystation-offline-1"}


NUMBERS = re.compile(r"^id: (\d+)$", re.MULTILINE)


async def test_events_go_on_behind_the_last_one_and_end_with_the_task(settings: Settings) -> None:
    task = await store_finished_task(settings)
    async with open_site_client(settings) as asking:
        told, rest, last, later = [
            await asking.get(f"/v1/tasks/{task}/events", headers={**BEARER, **seen})
            for seen in ({}, {"Last-Event-ID": "1"}, {"Last-Event-ID": "2"}, {"Last-Event-ID": "3"})
        ]
    assert NUMBERS.findall(told.text) == ["1", "2"]
    assert [json.loads(line)["kind"] for line in re.findall(r"^data: (.*)$", told.text, re.MULTILINE)] == [
        "submitted",
        "ended",
    ]
    assert NUMBERS.findall(rest.text) == ["2"]
    assert (last.status_code, last.text) == (204, "")
    assert (later.status_code, "in this store yet" in later.json()["detail"]) == (400, True)


async def store_running_task(settings: Settings) -> str:
    """A task that a worker has begun, with what one agent said."""
    settings.home.mkdir(exist_ok=True)
    store = await SqlStore.open(settings.database_url, utc_now)
    row = make_task_row(
        TaskRequest(question="Which?", session="default", request_id="r3"), settings, await store.get_store_id()
    )
    await store.register_task(row, ())
    await store.save_task_title(row.ref.task_id, "Which?")
    await store.save_plan(row.ref.task_id, build_standard_plan("Which?"))
    run = RunRef(**row.ref.model_dump(), step_id="research", role="research")
    await store.open_run(run)
    fence = await store.acquire_fence(run.run_id)
    await store.record_and_count_intents(fence, make_intent("turn-1"))
    await store.commit_reply(fence, 0, make_reply(1), make_charge("turn-1"))
    await store.aclose()
    return row.ref.task_id


async def test_a_running_tasks_page_shows_what_the_store_has_while_the_server_is_away(settings: Settings) -> None:
    task = await store_running_task(settings)
    async with open_site_client(settings) as asking:
        page = await asking.get(f"/tasks/{task}", headers=BEARER)
        agent = await asking.get(f"/tasks/{task}/agents/research", headers=BEARER)
    assert page.status_code == 200
    assert 'class="remark"' in page.text
    assert '<a href="/session?name=default">default</a>' in page.text
    asked = r'asked <time datetime="[^"]+">\d{4}-\d\d-\d\d \d\d:\d\d UTC</time> ·\s+so far \d+s'
    assert re.search(asked, page.text)
    assert f"<dt>writing</dt><dd>{build_standard_plan('Which?').steps[-1].goal}</dd>" in page.text
    assert re.search(r'<tr><td>research</td><td>[^<]+</td><td>turn</td><td class="number">1</td>', page.text)
    assert f'href="/tasks/{task}/agents/research#reply-1"><rect class="call"' in page.text
    assert 'id="reply-1"' in agent.text
    assert f"{NOT_FOLLOWED[1:]}." in page.text  # it is run by the built-in model


async def test_a_citation_opens_its_lines_beside_the_report(settings: Settings) -> None:
    settings.home.mkdir(exist_ok=True)
    store = await SqlStore.open(settings.database_url, utc_now)
    row = make_task_row(
        TaskRequest(question="Which?", session="default", request_id="r4"), settings, await store.get_store_id()
    )
    text = "".join(f"line {number} {SCRIPT}\n" for number in range(1, 100))
    await store.register_task(row, (SourceDocument(name="a.md", text=text),))
    words = f"# Which\n\nThis one [a.md:40-41]. That one {SCRIPT} [gone.md:1-2].\n"
    report = await store.put_text(words, row.ref.scope)
    await store.save_task_progress(row.ref.task_id, as_stored(row, TaskPhase.DONE).replace(report=report))
    await store.aclose()
    path = f"/tasks/{row.ref.task_id}/report"
    async with open_site_client(settings) as asking:
        plain, cited, gone, none = [
            await asking.get(path, headers=BEARER, params=wanted)
            for wanted in ({}, {"source": "1"}, {"source": "2"}, {"source": "9"})
        ]
        whole = await asking.get(f"/tasks/{row.ref.task_id}/document", headers=BEARER, params={"name": "a.md"})
    assert f'href="{path}?source=1#source"' in plain.text
    assert re.findall(r'<tr id="line-(\d+)" class="cited">', whole.text) == ["40", "41"]
    assert "<th>1</th>" in whole.text
    lit = re.findall(r'<tr class="cited"><th>(\d+)</th>', cited.text)
    assert lit == ["40", "41"]
    assert "<th>28</th>" in cited.text
    assert "<th>27</th>" not in cited.text
    assert "has no document" in gone.text
    assert "Open a citation" in none.text
    assert all("<script>alert" not in answer.text for answer in (plain, cited, gone, whole))


async def test_what_cannot_be_used_is_said_without_repeating_it(settings: Settings) -> None:
    async with open_site_client(settings) as asking:
        answer = await asking.post("/v1/tasks", headers=BEARER, json={"question": "", "budget": SCRIPT})
        amount = await asking.post(
            "/v1/tasks/task-00000000/approve", headers=BEARER, json={"request_id": "q", "add": "lots"}
        )
        little = await asking.post(
            "/v1/tasks", headers=BEARER, json={"question": "Which?", "budget": "12", "documents": [DOCUMENT]}
        )
        unheard = [await asking.request(method, "/v1/sessions", headers=BEARER) for method in ("DELETE", "PATCH")]
    assert (answer.status_code, SCRIPT in answer.text) == (422, False)
    assert little.json()["detail"] == "budget: it should be from 2,000 to 1,000,000,000 tokens"
    assert {answer.status_code for answer in unheard} == {405}
    assert all("/v1/openapi.json lists all addresses" in answer.json()["detail"] for answer in unheard)
    assert (amount.status_code, "lots" in amount.json()["detail"]) == (400, True)


def test_a_report_keeps_its_words_and_loses_what_acts() -> None:
    assert render_report_html("**a** <b>c</b> <https://a.example/>") == (
        '<p><strong>a</strong> &lt;b&gt;c&lt;/b&gt; <a href="https://a.example/">https://a.example/</a></p>\n'
    )


def test_the_bar_shows_the_unit_that_ends_first() -> None:
    budget = TaskBudgetView(
        limit=Limit(tokens=1_000, micro_usd=1_000_000),
        spent=Amount(tokens=100, micro_usd=500_000),
        reserved=Amount(tokens=900),
    )
    assert build_budget_bar(budget)[:2] == (50.0, 0.0)


def test_a_step_stands_to_the_right_of_what_it_needs() -> None:
    steps = (
        Step(id="research-1", role="research", title="R" * 40, goal="g"),
        Step(id="research-2", role="research", title="S", goal="g"),
        Step(id="writing", role="writing", title="W", goal="g", needs=("research-1", "research-2")),
    )
    drawn = build_plan_diagram(
        PlanVersion(number=1, made_by="planning", reason="", plan=Plan(steps=steps)), {"writing": "done"}
    )
    assert [(box.x, box.y, box.state) for box in drawn.boxes] == [
        (2, 2, "waiting"),
        (2, 64, "waiting"),
        (242, 2, "done"),
    ]
    assert len(drawn.lines) == 2
    assert drawn.boxes[0].label.endswith("…")
