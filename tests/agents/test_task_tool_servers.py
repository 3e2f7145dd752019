"""Tool servers as terms of a task: what it names, its agents have, and its session goes on with."""

from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from pydantic import ValidationError

from tests.support.agent_environment import TASK_REQUEST, make_tool_use
from tests.support.agent_fixtures import AgentEnvironment
from waystation.agents.roles import NO_SERVERS
from waystation.agents.tools.toolbox import Toolbox
from waystation.cli.submit import parse_server_names
from waystation.client.submission import prepare_task_row
from waystation.config.settings import Settings
from waystation.erasure.erasure import build_forgotten_row
from waystation.kernel.clock import utc_now
from waystation.kernel.errors import BadInput
from waystation.runtime.sql_store import SqlStore
from waystation.security.untrusted import DEFAULT_SERVERS, HiddenTool, UntrustedTools, UntrustedToolSpec
from waystation.tasks.task import TaskRequest
from waystation.testing.doubles import FakeToolServers, ScriptedModel, make_scripted_response

WIKI, SHOP = [
    UntrustedToolSpec(
        server=server,
        tool="read",
        name=f"{server}__read",
        description="Reads.",
        input_schema={"type": "object"},
        requires_approval=False,
    )
    for server in ("wiki", "shop")
]


class Incomplete(FakeToolServers):
    """One of them tells nothing."""

    async def list_tools(self, taken: object = (), servers: Sequence[str] | None = None) -> UntrustedTools:
        found = await super().list_tools((), servers)
        return found.replace(hidden=(HiddenTool(server="gone", tool="", reason="it is not there"),))


async def box(env: AgentEnvironment, *specs: UntrustedToolSpec) -> Toolbox:
    desk = replace(env.agent_deps, servers=Incomplete(specs))
    return await desk.build_agent_toolbox(env.run_ref(), env.terms, await env.load_transcript())


def foreign(toolbox: Toolbox) -> set[str]:
    return {tool.name for tool in toolbox.tools if "__" in tool.name}


@pytest.mark.parametrize(
    ("named", "expected"),
    [(None, {"wiki__read", "shop__read"}), (("wiki",), {"wiki__read"}), ((), set[str]())],
)
async def test_agents_have_the_servers_that_their_task_names(
    bare_env: AgentEnvironment, named: tuple[str, ...] | None, expected: set[str]
) -> None:
    await bare_env.open_task(asked=TASK_REQUEST.replace(servers=named))
    toolbox = await box(bare_env, WIKI, SHOP)
    assert foreign(toolbox) == expected
    assert (toolbox.find_refusal_reason(make_tool_use("shop__read")) is None) == ("shop__read" in expected)


async def test_a_tool_of_a_named_server_that_changed_asks_again(bare_env: AgentEnvironment) -> None:
    await bare_env.open_task(asked=TASK_REQUEST.replace(servers=("wiki",)))
    assert (await box(bare_env, WIKI, SHOP)).build_approval_question(make_tool_use("wiki__read")) is None
    other = WIKI.replace(description="Sends.")
    asked = (await box(bare_env, other, SHOP)).build_approval_question(make_tool_use("wiki__read"))
    assert asked is not None
    assert asked.startswith("The tool has changed since this task first listed it: its description.\n")


async def test_people_are_told_of_servers_that_are_named_and_not_there(bare_env: AgentEnvironment) -> None:
    await bare_env.open_task(asked=TASK_REQUEST.replace(servers=("gone", "wiki")))
    note = "The agents have no tools from 1 tool server that the task names; `waystation show TASK --tools` says why"
    assert (await box(bare_env, WIKI)).notes == (note,)
    bare = await bare_env.agent_deps.build_agent_toolbox(
        bare_env.run_ref(), bare_env.terms, await bare_env.load_transcript()
    )
    assert bare.notes == (NO_SERVERS,)


async def test_a_fork_of_a_task_that_names_no_servers_names_none_that_are_missed(
    bare_env: AgentEnvironment,
) -> None:
    await bare_env.open_task(asked=TASK_REQUEST.replace(servers=(DEFAULT_SERVERS,)))
    bare = await bare_env.agent_deps.build_agent_toolbox(
        bare_env.run_ref(), bare_env.terms, await bare_env.load_transcript()
    )
    assert bare.notes == ()


async def test_a_leg_tells_of_servers_that_are_named_and_not_there(bare_env: AgentEnvironment) -> None:
    await bare_env.open_task(asked=TASK_REQUEST.replace(servers=("wiki",)))
    findings = make_tool_use(
        "submit_findings", findings=[{"claim": "It silted up.", "citations": ["[harbour.md:2-2]"]}]
    )
    outcome = await bare_env.run_leg(ScriptedModel([make_scripted_response(findings)]))
    assert NO_SERVERS in outcome.state.notes


async def test_what_is_not_there_and_not_named_is_not_told(bare_env: AgentEnvironment) -> None:
    await bare_env.open_task()
    assert (await box(bare_env, WIKI)).notes == ()


@pytest.fixture
async def store(without_server: Settings) -> AsyncIterator[SqlStore]:
    without_server.home.mkdir()
    opened = await SqlStore.open(without_server.database_url, utc_now)
    yield opened
    await opened.aclose()


def asked(request_id: str, servers: tuple[str, ...] | None = None, session: str = "S") -> TaskRequest:
    return TaskRequest(question="Why?", request_id=request_id, session=session, servers=servers)


async def test_a_session_goes_on_with_the_servers_of_its_newest_task(store: SqlStore, without_server: Settings) -> None:
    first = await prepare_task_row(without_server, store, asked("r1", ("wiki",)))
    await store.register_task(first, ())
    second = await prepare_task_row(without_server, store, asked("r2"))
    assert second.request.servers == ("wiki",)
    await store.register_task(second, ())
    assert (await prepare_task_row(without_server, store, asked("r3", session="other"))).request.servers is None
    usual = await prepare_task_row(without_server, store, asked("r4", ("default",)))
    await store.register_task(usual, ())
    assert (await prepare_task_row(without_server, store, asked("r5"))).request.servers == ("default",)
    # The same request again is the same task, whatever the session has named since.
    assert not await store.register_task(await prepare_task_row(without_server, store, asked("r2")), ())


async def test_a_name_that_the_config_file_here_does_not_have_is_refused(
    store: SqlStore, without_server: Settings, tmp_path: Path
) -> None:
    path = tmp_path / "mcp.json"
    path.write_text('{"mcpServers": {"wiki": {"command": "x", "env": {"TOKEN": "${NOT_SET_HERE}"}}}}', encoding="utf-8")
    there = without_server.replace(tool_servers=path)
    assert (await prepare_task_row(there, store, asked("r1", ("wiki", "default")))).request.servers == (
        "wiki",
        "default",
    )
    with pytest.raises(BadInput, match=r"mcp\.json has no tool server 'wik'; it has wiki"):
        await prepare_task_row(there, store, asked("r2", ("wik",)))
    # Without the file only the worker knows.
    assert (await prepare_task_row(without_server, store, asked("r3", ("wik",)))).request.servers == ("wik",)


async def test_a_task_that_is_forgotten_names_no_servers(bare_env: AgentEnvironment) -> None:
    await bare_env.open_task(asked=TASK_REQUEST.replace(servers=("wiki",)))
    row = await bare_env.store.get_task(bare_env.task_id, bare_env.ref.scope)
    assert build_forgotten_row(row).request.servers is None


@pytest.mark.parametrize("servers", [[""], ["x" * 101], ["a"] * 51, "wiki"])
def test_names_have_bounds(servers: object) -> None:
    with pytest.raises(ValidationError):
        TaskRequest.model_validate({"question": "Why?", "request_id": "r", "servers": servers})


def test_a_request_of_before_says_nothing_of_servers() -> None:
    before = asked("r").model_dump(mode="json", exclude={"servers"})
    assert TaskRequest.model_validate(before).servers is None


@pytest.mark.parametrize(
    ("written", "named"),
    [("time", ("time",)), ("time, wiki,time", ("time", "wiki")), ("default,wiki", ("default", "wiki")), ("none", ())],
)
def test_servers_are_written_with_commas(written: str, named: tuple[str, ...]) -> None:
    assert parse_server_names(written) == named


@pytest.mark.parametrize("written", ["", "time,", "none,time"])
def test_what_names_nothing_is_refused(written: str) -> None:
    with pytest.raises(BadInput, match="--servers"):
        parse_server_names(written)
