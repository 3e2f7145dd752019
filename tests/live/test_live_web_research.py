"""Web research that no one watches: a whole task searches and reads within its limits, and asks nobody."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import date
from pathlib import Path

from pydantic import JsonValue
from temporalio.client import Client

from tests.agents.test_tools_web import FakeWebPageFetcher, FakeWebSearch
from tests.support.delegating_model import DelegatingTaskModel, find_tool_results
from tests.support.task_model import FINDING, TAKE_NOTE_CALL, ScriptedCall, make_task_config
from tests.support.temporal_platform import TaskSubmitter, open_activity_deps, run_all_workers
from waystation.agents.call_ledger import MeteredSearch
from waystation.agents.tools.web import FetchPageTool, WebSearchTool
from waystation.budgets.budget import BudgetMode
from waystation.config.resolver import build_task_config
from waystation.config.settings import Settings
from waystation.documents.table_engine.engine import DuckDbTableEngine
from waystation.kernel.clock import utc_now
from waystation.kernel.usage import Usage
from waystation.models.ports import WebSearchResponse, WebSearchResult
from waystation.privacy.ports import Redactor
from waystation.security.web_addresses import DomainPolicy, WebLimits
from waystation.tasks.task import Preset, TaskConfig, TaskPhase, TaskRequest
from waystation.workers.external_systems import ToolBackends

FOUND, HIDDEN = "https://tides.example.net/bar?year=1871&chart=12345678", "https://elsewhere.example.net/secret"
SAID = "The bar of Nordvik shifts every autumn."
HITS = WebSearchResponse(
    hits=(WebSearchResult(url=FOUND, title="The bar", excerpt="Of its depth."),),
    usage=Usage(input=900, output=100, searches=1),
)
CITED_NOTE: ScriptedCall = ("take_note", {"text": SAID, "document": FOUND, "first_line": 1, "last_line": 1})
CITED_FINDING: JsonValue = {"claim": SAID, "citations": [f"[{FOUND}:1-1]"]}
SCRIPT: Mapping[str, Sequence[Sequence[ScriptedCall]]] = {
    "harbours": [
        [("web_search", {"query": "nordvik bar depth"}), ("fetch_page", {"url": FOUND})],
        [("fetch_page", {"url": FOUND}), ("fetch_page", {"url": HIDDEN})],
        [("web_search", {"query": "the keeper ada.lovelace@example.com said the bar is closed"})],
        [("web_search", {"query": "nordvik silt"}), CITED_NOTE],
        [("submit_findings", {"findings": [CITED_FINDING]})],
    ],
    "tides": [
        [("read_document", {"name": "pilot.md"})],
        [TAKE_NOTE_CALL],
        [("submit_findings", {"findings": [FINDING]})],
    ],
}


def make_web_task_config() -> TaskConfig:
    """Make the configuration that the preset resolves to, in numbers that suit the scripted model."""
    request = TaskRequest(question="How is the bar crossed?", request_id="r", preset=Preset.WEB)
    chosen = build_task_config(request, Settings(offline=True, review_plan=True, revision_percent=1), (), date.max)
    small = make_task_config(budget=600_000, agent_budget=150_000)
    limits = WebLimits(max_searches=2, max_pages=3)
    return small.replace(
        mode=chosen.mode,
        review_plan=chosen.review_plan,
        default=small.default.replace(hard_budget=chosen.default.hard_budget, web_limits=limits),
    )


async def test_a_task_with_the_preset_searches_and_reads_within_its_limits_and_asks_nobody(
    server: Client, tmp_path: Path, redactor: Redactor
) -> None:
    model, found, pages = DelegatingTaskModel(scripts=SCRIPT), FakeWebSearch(HITS), FakeWebPageFetcher({FOUND: SAID})
    async with open_activity_deps(tmp_path, redactor, model) as deps:
        metered = MeteredSearch(found, deps.store, utc_now, deps.meter, ())
        fetch = FetchPageTool(pages, deps.store, deps.redacted_documents, DomainPolicy())
        backends = ToolBackends(tables=DuckDbTableEngine(), web=(WebSearchTool(metered, redactor), fetch))
        async with run_all_workers(server, replace(deps, tool_backends=backends)):
            submitter = TaskSubmitter(server, deps.store)
            await submitter.submit(under=make_web_task_config())
            ended = await submitter.get_task_handle().result()
    assert ended.phase is TaskPhase.DONE
    assert ended.approvals == ()
    assert [query for query, _ in found.asked] == ["nordvik bar depth"]
    assert pages.fetched == [FOUND]
    searched, guessed = find_tool_results(model, "harbours", 2)
    read, composed = find_tool_results(model, "harbours", 3)
    (carrying,) = find_tool_results(model, "harbours", 4)
    beyond, noted = find_tool_results(model, "harbours", 5)
    assert [one.is_error for one in (searched, read, noted)] == [False, False, False]
    assert FOUND in searched.content
    assert SAID in read.content
    # An address that the agent cannot have read yet, one that it composed, and words that are no key words.
    for refused in (guessed, composed, carrying):
        assert refused.is_error
        assert "this task asks no one" in refused.content
    assert "limit of web searches (2) is used up" in beyond.content


def test_the_preset_asks_about_nothing_whatever_the_settings_ask_about() -> None:
    request = TaskRequest(question="How?", request_id="r", preset=Preset.WEB)
    asking = Settings(offline=True, review_plan=True, revision_percent=1, mode=BudgetMode.APPROVAL)
    config = build_task_config(request, asking, (), date.max)
    assert (config.mode, config.review_plan, config.revision_percent) == (BudgetMode.SOFT, False, None)
    agents = (config.default, *config.by_role.values())
    assert all(agent.web_limits == WebLimits(max_searches=20, max_pages=40) for agent in agents)
    plain = build_task_config(request.replace(preset=None), asking, (), date.max)
    assert (plain.mode, plain.review_plan, plain.revision_percent) == (BudgetMode.APPROVAL, True, 1)
    assert plain.default.web_limits is None
