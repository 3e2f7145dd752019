"""A task under a narrow, hard budget at endpoints that leave things out: it ends, and its bill is honest."""

from pathlib import Path

import pytest

from tests.end_to_end.messages_server import ServerWithGaps, serving
from tests.end_to_end.survey import write_survey
from tests.running import dev_server
from waystation.adapters.anthropic.messages_server import Gap
from waystation.adapters.documents.sources import load_documents
from waystation.client import Client
from waystation.domain.amount import Limit
from waystation.domain.budget import Mode
from waystation.domain.task import TaskPhase, TaskRequest
from waystation.settings import Settings
from workers.wiring import running_workers

GAPS: tuple[Gap, ...] = ("no count", "no usage", "no cache fields", "another model", "strict")
REQUEST = TaskRequest(
    question="How deep is harbour Nordvik 2-3 at low water?",
    request_id="narrow",
    budget=Limit(tokens=60_000),
    agent_budget=Limit(tokens=15_000),
    mode=Mode.HARD,
)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("gaps", [(), *((gap,) for gap in GAPS), GAPS], ids=["none", *GAPS, "all at once"])
async def test_a_task_under_a_narrow_hard_budget_ends_with_a_report_and_an_honest_bill(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, gaps: tuple[Gap, ...]
) -> None:
    documents = load_documents([write_survey(tmp_path / "survey")]).documents
    with serving(ServerWithGaps(0.0, gaps=frozenset(gaps))) as model:
        settings = Settings.model_validate(
            {"home": tmp_path / "home", "anthropic_api_key": "a-key-for-tests", "anthropic_base_url": model.url}
        )
        async with dev_server() as server:
            monkeypatch.setenv("TEMPORAL_ADDRESS", server.service_client.config.target_host)
            async with running_workers(settings), await Client.connect(settings) as client:
                task_id = (await client.submit(REQUEST, documents)).task_id
                seen = [view.progress async for view in client.watch(task_id)][-1]
                report, bill = await client.report(task_id), await client.bill(task_id)
    assert seen.phase in {TaskPhase.DONE, TaskPhase.PARTIAL}, seen.notes
    used = bill.total.usage
    assert 0 < used.fresh == seen.budget.spent.tokens <= 60_000
    assert seen.budget.limit == Limit(tokens=60_000)
    assert seen.totals.possibly_billed == 0 == len(bill.possibly_billed)
    assert used.estimated == (used.total if "no usage" in gaps else 0)
    assert ("Estimated, at most" in report) == ("no usage" in gaps)
    answered = {name for line in bill.lines for name in line.answered_by}
    assert answered == ({"another-model"} if "another model" in gaps else set[str]())
    assert ("answered as another-model" in report) == bool(answered)
    if "no usage" in gaps or "no cache fields" in gaps:
        assert used.cache_read == 0
    if "no count" in gaps:
        assert model.counts <= len({line.model for line in bill.lines})
