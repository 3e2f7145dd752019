"""What an assistant tries over MCP that nobody allowed: to spend more, to read elsewhere, to see what others have."""

import json
import logging
from collections.abc import AsyncGenerator
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
from mcp import Client as AssistantClient
from mcp.client.streamable_http import streamable_http_client
from mcp.types import TextContent

from tests.attacks.test_attacks_web_pages import ACCESS, BEARER, HERE, NO_SERVER, SITE
from tests.support.finished_tasks import make_task_row
from waystation.agents.action_approvals import build_action_question
from waystation.client import Client
from waystation.config.settings import Settings
from waystation.context.transcript import ToolUse
from waystation.documents.document_loading import load_documents
from waystation.documents.documents import SourceDocument
from waystation.kernel.amount import Amount, Limit
from waystation.kernel.clock import utc_now
from waystation.kernel.errors import BadInput, Unreachable
from waystation.kernel.usage import Usage
from waystation.planning.plan import PLANNING_ID
from waystation.plugins.web.app import BATCH, UNUSABLE_ID, ServerDeps, create_app
from waystation.plugins.web.assistant_gateway import AssistantGateway, DocumentInput, SubmitResearchRequest
from waystation.plugins.web.mcp import AssistantServer
from waystation.plugins.web.mcp_tasks import format_task_status
from waystation.plugins.web.principals import ApiKeyStore, AssistantPolicy, Authenticator
from waystation.privacy.policy import RedactionResult
from waystation.runtime.sql_store import SqlStore
from waystation.tasks.task import ApprovalRequest, BudgetProgress, StepProgress, TaskPhase, TaskRequest, TaskRow
from waystation.tasks.view import TaskView, as_stored
from waystation.workers.memory import MemoryReader

OWN, OTHER = "mcp-assistant", "private"
SECRET = "the bridge is closed"
MAIL = "ada@example.com"
MCP_HEADERS = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
TEXT = {"name": "a.md", "text": "# A"}


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    monkeypatch.setenv("TEMPORAL_ADDRESS", NO_SERVER)
    return Settings(home=tmp_path / "home", offline=True, mcp_budget=Limit(tokens=1_000_000))


async def store_task(settings: Settings, session: str, *, spent: int | None = None) -> str:
    """A task of a session: at work, or over when it had spent so much."""
    settings.home.mkdir(exist_ok=True)
    store = await SqlStore.open(settings.database_url, utc_now)
    row = make_task_row(
        TaskRequest(question=SECRET, session=session, request_id=f"{spent}"), settings, await store.get_store_id()
    )
    await store.register_task(row, (SourceDocument(name="a.md", text=f"# A\n\n{SECRET}, says {MAIL}\n"),))
    if spent is not None:
        account = BudgetProgress(limit=row.config.budget, spent=Amount(tokens=spent), reserved=Amount())
        report = await store.put_text(f"# Report\n\n{SECRET}\n", row.ref.scope)
        over = as_stored(row, TaskPhase.DONE).replace(budget=account, report=report)
        await store.save_task_progress(row.ref.task_id, over)
    await store.aclose()
    return row.ref.task_id


@asynccontextmanager
async def open_assistant_client(
    settings: Settings, *roots: Path, mode: str = "auto"
) -> AsyncGenerator[AssistantClient]:
    async with await Client.connect(settings) as client:
        server = AssistantServer(
            AssistantGateway(client, settings, AssistantPolicy.from_settings(settings, roots), MemoryReader(settings))
        )
        async with AssistantClient(server, mode=mode) as asking:
            yield asking


async def call_refused_tool(asking: AssistantClient, tool: str, **arguments: Any) -> str:
    said = await asking.call_tool(tool, arguments)
    assert said.is_error, said.structured_content
    (content,) = said.content
    assert isinstance(content, TextContent)
    return content.text


async def submitting(asking: AssistantClient, **document: str) -> str:
    return await call_refused_tool(asking, "submit_research", question="Why?", documents=[document])


@pytest.mark.parametrize("budget", ["1000001", "900M", "$0.01"])
async def test_a_budget_beyond_what_it_may_spend_is_refused(budget: str, settings: Settings) -> None:
    async with open_assistant_client(settings) as asking:
        said = await call_refused_tool(asking, "submit_research", question="Why?", documents=[TEXT], budget=budget)
    assert "assistant cannot spend" in said or "assistant may spend 1,000,000 tokens in all" in said


async def test_what_ended_counts_as_spent_and_what_is_at_work_with_all_it_may_spend(settings: Settings) -> None:
    await store_task(settings, OWN, spent=150_000)
    await store_task(settings, OWN)
    await store_task(settings, OTHER, spent=900_000)
    async with open_assistant_client(settings) as asking:
        said = await call_refused_tool(asking, "submit_research", question="Why?", documents=[TEXT], budget="250001")
        fits = await call_refused_tool(asking, "submit_research", question="Why?", documents=[TEXT], budget="250k")
    assert "only 250,000 tokens are left of its limit of 1,000,000 tokens" in said
    assert "no Temporal server answers" in fits


@pytest.mark.parametrize(
    "path",
    [
        "/etc/passwd",
        "../outside.md",
        "..",
        "link.md",
        "linked/outside.md",
        ".hidden.md",
        ".git/config",
        "a\0.md",
        "missing.md",
        "~/a.md",
    ],
)
async def test_nothing_is_read_but_below_the_roots(path: str, tmp_path: Path, settings: Settings) -> None:
    root = tmp_path / "papers"
    (root / ".git").mkdir(parents=True)
    for name in ("../outside.md", ".hidden.md", ".git/config"):
        (root / name).write_text(SECRET)
    (root / "link.md").symlink_to(tmp_path / "outside.md")
    (root / "linked").symlink_to(tmp_path)
    async with open_assistant_client(settings, root) as asking:
        by_path = await submitting(asking, path=path)
        by_address = await submitting(asking, uri=f"file://{root}/{path}")
    assert "is not a file or folder that assistants may read" in by_path
    refusals = ("is not a file or folder that assistants may read", "is not a readable resource")
    assert any(refusal in by_address for refusal in refusals)
    assert SECRET not in by_path + by_address


async def test_below_a_root_a_mounted_volume_is_read_and_a_link_to_what_is_hidden_is_not(
    tmp_path: Path, settings: Settings
) -> None:
    (tmp_path / "..2026").mkdir()
    for name in ("..2026/a.md", ".env"):
        (tmp_path / name).write_text(SECRET)
    (tmp_path / "..data").symlink_to("..2026")
    (tmp_path / "a.md").symlink_to("..data/a.md")
    (tmp_path / "b.md").symlink_to(".env")
    rights = AssistantPolicy.from_settings(settings, [tmp_path])
    assert rights.resolve_readable_path("a.md").read_text() == SECRET
    with pytest.raises(BadInput, match="is not a file or folder that assistants may read"):
        rights.resolve_readable_path("b.md")
    read = load_documents([rights.resolve_readable_path(".")], without=rights.home)
    assert [one.name for one in read.documents] == ["a.md"]


async def test_without_roots_nothing_is_read_and_the_home_folder_never(tmp_path: Path, settings: Settings) -> None:
    await store_task(settings, OWN, spent=1)
    async with open_assistant_client(settings) as asking:
        assert "assistants may not read any folder" in await submitting(asking, path=str(tmp_path))
    async with open_assistant_client(settings, tmp_path) as asking:
        assert "is not a file or folder that assistants may read" in await submitting(
            asking, path=str(settings.home / "waystation.db")
        )
    with pytest.raises(BadInput, match="is not a folder"):
        AssistantPolicy.from_settings(settings, [tmp_path / "missing"])


@pytest.mark.parametrize("path", [".", "all", "all/.."])
async def test_of_a_folder_that_has_the_home_folder_everything_but_that_is_read(
    path: str, tmp_path: Path, settings: Settings
) -> None:
    (settings.home / "reports").mkdir(parents=True)
    for name in ("all/a.md", "home/config.toml", "home/reports/task.md"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(SECRET)
    (tmp_path / "all" / "link.toml").symlink_to(settings.home / "config.toml")
    (tmp_path / "all" / "linked").symlink_to(settings.home)
    rights = AssistantPolicy.from_settings(settings, [tmp_path])
    read = load_documents([rights.resolve_readable_path(path)], without=rights.home)
    assert {one.name.rpartition("/")[2] for one in read.documents} == {"a.md"}
    if path != "all":
        assert ("home", "in Waystation's home folder") in {(one.name, one.reason) for one in read.skipped_items}


async def test_an_assistant_has_nothing_of_the_home_folder_by_a_folder_above_it(
    tmp_path: Path, settings: Settings
) -> None:
    settings.home.mkdir()
    (settings.home / "config.toml").write_text(SECRET)
    async with open_assistant_client(settings, tmp_path) as asking:
        said = await submitting(asking, path=".")
    assert "none of its files can be used (home: in Waystation's home folder)" in said


@pytest.mark.parametrize(
    "address",
    [
        "https://example.org/a.md",
        "file://elsewhere/etc/passwd",
        "file://",
        "file:notes.md",
        "file://localhost",
        "file:///etc/host\nname",
        "file:///etc/hostname?x",
        "file:///etc/hostname#x",
        "waystation://tasks/TASK/transcripts",
        "waystation://other/TASK/report",
        "waystation://tasks/TASK/report",
        "waystation://tasks/TASK/documents/a.md",
        "waystation://tasks/TASK/documents",
        "",
    ],
)
async def test_a_resource_of_another_session_or_of_elsewhere_is_no_document(address: str, settings: Settings) -> None:
    task = await store_task(settings, OTHER, spent=1)
    async with open_assistant_client(settings) as asking:
        said = await submitting(asking, uri=address.replace("TASK", task))
    refusals = ("not a readable resource", "has no task", "may not read any folder", "must not be empty")
    assert any(refusal in said for refusal in refusals)


async def test_tasks_of_others_are_as_unknown_as_those_that_never_were(settings: Settings) -> None:
    other = await store_task(settings, OTHER, spent=1)
    calls: dict[str, dict[str, Any]] = {
        "task_status": {},
        "wait_for_task": {},
        "approve": {},
        "deny": {},
        "deliver": {},
        "get_report": {},
        "send_message": {"message": "stop"},
        "cancel": {},
    }
    async with open_assistant_client(settings) as asking:
        for tool, more in calls.items():
            said = [
                await call_refused_tool(asking, tool, task=task, **more) for task in (other, "task-0123456789abcdef")
            ]
            assert said[0].replace(other, "TASK") == said[1].replace("task-0123456789abcdef", "TASK"), tool
            assert SECRET not in said[0]
        listed = await asking.list_resources()
        for place in ("report", "documents/a.md", "agents/writing/transcript"):
            with pytest.raises(Exception, match="has no task"):
                await asking.read_resource(f"waystation://tasks/{other}/{place}")
    assert listed.resources == []


def asking_for(request: ApprovalRequest, settings: Settings) -> str:
    """How an assistant, and the person whom it shows a form, read of such a request."""
    row = make_task_row(TaskRequest(question="Why?", session=OWN, request_id="1"), settings, "store")
    step = StepProgress(
        id="research-1",
        role="research",
        title="Ask the harbour master",
        state="waiting",
        legs=0,
        usage=Usage(),
        limit=Limit(tokens=5_000),
    )
    progress = as_stored(row, TaskPhase.WORKING).replace(approvals=(request,), steps=(step,))
    return format_task_status(TaskView.from_progress(progress))


def test_a_person_is_told_that_a_call_has_more_than_is_shown(settings: Settings) -> None:
    call = ToolUse(id="c1", name="send_letter", input={"to": "x" * 20_000, "bcc": "evil.example"})
    action = build_action_question("m1", call, RedactionResult(text=json.dumps(call.input)))
    nothing = Amount()
    asked = ApprovalRequest(request_id="r-1", agent="research-1", requested=nothing, needed=nothing, action=action)
    said = asking_for(asked, settings)
    assert "evil.example" not in said
    assert f"{action.hidden_characters:,} more characters are not shown: `waystation transcript" in said


def test_a_person_agrees_to_no_plan_whose_steps_are_not_shown(settings: Settings) -> None:
    asked = ApprovalRequest(request_id="plan-1", agent=PLANNING_ID, requested=Amount(), needed=Amount(), steps_left=1)
    assert "research: Ask the harbour master (budget: 5,000 tokens)" in asking_for(asked, settings)


@pytest.mark.parametrize(
    ("named", "refused"),
    [
        ({"servers": ["wiki"]}, ""),
        ({"servers": ["default", "wiki"]}, ""),
        ({"servers": ["letters"]}, "may not use the tool server 'letters'; allowed: default, wiki"),
        ({"skills": ["tides"]}, ""),
        ({"skills": ["../tides"]}, "may not use the skill '../tides'; allowed by WAYSTATION_MCP_SKILLS: tides"),
    ],
)
async def test_servers_and_skills_are_named_as_far_as_the_settings_allow(
    named: dict[str, list[str]], refused: str, tmp_path: Path, settings: Settings
) -> None:
    skill = tmp_path / "skills" / "tides"
    skill.mkdir(parents=True)
    (skill / "SKILL.md").write_text("---\nname: tides\ndescription: Of depths.\n---\nSubtract two metres.\n")
    allowed = settings.replace(mcp_servers=("wiki",), mcp_skills=(skill.parent,))
    async with open_assistant_client(allowed) as asking:
        said = await call_refused_tool(asking, "submit_research", question="Why?", documents=[TEXT], **named)
    assert (refused or "no Temporal server answers") in said


@pytest.mark.parametrize("named", [{"servers": ["wiki"]}, {"skills": ["tides"]}])
async def test_without_a_word_in_the_settings_none_are_named(named: dict[str, list[str]], settings: Settings) -> None:
    async with open_assistant_client(settings) as asking:
        said = await call_refused_tool(asking, "submit_research", question="Why?", documents=[TEXT], **named)
    assert "assistant may not use the" in said


async def test_a_server_that_a_person_named_in_its_session_is_not_passed_on_to_an_assistant(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    submitted: list[TaskRow] = []

    async def keep(_: Client, row: TaskRow, __: object) -> None:
        submitted.append(row)
        raise Unreachable("no server")

    monkeypatch.setattr(Client, "submit", keep)
    async with (
        await Client.connect(settings) as client,
        aclosing(await SqlStore.open(settings.database_url, utc_now)) as store,
    ):
        asked = TaskRequest(question="Why?", session=OWN, request_id="by a person", servers=("letters",))
        await store.register_task(make_task_row(asked, settings, await store.get_store_id()), ())
        assistant = AssistantGateway(client, settings, AssistantPolicy.from_settings(settings), MemoryReader(settings))
        given = SubmitResearchRequest(
            question="And?", documents=(DocumentInput(**TEXT),), request_id="1", budget=Limit(tokens=9_000)
        )
        with pytest.raises(Unreachable):
            await assistant.submit(given)
    assert [row.request.servers for row in submitted] == [("default",)]


async def test_an_assistant_asks_for_a_length_and_for_criteria_as_people_do(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    submitted: list[TaskRow] = []

    async def keep(_: Client, row: TaskRow, __: object) -> None:
        submitted.append(row)
        raise Unreachable("no server")

    monkeypatch.setattr(Client, "submit", keep)
    wanted = {"length": "short", "accept": ["It names a harbour."], "budget": "9k"}
    async with open_assistant_client(settings) as asking:
        await call_refused_tool(asking, "submit_research", question="Why?", documents=[TEXT], **wanted)
        wrong = await call_refused_tool(asking, "submit_research", question="Why?", documents=[TEXT], length="800")
    assert [(row.request.length, row.request.accept) for row in submitted] == [("short", ("It names a harbour.",))]
    assert "'short', 'medium' or 'long'" in wrong


async def test_an_argument_that_a_tool_does_not_have_is_refused_and_not_passed_over(settings: Settings) -> None:
    async with open_assistant_client(settings) as asking:
        tools = {tool.name: tool.input_schema for tool in (await asking.list_tools()).tools}
        said = await call_refused_tool(asking, "submit_research", question="Why?", documents=[TEXT], max_budget="5k")
    assert said.startswith("submit_research has no argument 'max_budget': it takes question, documents, budget,")
    assert all(schema["additionalProperties"] is False for schema in tools.values())


@pytest.mark.parametrize(
    ("document", "said"),
    [
        ({"uri": "http://[::1"}, "is not a readable resource. Readable are: file:///…"),
        (
            {"name": "a.md", "text": " \n"},
            "documents.0: a text must not be blank, and needs a name, which citations use",
        ),
        ({"text": "# A"}, "documents.0: a text must not be blank, and needs a name, which citations use"),
        ({"path": ""}, "documents.0: a path or an address must not be empty"),
        ({"uri": " "}, "documents.0: a path or an address must not be empty"),
    ],
)
async def test_a_document_that_is_none_is_refused_with_the_one_cause(
    document: dict[str, str], said: str, settings: Settings
) -> None:
    async with open_assistant_client(settings) as asking:
        refused = await submitting(asking, **document)
    assert said in refused
    assert "it is empty" not in refused


async def test_nothing_waiting_is_said_and_not_made_up_where_nobody_can_know(settings: Settings) -> None:
    task = await store_task(settings, OWN, spent=1)
    async with open_assistant_client(settings) as asking:
        assert "no Temporal server answers" in await call_refused_tool(asking, "list_approvals")
        assert await call_refused_tool(asking, "deny", task=task) == f"Open requests of {task} (done): none"
        unknown = await call_refused_tool(asking, "deny", task=task, request_id="r-1")
    assert unknown == f"the task has no request with this id. Open requests of {task} (done): none"


async def test_another_tenant_sees_nothing_under_the_same_name(settings: Settings) -> None:
    task = await store_task(settings, OWN, spent=1)
    async with open_assistant_client(settings.replace(tenant="others")) as asking:
        assert "has no task" in await call_refused_tool(asking, "get_report", task=task)


async def test_no_words_reach_the_log_when_a_tool_breaks(
    settings: Settings, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    task = await store_task(settings, OWN, spent=1)

    async def broken(*_: object) -> None:
        raise KeyError(SECRET)

    async with open_assistant_client(settings) as asking:
        monkeypatch.setattr(Client, "load_report", broken)
        said = await call_refused_tool(asking, "get_report", task=task)
        await call_refused_tool(asking, "submit_research", question=SECRET, documents=[{"name": SECRET}])
    logged = capsys.readouterr()
    assert SECRET not in said + logged.err + logged.out
    assert "waystation mcp: Tool %r raised an unexpected exception (UnexpectedToolError)" in logged.err
    assert logging.getLogger("mcp").propagate is False


@asynccontextmanager
async def open_http_client(
    settings: Settings, known: Authenticator | None = None
) -> AsyncGenerator[httpx2.AsyncClient]:
    async with await Client.connect(settings) as client:
        server = AssistantServer(
            AssistantGateway(client, settings, AssistantPolicy.from_settings(settings), MemoryReader(settings))
        )
        app = create_app(SITE._replace(assistants=server), client, settings.tenant, ServerDeps(ACCESS, known))
        async with (
            server.session_manager.run(),
            httpx2.AsyncClient(transport=httpx2.ASGITransport(app=app), base_url=HERE) as asking,
        ):
            yield asking


async def test_over_http_it_needs_the_token_and_comes_from_no_other_page(settings: Settings) -> None:
    body = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
    async with open_http_client(settings) as asking:
        bare = await asking.post("/mcp", json=body)
        wrong = await asking.post("/mcp", json=body, headers={"Authorization": "Bearer x"})
        page = await asking.post("/mcp", json=body, headers={**BEARER, "Origin": "https://evil.example"})
        rebound = await asking.post("/mcp", json=body, headers={**BEARER, "Host": "evil.example"})
    assert [one.status_code for one in (bare, wrong, page, rebound)] == [401, 401, 403, 421]


@pytest.mark.parametrize("given", ["1.5", "NaN", "null", "true", "{}"])
async def test_over_http_a_request_under_an_id_that_no_answer_can_have_is_refused(
    given: str, settings: Settings
) -> None:
    body = f'{{"jsonrpc":"2.0","id":{given},"method":"ping"}}'
    async with open_http_client(settings) as asking:
        answer = await asking.post("/mcp", content=body, headers={**BEARER, **MCP_HEADERS})
    assert answer.status_code == 400
    assert answer.json() == refused_as(UNUSABLE_ID)


async def test_over_http_a_batch_is_refused_in_words_and_a_notification_is_taken(settings: Settings) -> None:
    note = '{"jsonrpc":"2.0","method":"notifications/initialized"}'
    async with open_http_client(settings) as asking:
        asking.headers.update({**BEARER, **MCP_HEADERS})
        answer = await asking.post("/mcp", content=f"[{note}]")
        empty = await asking.post("/mcp", content="[]")
        alone = await asking.post("/mcp", content=note)
    assert (answer.status_code, answer.json()) == (400, refused_as(BATCH))
    assert empty.json() == answer.json()
    assert "batch" not in alone.text


def refused_as(words: str) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": None, "error": {"code": -32600, "message": words}}


async def test_its_token_opens_its_own_address_alone(settings: Settings) -> None:
    task = await store_task(settings, OTHER, spent=1)
    async with open_http_client(settings) as asking:
        asking.headers.update({"Authorization": f"Bearer {ACCESS.assistants_token}"})
        others = [await asking.get(path) for path in ("/v1/tasks", f"/v1/tasks/{task}/report", "/", "/mcp/x", "/mcpx")]
        grant = await asking.post(f"/v1/tasks/{task}/approve", json={"request_id": "q1"})
        spelled = [await asking.post(f"/mcp{end}", json={}) for end in ("%0A", "%0D%0A", "/%0A")]
        signed_in = await asking.get("/", params={"token": ACCESS.assistants_token})
        async with AssistantClient(streamable_http_client(f"{HERE}/mcp", http_client=asking)) as assistant:
            assert (await assistant.list_tools()).tools
    assert {one.status_code for one in (*others, grant, signed_in)} == {401}
    assert {one.status_code for one in spelled} == {404}


async def test_a_key_of_another_tenant_reaches_no_assistant_by_another_spelling_of_its_address(
    settings: Settings, tmp_path: Path
) -> None:
    keys = ApiKeyStore(tmp_path / "api-keys.json")
    _, key = keys.create_key("Eve", "other", "approve", utc_now())
    async with open_http_client(settings, Authenticator(keys)) as asking:
        answers = [
            await asking.post(f"/mcp{end}", json={}, headers={"Authorization": f"Bearer {key}"})
            for end in ("", "%0A", "%0D%0A", "/", "%2F", "?x")
        ]
    assert {answer.status_code for answer in answers} <= {307, 403, 404}


@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_over_http_it_is_the_same_server(mode: str, settings: Settings) -> None:
    task = await store_task(settings, OWN, spent=1)
    async with open_http_client(settings) as sending:
        sending.headers.update(BEARER)
        transport = streamable_http_client(f"{HERE}/mcp", http_client=sending)
        async with AssistantClient(transport, mode=mode) as asking:
            report = await asking.call_tool("get_report", {"task": task})
    assert report.structured_content is not None
    assert SECRET in report.structured_content["markdown"]
