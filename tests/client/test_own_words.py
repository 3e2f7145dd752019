"""People see their own question with its names; assistants, and people without a key, see placeholders."""

from contextlib import aclosing
from pathlib import Path

import httpx2
import pytest

from tests.attacks.test_attacks_web_pages import ACCESS, BEARER, HERE, NO_SERVER, SITE
from tests.support.finished_tasks import make_task_row
from waystation.client import Client, OwnerClient
from waystation.config.settings import Settings
from waystation.documents.documents import SourceDocument
from waystation.kernel.clock import utc_now
from waystation.plugins.web.app import ServerDeps, create_app
from waystation.privacy.policy import VaultEntry
from waystation.runtime.sql_store import SqlStore
from waystation.runtime.store_setup import build_cipher
from waystation.tasks.task import TaskPhase, TaskRequest, tenant_hash
from waystation.tasks.view import TaskFilter, as_stored

ADA, PLACEHOLDER, CREDENTIAL = "Ada <Lovelace>", "<PERSON_7f3a2c91d04e>", "<SECRET_0123456789ab>"
TITLE = f"What did {PLACEHOLDER} write with {CREDENTIAL}?"
OWN = f"What did {ADA} write with {CREDENTIAL}?"
REPORT = f"# {TITLE}\n\n**Question.** {TITLE}\n\nShe is {PLACEHOLDER}.\n"


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    monkeypatch.setenv("TEMPORAL_ADDRESS", NO_SERVER)
    return Settings(home=tmp_path / "home", offline=True)


async def store_named_task(settings: Settings) -> str:
    settings.home.mkdir(exist_ok=True)
    async with aclosing(await SqlStore.open(settings.database_url, utc_now)) as store:
        request = TaskRequest(question=f"What did {ADA} write?", session="default", request_id="r1")
        row = make_task_row(request, settings, await store.get_store_id())
        await store.register_task(row, (SourceDocument(name="a.md", text="# A\n"),))
        await store.save_task_title(row.ref.task_id, TITLE)
        report = await store.put_text(REPORT, row.ref.scope)
        over = as_stored(row, TaskPhase.DONE).replace(report=report, title=TITLE)
        await store.save_task_progress(row.ref.task_id, over)
        kept = VaultEntry(type="PERSON", placeholder=PLACEHOLDER, fingerprint="7f3a2c91d04e" + "0" * 52, text=ADA)
        await store.build_vault(build_cipher(settings, "vault")).store_originals(tenant_hash(settings.tenant), [kept])
    return row.ref.task_id


async def test_a_question_is_shown_and_found_with_its_names_and_without_its_credentials(settings: Settings) -> None:
    task = await store_named_task(settings)
    async with await OwnerClient.connect(settings) as client:
        (listed,) = await client.list_tasks(TaskFilter(text="lovelace"))
        shown = await client.get_last_known_task(task, details=True)
        report = await client.get_report(task)
        (session,) = await client.list_sessions()
    assert (listed.title, shown.title, session.first_title) == (OWN, OWN, OWN)
    assert PLACEHOLDER not in report.partition("She is")[0]
    assert CREDENTIAL in report
    # Only the question is restored: the text of a report keeps what its writer was shown.
    assert f"She is {PLACEHOLDER}." in report


async def test_a_client_for_models_keeps_the_placeholders(settings: Settings) -> None:
    task = await store_named_task(settings)
    async with await Client.connect(settings) as client:
        assert await client.list_tasks(TaskFilter(text="lovelace")) == ()
        assert (await client.get_last_known_task(task)).title == TITLE
        assert await client.get_report(task) == REPORT


async def test_pages_and_the_api_show_the_question_with_its_names_as_text(settings: Settings) -> None:
    task = await store_named_task(settings)
    async with await OwnerClient.connect(settings) as client:
        transport = httpx2.ASGITransport(app=create_app(SITE, client, settings.tenant, ServerDeps(ACCESS)))
        async with httpx2.AsyncClient(transport=transport, base_url=HERE) as asking:
            pages = [(await asking.get(path, headers=BEARER)).text for path in ("/", "/sessions", f"/tasks/{task}")]
            (listed,) = (await asking.get("/v1/tasks", headers=BEARER)).json()
    assert all("Ada &lt;Lovelace&gt;" in page and "<Lovelace>" not in page for page in pages)
    # The report's title states the question, so that its paragraph is not shown again.
    assert "Ada ‹Lovelace›" in pages[-1]
    assert "Question." not in pages[-1]
    assert listed["title"] == OWN
