"""Links to reports: what a person without a key sees, and that it ends."""

import re
from collections.abc import AsyncGenerator
from contextlib import aclosing, asynccontextmanager
from datetime import timedelta
from html import escape, unescape
from pathlib import Path

import httpx2
import pytest
from sqlalchemy import text

from tests.attacks.test_attacks_web_pages import ACCESS, BEARER, HERE, NO_SERVER, SITE
from tests.store.test_store_encryption import SEALING
from tests.support.finished_tasks import make_task_row, store_finished_task
from waystation.client import Client, OwnerClient
from waystation.config.settings import Settings
from waystation.documents.documents import SourceDocument
from waystation.erasure.erasure import ForgetOrder
from waystation.kernel.amount import Limit
from waystation.kernel.clock import utc_now
from waystation.kernel.errors import BadInput, UnknownTask, WrongKey
from waystation.kernel.scopes import TenantScope
from waystation.planning.plan import build_standard_plan
from waystation.plugins.web.app import ServerDeps, create_app
from waystation.privacy.policy import PLACEHOLDER_PATTERN, RedactionPolicy, VaultEntry, get_placeholder_type
from waystation.runtime.sql_store import SqlStore
from waystation.runtime.store_setup import build_cipher
from waystation.tasks.progress import build_waiting_step
from waystation.tasks.report_links import MAX_LINKS, NewReportLink, ReportLink, SharedReport
from waystation.tasks.task import TaskPhase, TaskRequest, tenant_hash
from waystation.tasks.view import as_stored

FORM = {"mark": ACCESS.csrf_token}
REPORT = "# Which harbour?\n\nIt was closed by silt [a.md:2-2].\n\n## About this report\n\n- Submitted by the tenant\n"

ADA, ADA_PLACEHOLDER, AWS_KEY = "Ada Lovelace", "<PERSON_7f3a2c91d04e>", "AKIA" + "QYLPMN5HHHFPZAM2"
PEM = ["-----BEGIN RSA PRIVATE KEY-----", "MIIEpAIBAAKCAQEA7bq1xkq0", "-----END RSA PRIVATE KEY-----"]
PRIVATE_DOCUMENT = "\n".join(
    [*PEM, f"{ADA} (ada@example.org) used the key {AWS_KEY}.", "She closed the harbour.", "The end."]
)


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    monkeypatch.setenv("TEMPORAL_ADDRESS", NO_SERVER)
    return Settings(home=tmp_path / "home", offline=True)


@asynccontextmanager
async def open_site(settings: Settings) -> AsyncGenerator[httpx2.AsyncClient]:
    async with await Client.connect(settings) as client:
        app = create_app(SITE, client, settings.tenant, ServerDeps(ACCESS))
        async with httpx2.AsyncClient(transport=httpx2.ASGITransport(app=app), base_url=HERE) as asking:
            yield asking


async def store_report(settings: Settings) -> str:
    settings.home.mkdir(exist_ok=True)
    async with aclosing(await SqlStore.open(settings.database_url, utc_now)) as store:
        asked = TaskRequest(question="Which harbour?", session="secret-session", request_id="r1")
        row = make_task_row(asked, settings, await store.get_store_id())
        await store.register_task(row, (SourceDocument(name="a.md", text="before\nclosed by silt\nafter"),))
        report = await store.put_text(REPORT, row.ref.scope)
        await store.save_task_progress(row.ref.task_id, as_stored(row, TaskPhase.DONE).replace(report=report))
    return row.ref.task_id


async def store_private_report(settings: Settings, policy: RedactionPolicy) -> str:
    settings.home.mkdir(exist_ok=True)
    title = f"What did {ADA_PLACEHOLDER} close?"
    async with aclosing(await SqlStore.open(settings.database_url, utc_now)) as store:
        asked = TaskRequest(question=f"What did {ADA} close?", session="default", request_id="r1")
        row = make_task_row(asked, settings, await store.get_store_id())
        await store.register_task(row, (SourceDocument(name="a.md", text=PRIVATE_DOCUMENT),))
        await store.save_task_title(row.ref.task_id, title)
        report = await store.put_text(f"# {title}\n\nIt was the harbour [a.md:4-5].\n", row.ref.scope)
        over = as_stored(row, TaskPhase.DONE).replace(report=report, title=title, privacy=policy)
        await store.save_task_progress(row.ref.task_id, over)
        kept = VaultEntry(type="PERSON", placeholder=ADA_PLACEHOLDER, fingerprint="7f3a2c91d04e" + "0" * 52, text=ADA)
        await store.build_vault(build_cipher(settings, "vault")).store_originals(tenant_hash(settings.tenant), [kept])
    return row.ref.task_id


async def share(asking: httpx2.AsyncClient, task: str, **wanted: object) -> str:
    answer = await asking.post(f"/v1/tasks/{task}/shares", headers=BEARER, json=wanted)
    assert answer.status_code == 201, answer.text
    return str(answer.json()["path"])


async def test_a_link_shows_its_report_without_a_key_and_nothing_else(settings: Settings) -> None:
    task = await store_report(settings)
    async with open_site(settings) as asking:
        path = await share(asking, task)
        shown = await asking.get(path)
        lines = await asking.get(path, params={"source": "1"})
        others = [
            (await asking.get(other)).status_code for other in (f"/tasks/{task}", "/", f"/v1/tasks/{task}/report")
        ]
        (listed,) = (await asking.get(f"/v1/tasks/{task}/shares", headers=BEARER)).json()
    assert shown.status_code == 200
    assert "It was closed by silt" in shown.text
    # No account, session, navigation, script or form, and no text of documents beyond the report.
    for hidden in ("Submitted by", "secret-session", "<nav", "<script", "<form", "before"):
        assert hidden not in shown.text
        assert hidden not in lines.text
    assert others == [401, 401, 401]
    assert listed["last_used_at"] is not None
    secret = path.partition(".")[2].encode()
    assert [one for one in settings.home.rglob("waystation.db*") if secret in one.read_bytes()] == []


async def test_cited_lines_are_shown_only_if_they_were_chosen_and_without_their_surroundings(
    settings: Settings,
) -> None:
    task = await store_report(settings)
    async with open_site(settings) as asking:
        path = await share(asking, task, sources=True)
        shown, lines = await asking.get(path), await asking.get(path, params={"source": "1"})
    assert f'href="{path}?source=1#source"' in shown.text
    assert "<td>closed by silt</td>" in lines.text
    assert not any(word in lines.text for word in ("<td>before</td>", "<td>after</td>"))


def read_placeholder_types(page: str) -> set[str]:
    return {get_placeholder_type(one) for one in PLACEHOLDER_PATTERN.findall(unescape(page))}


@pytest.mark.parametrize("admitted", [RedactionPolicy.STANDARD, RedactionPolicy.STRICT])
async def test_a_link_shows_no_more_than_the_agents_were_shown(settings: Settings, admitted: RedactionPolicy) -> None:
    task = await store_private_report(settings, admitted)
    async with await OwnerClient.connect(settings) as client:
        assert ADA in await client.get_report(task)
        app = create_app(SITE, client, settings.tenant, ServerDeps(ACCESS))
        async with httpx2.AsyncClient(transport=httpx2.ASGITransport(app=app), base_url=HERE) as asking:
            path = await share(asking, task, sources=True)
            shown, lines = await asking.get(path), await asking.get(path, params={"source": "1"})
    assert ADA not in shown.text
    assert shown.text.count(escape(ADA_PLACEHOLDER)) >= 2, "in the title of the page and in that of the report"
    for private in ("ada@example.org", AWS_KEY):
        assert private not in lines.text
    cited = re.findall(r'<tr class="cited"><th>(\d+)</th><td>(.*?)</td></tr>', lines.text)
    assert [number for number, _ in cited] == ["4", "5"]
    # Lines keep their numbers below a value of several lines, which has one placeholder.
    assert cited[1][1] == "She closed the harbour."
    types = read_placeholder_types(cited[0][1])
    assert {"EMAIL", "SECRET"} <= types
    # The stricter of the policies counts: this machine's is `standard`.
    assert (ADA in cited[0][1], "PERSON" in types) == (
        (True, False) if admitted is RedactionPolicy.STANDARD else (False, True)
    )


async def test_lines_of_a_document_that_was_removed_cannot_be_shown(settings: Settings) -> None:
    task = await store_report(settings)
    async with aclosing(await SqlStore.open(settings.database_url, utc_now)) as store:
        row = await store.get_task(task, TenantScope(tenant=tenant_hash(settings.tenant)))
        report = await store.put_text(REPORT.replace("a.md", "b.md"), row.ref.scope)
        await store.save_task_progress(task, as_stored(row, TaskPhase.DONE).replace(report=report))
    async with open_site(settings) as asking:
        path = await share(asking, task, sources=True)
        lines = await asking.get(path, params={"source": "1"})
    assert lines.status_code == 200
    assert "These lines cannot be shown" in lines.text


async def test_a_link_ends_when_it_is_revoked_or_expires_and_a_wrong_one_opens_nothing(settings: Settings) -> None:
    task = await store_report(settings)
    async with open_site(settings) as asking:
        path = await share(asking, task)
        (listed,) = (await asking.get(f"/v1/tasks/{task}/shares", headers=BEARER)).json()
        link_id = listed["id"]
        wrong = [
            path[:-1] + ("a" if path[-1] != "a" else "b"),
            f"/shared/{link_id}",
            "/shared/x.y",
            f"/shared/{link_id}.",
        ]
        refused = [(await asking.get(other)).status_code for other in wrong]
        forged = await asking.post(f"/tasks/{task}/shares/{link_id}/revoke", headers=BEARER, data={})
        revoked = await asking.post(f"/tasks/{task}/shares/{link_id}/revoke", headers=BEARER, data=FORM)
        gone = await asking.get(path)
    assert refused == [404] * 4
    assert (forged.status_code, revoked.status_code, gone.status_code) == (403, 303, 404)
    assert "This link no longer works" in gone.text
    assert "Ask the person who sent it to you for a new link." in gone.text
    assert "Back to the tasks" not in gone.text


async def test_a_link_opens_its_report_until_it_expires(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    task = await store_report(settings)
    async with await Client.connect(settings) as client:
        made = await client.create_report_link(task, NewReportLink(days=2), "Ada")
        address = made.path.removeprefix("/shared/")
        for days, is_open in ((1, True), (3, False)):
            later = utc_now() + timedelta(days=days)
            monkeypatch.setattr("waystation.client.report_links.utc_now", lambda at=later: at)
            assert (await client.open_report_link(address) is not None) == is_open
    assert made.link.made_by == "Ada"


async def test_a_link_belongs_to_its_task_and_tenant(settings: Settings) -> None:
    task, other = await store_report(settings), await store_finished_task(settings)
    async with (
        await Client.connect(settings) as client,
        await Client.connect(settings.replace(tenant="other")) as stranger,
    ):
        made = await client.create_report_link(task, NewReportLink(), "Ada")
        assert await stranger.list_report_links(task) == ()
        with pytest.raises(UnknownTask):
            await stranger.revoke_report_link(task, made.link.id)
        with pytest.raises(BadInput, match="this task has no such link"):
            await client.revoke_report_link(other, made.link.id)
        assert await client.list_report_links(task) == (made.link,)
        # Every server of the store opens it: the address names no tenant.
        opened = await stranger.open_report_link(made.path.removeprefix("/shared/"))
        assert opened is not None
        assert (opened.tenant, opened.link.task_id) == (settings.tenant, task)


async def test_links_end_with_their_session(settings: Settings) -> None:
    task = await store_report(settings)
    async with await Client.connect(settings) as client:
        made = await client.create_report_link(task, NewReportLink(), "Ada")
    async with aclosing(await SqlStore.open(settings.database_url, utc_now)) as store:
        tenant = tenant_hash(settings.tenant)
        order = ForgetOrder(store_id=await store.get_store_id(), tenant=tenant, task_ids=(task,), everything=True)
        await store.forget_tasks(order)
        assert await store.list_report_links(task, TenantScope(tenant=tenant)) == ()
        assert await store.find_report_link(made.link.id) is None


async def test_the_pages_of_a_forgotten_task_say_that_its_texts_were_deleted_and_offer_nothing(
    settings: Settings,
) -> None:
    task = await store_report(settings)
    async with aclosing(await SqlStore.open(settings.database_url, utc_now)) as store:
        row = await store.get_task(task, TenantScope(tenant=tenant_hash(settings.tenant)))
        (step, *_) = build_standard_plan("Which harbour?").steps
        steps = (build_waiting_step(step, Limit(tokens=9_000), skipped=False),)
        await store.save_task_progress(task, as_stored(row, TaskPhase.DONE).replace(steps=steps))
        order = ForgetOrder(
            store_id=await store.get_store_id(),
            tenant=tenant_hash(settings.tenant),
            task_ids=(task,),
            everything=True,
        )
        await store.forget_tasks(order)
    async with open_site(settings) as asking:
        page = await asking.get(f"/tasks/{task}", headers=BEARER)
        own = ("report", "shares", "draft", "plan", "document?name=a.md", "agents/research-1")
        paths = [*(f"/tasks/{task}/{one}" for one in own), f"/?follow={task}", f"/schedules?task={task}"]
        others = [await asking.get(path, headers=BEARER) for path in paths]
    assert [one.status_code for one in (page, *others)] == [200, *([410] * len(paths))]
    for one in (page, *others):
        assert "The texts of this task were deleted" in one.text
        for offer in ("Export this run", "Fork:", "Create a link", "/shares", "has no report yet"):
            assert offer not in one.text


async def test_of_too_many_links_those_that_open_nothing_go_first(settings: Settings) -> None:
    task, now = await store_report(settings), utc_now()
    link = ReportLink(
        id="0", task_id=task, version=1, sources=False, made_by="", made_at=now, expires_at=now + timedelta(days=1)
    )
    async with aclosing(await SqlStore.open(settings.database_url, utc_now)) as store:
        for number in range(MAX_LINKS):
            shared = SharedReport(link=link.replace(id=f"{number}"), tenant=settings.tenant, digest="d")
            await store.add_report_link(shared)
        more = SharedReport(link=link.replace(id="more"), tenant=settings.tenant, digest="d")
        with pytest.raises(BadInput, match="100 links to this report are open, the maximum"):
            await store.add_report_link(more)
        await store.revoke_report_link(task, "7", now)
        await store.add_report_link(more)
        kept = {one.id for one in await store.list_report_links(task, TenantScope(tenant=tenant_hash(settings.tenant)))}
    assert len(kept) == MAX_LINKS
    assert "more" in kept
    assert "7" not in kept


async def test_who_can_write_to_an_encrypted_store_but_has_no_key_makes_and_extends_no_link(settings: Settings) -> None:
    task = await store_report(settings)
    link = ReportLink(
        id="a", task_id=task, version=1, sources=False, made_by="Ada", made_at=utc_now(), expires_at=utc_now()
    )
    async with aclosing(await SqlStore.open(settings.database_url, utc_now, at_rest=SEALING)) as store:
        await store.add_report_link(SharedReport(link=link, tenant=settings.tenant, digest="d"))
        async with store.database.write() as connection:
            await connection.execute(text("UPDATE report_links SET link_id = 'b'"))
        with pytest.raises(WrongKey):
            await store.find_report_link("b")


async def test_the_page_makes_a_link_once_and_says_what_is_wrong_at_its_field(settings: Settings) -> None:
    task = await store_report(settings)
    async with open_site(settings) as asking:
        wrong = await asking.post(f"/tasks/{task}/shares", headers=BEARER, data={**FORM, "days": "1000"})
        no_number = await asking.post(f"/tasks/{task}/shares", headers=BEARER, data={**FORM, "days": "soon"})
        made = await asking.post(f"/tasks/{task}/shares", headers=BEARER, data={**FORM, "days": "7"})
        later = await asking.get(f"/tasks/{task}/shares", headers=BEARER)
    assert (wrong.status_code, 'id="share-days-fault"' in wrong.text) == (400, True)
    assert "A link is valid for 1 to 365 days: write a number like 30." in wrong.text
    assert (no_number.status_code, "Write a number of days, like 30." in no_number.text) == (400, True)
    assert f"{HERE}/shared/" in made.text
    assert "/shared/" not in later.text
    assert "Revoke" in later.text
