import asyncio
import json

import pytest

from tests.support.scopes import SYSTEM_SCOPE
from tests.support.store_values import make_charge
from waystation.cli.main import run
from waystation.config.settings import Settings
from waystation.kernel.clock import utc_now
from waystation.kernel.refs import RunRef
from waystation.runtime.sql_store import SqlStore


def test_a_task_that_has_ended_is_not_cancelled(ended_id: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["cancel", ended_id]) == 0
    assert capsys.readouterr().err == f"{ended_id} has ended: partial\n"
    assert run(["cancel", ended_id, "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"task_id": ended_id, "phase": "partial", "requested": False}


def test_a_task_that_has_ended_is_granted_nothing(ended_id: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["approve", ended_id, "--add", "10k"]) == 2
    told = capsys.readouterr().err
    assert told == f"waystation: {ended_id} has ended: partial; there is nothing left to approve\n"


def test_a_task_that_has_ended_is_not_asked_to_deliver(ended_id: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["deliver", ended_id]) == 2
    assert capsys.readouterr().err == (
        f"waystation: {ended_id} has already ended: partial; `waystation report {ended_id}` prints its report\n"
    )


def test_a_report_is_printed_for_programs(ended_id: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["report", ended_id, "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {
        "task_id": ended_id,
        "phase": "partial",
        "version": 1,
        "versions": [{"number": 1, "phase": "partial", "stored_at": None}],
        "model": "waystation-offline-1",
        "markdown": "# Report",
        "sentences": [],
    }


def test_a_report_is_printed_as_it_is(ended_id: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["report", ended_id]) == 0
    assert capsys.readouterr().out == "# Report\n"


def test_a_transcript_without_an_agent_lists_the_agents(ended_id: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["transcript", ended_id]) == 0
    told = capsys.readouterr()
    assert told.out == "plan  planning\nwriting  writing\n"
    assert told.err == f"Choose an agent: `waystation transcript {ended_id} --agent writing`\n"


async def store_review_call(settings: Settings, task_id: str) -> None:
    store = await SqlStore.open(settings.database_url, utc_now)
    task = (await store.get_task(task_id, SYSTEM_SCOPE)).ref
    reviewer = RunRef(**task.model_dump(), step_id="review-1", role="reviewing")
    await store.open_run(reviewer)
    await store.commit_charge(await store.acquire_fence(reviewer.run_id), make_charge("turn-1"))
    await store.aclose()


def test_agents_that_reviewed_the_report_are_listed_after_the_steps(
    ended_id: str, without_server: Settings, capsys: pytest.CaptureFixture[str]
) -> None:
    asyncio.run(store_review_call(without_server, ended_id))
    assert run(["transcript", ended_id]) == 0
    told = capsys.readouterr()
    assert told.out == "plan  planning\nwriting  writing\nreview-1  reviewing\n"
    assert told.err == f"Choose an agent: `waystation transcript {ended_id} --agent writing`\n"


def test_the_agents_are_listed_for_programs(ended_id: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["transcript", ended_id, "--json"]) == 0
    agents = json.loads(capsys.readouterr().out)
    assert agents == [{"id": "plan", "role": "planning"}, {"id": "writing", "role": "writing"}]
