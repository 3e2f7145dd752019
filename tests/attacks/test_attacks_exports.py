"""Reports and drafts as files, from the API and the pages; and the heartbeat that scripts of pages hear."""

import asyncio
import re
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from io import BytesIO
from pathlib import Path
from zipfile import ZipFile

import httpx2
import pytest

from tests.attacks.test_attacks_web_pages import ACCESS, BEARER, HERE, NO_SERVER, SITE, store_running_task
from tests.support.finished_tasks import store_finished_task
from tests.support.store_values import make_note
from waystation.client import Client
from waystation.config.settings import Settings
from waystation.kernel.amount import Limit
from waystation.kernel.clock import utc_now
from waystation.planning.plan import build_standard_plan
from waystation.plugins.web.app import ServerDeps, create_app
from waystation.plugins.web.event_feed import EventFeed
from waystation.runtime.sql_store import SqlStore
from waystation.tasks.progress import build_waiting_step
from waystation.tasks.task import TaskPhase
from waystation.tasks.view import ReportView, StepView, TaskView

DOCX = "application/vnd.openxmlformats-officedocument.wordprocessingml.document"


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    monkeypatch.setenv("TEMPORAL_ADDRESS", NO_SERVER)
    return Settings(home=tmp_path / "home", offline=True)


class Drafting(Client):
    """Has a draft at once, and says how many are made at one moment."""

    at_once = most_at_once = 0

    async def build_draft(self, task_id: str) -> ReportView:
        """See base class."""
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        await asyncio.sleep(0.02)
        self.at_once -= 1
        return ReportView(
            task_id=task_id,
            phase=TaskPhase.WORKING,
            version=None,
            model="m",
            markdown=f"# Harbours of {task_id}\n\nOne was closed.\n",
        )

    async def get_last_known_task(self, task_id: str, *, details: bool = False) -> TaskView:
        """See base class: its steps are known."""
        view = await super().get_last_known_task(task_id, details=details)
        steps = tuple(
            build_waiting_step(step, Limit(tokens=9_000), skipped=False) for step in build_standard_plan("Which?").steps
        )
        return view.replace(steps=tuple(map(StepView.from_progress, steps)))


@asynccontextmanager
async def drafting(settings: Settings) -> AsyncGenerator[tuple[Drafting, httpx2.AsyncClient]]:
    async with await Drafting.connect(settings) as client:
        transport = httpx2.ASGITransport(app=create_app(SITE, client, settings.tenant, ServerDeps(ACCESS)))
        async with httpx2.AsyncClient(transport=transport, base_url=HERE, headers=BEARER) as asking:
            yield client, asking


async def test_a_report_and_a_draft_are_had_as_pdf_and_docx_under_a_name(settings: Settings) -> None:
    ended = await store_finished_task(settings)
    running = await store_running_task(settings)
    async with drafting(settings) as (_, asking):
        for path, name in ((f"/v1/tasks/{ended}/report", ended), (f"/v1/tasks/{running}/draft", f"{running}-draft")):
            pdf, docx = [await asking.get(path, params={"form": form}) for form in ("pdf", "docx")]
            assert [pdf.headers["content-type"], docx.headers["content-type"]] == ["application/pdf", DOCX]
            named = [one.headers["content-disposition"] for one in (pdf, docx)]
            assert named == [f'attachment; filename="{name}.{form}"' for form in ("pdf", "docx")]
            assert pdf.content.startswith(b"%PDF-")
            words = ZipFile(BytesIO(docx.content)).read("word/document.xml").decode()
            assert ("Report" if path.endswith("report") else "One was closed.") in words
        draft, text = [await asking.get(f"/v1/tasks/{running}/draft", params=one) for one in ({}, {"form": "markdown"})]
        ris, bibtex = [await asking.get(f"/v1/tasks/{ended}/report?form={form}") for form in ("ris", "bibtex")]
        none = await asking.get(f"/v1/tasks/{ended}/report?form=odt")
        missing = await asking.get(f"/v1/tasks/{running}/report?form=pdf")
    assert ris.headers["content-disposition"] == f'attachment; filename="{ended}.ris"'
    assert bibtex.headers["content-disposition"] == f'attachment; filename="{ended}.bib"'
    assert text.text == f"# Harbours of {running}\n\nOne was closed.\n"
    assert draft.json() == {
        "task_id": running,
        "phase": "working",
        "version": None,
        "markdown": text.text,
        "model": "m",
        "versions": [],
        "sentences": [],
    }
    assert (none.status_code, missing.status_code) == (422, 400)


async def store_note(settings: Settings, task_id: str) -> None:
    store = await SqlStore.open(settings.database_url, utc_now)
    run_id = f"{task_id}/research"
    await store.add_note(await store.acquire_fence(run_id), task_id, make_note("note-1", run_id))
    await store.aclose()


async def test_the_page_of_a_task_leads_to_its_draft_while_it_works_and_to_files_of_its_report(
    settings: Settings,
) -> None:
    ended = await store_finished_task(settings)
    running = await store_running_task(settings)
    async with drafting(settings) as (_, asking):
        nothing_yet = (await asking.get(f"/tasks/{running}")).text
        await store_note(settings, running)
        over, working = [(await asking.get(f"/tasks/{one}")).text for one in (ended, running)]
        draft = await asking.get(f"/tasks/{running}/draft")
    links = {
        form: f'href="/v1/tasks/{ended}/report?form={form}" download' in over
        for form in ("pdf", "docx", "bibtex", "ris")
    }
    assert all(links.values()), links
    offered = [f'href="/tasks/{running}/draft"' in page for page in (nothing_yet, working)]
    assert offered == [False, True]
    assert f"/tasks/{ended}/draft" not in over
    assert (draft.status_code, "One was closed." in draft.text) == (200, True)
    leads = re.findall(r'href="(/v1/tasks/[^"]+/draft[^"]*)"', draft.text)
    wanted = ("?form=pdf", "?form=docx", "?form=markdown", "?form=html", "", "?form=bibtex", "?form=ris")
    assert leads == [f"/v1/tasks/{running}/draft{form}" for form in wanted]


async def test_a_task_without_work_says_that_it_has_no_draft_and_drafts_are_made_one_at_a_time(
    settings: Settings,
) -> None:
    running = await store_running_task(settings)
    async with drafting(settings) as (client, asking):
        await asyncio.gather(*(asking.get(f"/v1/tasks/{running}/draft") for _ in range(4)))
        assert client.most_at_once == 1
    async with await Client.connect(settings) as client:
        transport = httpx2.ASGITransport(app=create_app(SITE, client, settings.tenant, ServerDeps(ACCESS)))
        async with httpx2.AsyncClient(transport=transport, base_url=HERE, headers=BEARER) as asking:
            answer = await asking.get(f"/v1/tasks/{running}/draft")
            page = await asking.get(f"/tasks/{running}/draft")
            ended = await asking.get(f"/tasks/{await store_finished_task(settings)}/draft")
    assert (answer.status_code, "has no draft yet" in answer.json()["detail"]) == (400, True)
    assert (page.status_code, "No agent has noted, found or written anything yet." in page.text) == (400, True)
    assert f'<a href="/tasks/{running}">Back to its task</a>' in page.text
    assert "waystation show" not in page.text
    assert '<p class="detail">task-' in ended.text, "an id stays as it is written"


async def test_who_asks_for_a_heartbeat_hears_an_event_when_nothing_happens_and_others_a_comment(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("waystation.plugins.web.event_feed.ALIVE_SECONDS", 0.05)
    await store_finished_task(settings)
    async with await Client.connect(settings) as client:
        feed, newest = EventFeed(client), await client.get_newest_event_number()
        for heartbeat, heard in ((0.05, b"event: alive\ndata: {}\n\n"), (None, b":\n\n")):
            stream = feed.stream(newest, None, heartbeat=heartbeat)
            assert [await anext(stream) for _ in range(3)][1:] == [heard, heard]
            await stream.aclose()
    async with drafting(settings) as (_, asking):
        page = await asking.get("/")
        answers = [await asking.get(f"/v1/events?heartbeat={one}") for one in ("0", "16", "x")]
    assert 'data-events="/v1/events"' in page.text
    assert re.search(r'data-after="\d+"', page.text)
    assert {answer.status_code for answer in answers} == {422}
