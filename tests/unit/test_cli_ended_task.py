import asyncio
import json
from pathlib import Path

import pytest

from waystation.adapters.clock import utc_now
from waystation.adapters.store import SqlStore
from waystation.cli.main import run
from waystation.domain.budget import Usage
from waystation.domain.pricing import PRICES
from waystation.domain.session import SessionStart
from waystation.domain.task import (
    SourceDocument,
    StepProgress,
    TaskPhase,
    TaskRef,
    TaskRequest,
    TaskRow,
    session_hash,
    task_id_of,
    tenant_hash,
)
from waystation.seen import as_stored
from waystation.settings import Settings
from waystation.terms import task_terms


async def keep_ended_task(settings: Settings) -> str:
    settings.home.mkdir()
    store = await SqlStore.open(settings.database_url, utc_now)
    request = TaskRequest(question="Which?", request_id="r1")
    start = SessionStart(
        store_id=await store.store_id(),
        tenant=tenant_hash(request.tenant),
        session=session_hash(request.tenant, request.session),
    )
    row = TaskRow(
        ref=TaskRef(store_id=start.store_id, tenant=start.tenant, session=start.session, task_id=task_id_of(request)),
        request=request,
        terms=task_terms(request, settings, PRICES, utc_now().date()),
        submitted_at=utc_now(),
    )
    await store.register(row, (SourceDocument(name="a.md", text="# A\n"),))
    steps = (StepProgress(id="writing", role="writing", state="partial", legs=1, usage=Usage()),)
    over = as_stored(row, TaskPhase.PARTIAL).model_copy(
        update={"steps": steps, "report": await store.put_text("# Report")}
    )
    await store.finish(row.ref.task_id, over)
    await store.aclose()
    return row.ref.task_id


@pytest.fixture
def ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Id of a task that has ended, in a store whose server does not answer."""
    monkeypatch.setenv("WAYSTATION_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("TEMPORAL_CONFIG_FILE", str(tmp_path / "none.toml"))
    monkeypatch.setenv("TEMPORAL_ADDRESS", "127.0.0.1:1")
    return asyncio.run(keep_ended_task(Settings()))


def test_a_task_that_has_ended_is_not_cancelled(ended: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["cancel", ended]) == 0
    assert capsys.readouterr().err == f"{ended} has ended: partial\n"
    assert run(["cancel", ended, "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"task_id": ended, "phase": "partial", "asked": False}


def test_a_task_that_has_ended_is_granted_nothing(ended: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["approve", ended, "--add", "10k"]) == 2
    told = capsys.readouterr().err
    assert told == f"waystation: {ended} has ended: partial; there is nothing left to approve\n"


def test_a_report_is_printed_for_programs(ended: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["report", ended, "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"task_id": ended, "phase": "partial", "report": "# Report"}


def test_a_report_is_printed_as_it_is(ended: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["report", ended]) == 0
    assert capsys.readouterr().out == "# Report\n"


def test_a_transcript_without_an_agent_lists_the_agents(ended: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["transcript", ended]) == 0
    told = capsys.readouterr()
    assert told.out == "plan  planning\nwriting  writing\n"
    assert told.err == f"name one: `waystation transcript {ended} --agent writing`\n"


def test_the_agents_are_listed_for_programs(ended: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["transcript", ended, "--json"]) == 0
    agents = json.loads(capsys.readouterr().out)
    assert agents == [{"id": "plan", "role": "planning"}, {"id": "writing", "role": "writing"}]
