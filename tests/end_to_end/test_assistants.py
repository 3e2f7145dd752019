"""An assistant's session over MCP, scripted by the SDK's client: over both transports, with a server killed in the
middle.
"""

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
from mcp import Client, StdioServerParameters
from mcp.client import ClientExtension, ClientRequestContext
from mcp.client.streamable_http import streamable_http_client
from mcp.types import ElicitRequestFormParams, ElicitRequestParams, ElicitResult, TextResourceContents

from tests.end_to_end.shell import ROOT, Shell
from tests.end_to_end.survey_documents import QUESTION, write_survey_documents
from tests.end_to_end.test_documented_commands import offline_platform
from tests.end_to_end.test_serve import run_server_process
from tests.support.free_ports import find_free_port

ENOUGH = "200k"


class FormGrantingUser:
    """Reads forms, and grants what they ask for."""

    def __init__(self) -> None:
        self.read: list[str] = []

    async def __call__(self, context: ClientRequestContext, params: ElicitRequestParams) -> ElicitResult:
        del context
        assert isinstance(params, ElicitRequestFormParams)
        assert params.requested_schema["properties"].keys() == {"amount", "note"}
        self.read.append(params.message)
        return ElicitResult(action="accept", content={"amount": ENOUGH, "note": "go on"})


@asynccontextmanager
async def open_stdio_client(
    shell: Shell, root: Path, person: FormGrantingUser, mode: str, *extensions: ClientExtension
) -> AsyncGenerator[tuple[Client, int]]:
    """A client of `waystation mcp`, and the process that answers it."""
    number = root.with_name("mcp.pid")
    program = f'echo $$ > {number}; exec {sys.executable} -m waystation.cli.main mcp --root "{root}"'
    started = StdioServerParameters(command="sh", args=["-c", program], env=shell.environment, cwd=ROOT)
    async with Client(started, mode=mode, elicitation_callback=person, extensions=extensions) as client:
        yield client, int(number.read_text())


async def called(client: Client, tool: str, **arguments: Any) -> dict[str, Any]:
    done = await client.call_tool(tool, arguments)
    assert not done.is_error, done.content
    assert done.structured_content is not None
    return done.structured_content


async def handed_in(shell: Shell, survey: Path) -> dict[str, Any]:
    """Submitted over a server that is killed before it has said how the task stands."""
    wanted = {"question": QUESTION, "documents": [{"path": "."}], "budget": "20k", "request_id": "survey"}
    async with open_stdio_client(shell, survey, FormGrantingUser(), "legacy") as (client, number):
        submitted = await called(client, "submit_research", **wanted)
        assert (await called(client, "submit_research", **wanted))["task_id"] == submitted["task_id"]
        waiting = asyncio.create_task(client.call_tool("wait_for_task", {"task": submitted["task_id"]}))
        await asyncio.sleep(0)
        os.kill(number, signal.SIGKILL)
        with pytest.raises(Exception, match=r"(?i)clos"):
            await waiting
    return submitted


async def answered_to_the_end(client: Client, task: str) -> str:
    """Its phase, when whatever it asked for was approved."""
    while True:
        seen = await called(client, "wait_for_task", task=task, seconds=600)
        for one in (await called(client, "list_approvals"))["requests"]:
            answered = await client.call_tool("approve", {"task": task, "request_id": one["approval"]["request_id"]})
            # Money may have come free in this moment: then nobody has to answer.
            assert not answered.is_error or "was already" in str(answered), answered
        if seen["phase"] in {"done", "partial", "cancelled", "failed"}:
            return str(seen["phase"])


async def read_report(client: Client, task: str) -> dict[str, Any]:
    """The report, of which every citation holds."""
    report = await called(client, "get_report", task=task)
    await assert_citations_resolve(client, task, report)
    return report


async def assert_citations_resolve(client: Client, task: str, report: Mapping[str, Any]) -> None:
    """Every citation, in the document that it names."""
    assert report["checked"].startswith("Checked by code: all ")
    assert report["sources"]
    for source in report["sources"]:
        assert source["fault"] == ""
        (content,) = (await client.read_resource(f"waystation://tasks/{task}/documents/{source['document']}")).contents
        assert isinstance(content, TextResourceContents)
        cited = content.text.splitlines()[source["first_line"] - 1 : source["last_line"]]
        assert "".join(cited).strip()
        if source["quotation"] is not None:
            assert source["quotation"].split("…")[0].strip() in " ".join(cited)


@pytest.mark.timeout(900)
def test_an_assistant_submits_is_asked_approves_by_a_form_and_reads_a_report_whose_citations_hold(
    tmp_path: Path,
) -> None:
    survey, person = write_survey_documents(tmp_path / "survey"), FormGrantingUser()

    async def session() -> None:
        submitted = await handed_in(shell, survey)
        assert submitted["documents"] == 12
        task = submitted["task_id"]
        async with open_stdio_client(shell, survey, person, "auto") as (client, _):
            assert await answered_to_the_end(client, task) == "done"
            report = await read_report(client, task)
            (listed,) = (await client.list_resources()).resources
            assert listed.uri == f"waystation://tasks/{task}/report"
            section = await called(client, "get_report", task=task, section=report["sections"][-1])
            assert section["markdown"] in report["markdown"]
        assert person.read
        assert all(f"in {task}" in message for message in person.read)

        port = find_free_port()
        with run_server_process(shell.home, port) as token:
            sends = httpx2.AsyncClient(headers={"Authorization": f"Bearer {token}"}, timeout=60)
            over_http = streamable_http_client(f"http://127.0.0.1:{port}/mcp", http_client=sends)
            async with sends, Client(over_http) as client:
                assert await read_report(client, task) == report

    with offline_platform(tmp_path / "home") as shell:
        asyncio.run(session())
        (listed,) = json.loads(shell.run("list", "--json").stdout)
        shown = shell.run_json("show", listed["task_id"])
    answers = [(one["decision"], one["by"], one["note"]) for one in shown["approvals"]]
    assert ("approved", "assistant (MCP)", "go on") in answers
