"""What is handed in by the forms of the pages, and what of it cannot be used."""

from collections.abc import Sequence
from datetime import timedelta
from io import BytesIO
from pathlib import Path

import httpx2
import pytest
from starlette.datastructures import UploadFile

from tests.attacks.test_attacks_web_pages import ACCESS, BEARER, HERE, NO_SERVER, SITE, open_site_client
from tests.support.document_files import make_pdf_file
from tests.support.finished_tasks import make_task_row, store_finished_task
from waystation.client import Client
from waystation.client.submission import compare_documents
from waystation.config.settings import Settings
from waystation.documents.document_loading import DocumentLoadResult
from waystation.documents.documents import MAX_TASK_DOCUMENTS, SourceDocument
from waystation.kernel.clock import utc_now
from waystation.kernel.errors import BadInput
from waystation.plugins.web.access import get_required_role
from waystation.plugins.web.app import ServerDeps, create_app
from waystation.plugins.web.uploads import MAX_UPLOAD_NAME_BYTES, UploadReader, UploadReadingState, sanitize_upload_path
from waystation.runtime.sql_store import SqlStore
from waystation.tasks.task import TaskRequest, TaskRow
from waystation.tasks.view import SubmittedTask

NO_TIME = timedelta()


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    monkeypatch.setenv("TEMPORAL_ADDRESS", NO_SERVER)
    return Settings(home=tmp_path / "home", offline=True)


async def load_uploads(files: Sequence[UploadFile]) -> DocumentLoadResult:
    return await UploadReader(UploadReadingState(), "acme").load(files)


class Taking(Client):
    """Keeps what is handed in, since no server is there."""

    taken: TaskRequest | None = None

    async def submit(
        self, request: TaskRequest | TaskRow, documents: Sequence[SourceDocument], *, start_timeout: timedelta = NO_TIME
    ) -> SubmittedTask:
        """See base class."""
        assert isinstance(request, TaskRequest)
        self.taken = request
        return SubmittedTask(task_id="task-0000000000000000", run_id=None, ui_url=None)


async def test_the_form_has_a_plan_wait_and_says_what_a_task_may_spend_before_it_is_handed_in(
    settings: Settings,
) -> None:
    async with await Taking.connect(settings) as client:
        transport = httpx2.ASGITransport(app=create_app(SITE, client, settings.tenant, ServerDeps(ACCESS)))
        async with httpx2.AsyncClient(transport=transport, base_url=HERE) as asking:
            front = await asking.get("/", headers=BEARER)
            waits: list[bool | None] = []
            for box in ({}, {"review_plan": "yes"}):
                form = {"mark": ACCESS.csrf_token, "question": "Which?", "budget": "9k", **box}
                answer = await asking.post(
                    "/tasks", headers=BEARER, data=form, files={"documents": ("a.md", b"# A\n\nwords")}
                )
                assert answer.headers["location"] == "/tasks/task-0000000000000000"
                assert client.taken is not None
                waits.append(client.taken.review_plan)
    assert waits == [None, True]
    assert "a task may spend 600,000 tokens, and each of its agents 100,000 tokens" in front.text


def notes(count: int) -> tuple[SourceDocument, ...]:
    return tuple([SourceDocument(name=f"{number}.txt", text="words") for number in range(count)])


async def test_more_documents_than_a_task_may_have_are_refused_at_first_and_when_they_come_later(
    settings: Settings,
) -> None:
    too_many = r"5,001 documents are too many: a task can have 5,000 documents\. Give a smaller folder"
    request = TaskRequest(question="Why?", request_id="r1")
    async with await Client.connect(settings) as client:
        with pytest.raises(BadInput, match=too_many):
            await client.submit(request, notes(MAX_TASK_DOCUMENTS + 1))
    store = await SqlStore.open(settings.database_url, utc_now)
    try:
        row = make_task_row(request, settings, await store.get_store_id())
        await store.register_task(row, [SourceDocument(name="first.txt", text="words")])
        with pytest.raises(BadInput, match=too_many):
            await compare_documents(
                store, row.ref.scope, DocumentLoadResult(documents=notes(MAX_TASK_DOCUMENTS)), remove_missing=True
            )
        fits = DocumentLoadResult(documents=notes(MAX_TASK_DOCUMENTS - 1))
        assert (
            len((await compare_documents(store, row.ref.scope, fits, remove_missing=True)).changes)
            == MAX_TASK_DOCUMENTS
        )
    finally:
        await store.aclose()


async def test_a_sessions_page_sets_its_limit_for_those_who_may_and_says_how_amounts_are_written(
    settings: Settings,
) -> None:
    task = await store_finished_task(settings)
    async with open_site_client(settings) as asking:
        page = await asking.get("/session?name=default", headers=BEARER)
        form = {"mark": ACCESS.csrf_token, "name": "default"}
        unread = await asking.post("/session/limit", headers=BEARER, data={**form, "budget": "lots"})
        away = await asking.post("/session/limit", headers=BEARER, data={**form, "budget": "2M"})
        forged = await asking.post("/session/limit", headers=BEARER, data={"name": "default", "budget": "2M"})
    assert 'action="/session/limit?name=default"' in page.text
    assert f'href="/tasks/{task}"' in page.text
    assert (unread.status_code, "tokens like 600k" in unread.text) == (400, True)
    assert (away.status_code, forged.status_code) == (503, 403)
    assert get_required_role("POST", "/session/limit") == "approve"


@pytest.mark.parametrize("budget", ["", " ", "0", "1", "2000000000", "$2000000", "9" * 60, "lots"])
async def test_a_session_is_limited_only_to_what_a_task_could_spend(budget: str, settings: Settings) -> None:
    async with open_site_client(settings) as asking:
        said = await asking.put("/v1/sessions/default/limit", headers=BEARER, json={"budget": budget})
        none = await asking.put("/v1/sessions/default/limit", headers=BEARER, json={"budget": "unlimited"})
    assert (said.status_code, none.status_code) == (400 if budget else 422, 503)


async def test_what_is_uploaded_has_names_that_are_apart_and_fit_any_folder() -> None:
    given = ("../x.md", "x.md", "\u5b57" * 110 + ".md", "wiki/a/index.md", "wiki/b/index.md", "/etc/../c/b/index.md")
    loaded = await load_uploads([UploadFile(BytesIO(b"# A\n\nwords"), filename=name) for name in given])
    names = [one.name for one in loaded.documents]
    assert names[:2] == ["x.md", "x.md (2)"]
    assert names[3:] == ["a/index.md", "b/index.md", "c/b/index.md"]
    assert names[2].endswith("\u5b57.md")
    assert len(names[2].encode()) <= MAX_UPLOAD_NAME_BYTES


def upload(name: str) -> UploadFile:
    return UploadFile(BytesIO(bytes(range(256)) if name.endswith(".xyz") else b"# A\n\nwords"), filename=name)


async def test_what_cannot_be_read_of_an_upload_is_left_out_under_the_name_that_it_was_given() -> None:
    given = ("a/index.md", "a/scan.xyz", "b/index.md", "b/scan.xyz", f"{'n' * 195}.xyz", f"{'m' * 195}.md")
    loaded = await load_uploads([upload(name) for name in given])
    assert [one.name for one in loaded.documents][:2] == ["a/index.md", "b/index.md"]
    left_out = {one.name: one.reason for one in loaded.skipped_items}
    assert left_out.keys() == {"a/scan.xyz", "b/scan.xyz", sanitize_upload_path(given[4])[-189:].rjust(190, "…")}
    assert set(left_out.values()) == {"binary, not text"}


async def test_an_upload_of_which_nothing_can_be_read_is_refused_by_names() -> None:
    with pytest.raises(BadInput, match=r"^none of these files can be used \(scan\.xyz: binary, not text\)\. Give"):
        await load_uploads([upload("scan.xyz")])


async def test_a_part_of_an_upload_is_left_out_under_the_name_of_its_document() -> None:
    loaded = await load_uploads(
        [upload("a.md"), UploadFile(BytesIO(make_pdf_file("The first page.", "scan")), filename="x/two.pdf")]
    )
    assert [one.name for one in loaded.documents] == ["a.md", "two.pdf"]
    assert [one.name for one in loaded.skipped_items] == ["two.pdf, page 2"]


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ("../../etc/passwd", "etc/passwd"),
        ("C:\\x\\a.md", "C:/x/a.md"),
        ("a/./.git/b.md", "a/git/b.md"),
        (".bashrc", "bashrc"),
        ("..", "document.txt"),
        ("/", "document.txt"),
        ("a\0b\n.md", "a␀b.md"),
    ],
)
def test_a_files_name_leads_nowhere(given: str, kept: str) -> None:
    assert sanitize_upload_path(given) == kept
