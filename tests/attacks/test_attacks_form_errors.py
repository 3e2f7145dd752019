"""Forms of the pages that cannot be taken: each comes back as it was sent, with what is wrong at its field."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from html.parser import HTMLParser
from pathlib import Path

import httpx2
import pytest

from tests.attacks.test_attacks_web_pages import ACCESS, BEARER, HERE, NO_SERVER, SCRIPT, SITE
from tests.support.finished_tasks import store_finished_task
from waystation.client import Client
from waystation.config.settings import Settings
from waystation.documents.documents import SourceDocument
from waystation.kernel.amount import Amount
from waystation.kernel.errors import Unreachable
from waystation.plugins.web.app import ServerDeps, create_app
from waystation.tasks.approvals import AnswerAuthor
from waystation.tasks.signals import AnswerResult
from waystation.tasks.task import ApprovalRequest, TaskPhase, TaskRequest, TaskRow
from waystation.tasks.view import ApprovalView, PendingApproval, SubmittedTask, TaskView

NOTHING = timedelta()
NOON = datetime(2026, 11, 28, 12, tzinfo=UTC)
ASKED = ApprovalRequest(request_id="writing-1", agent="writing", requested=Amount(tokens=5_000), requested_at=NOON)


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    monkeypatch.setenv("TEMPORAL_ADDRESS", NO_SERVER)
    return Settings(home=tmp_path / "home", offline=True)


class Desk(Client):
    """Takes what is handed in and answers requests as it is told to, since no server is there."""

    taken: TaskRequest | None = None
    given: Sequence[SourceDocument] = ()
    away = False
    says = AnswerResult(outcome="approved", reason="")
    answered: tuple[str, ...] = ()

    async def submit(
        self, request: TaskRequest | TaskRow, documents: Sequence[SourceDocument], *, start_timeout: timedelta = NOTHING
    ) -> SubmittedTask:
        """See base class."""
        if self.away:
            raise Unreachable("no Temporal server answers at 127.0.0.1:9")
        assert isinstance(request, TaskRequest)
        self.taken, self.given = request, documents
        return SubmittedTask(task_id="task-0000000000000000", run_id=None, ui_url=None)

    async def get_task(self, task_id: str, *, details: bool = False) -> TaskView:
        """See base class: it waits for an answer."""
        view = await super().get_task(task_id, details=details)
        asked = (ApprovalView.from_request(ASKED),)
        return view.replace(phase=TaskPhase.PAUSED, approvals=asked, reports=())

    async def list_approvals(self, session: str | None = None) -> tuple[PendingApproval, ...]:
        """See base class."""
        ids = [one.task_id for one in await self.list_tasks()]
        return tuple(
            PendingApproval(task_id=one, title="Which?", approval=ApprovalView.from_request(ASKED)) for one in ids
        )

    async def approve(
        self,
        task_id: str,
        *,
        request_id: str | None = None,
        amount: Amount | None = None,
        by: AnswerAuthor = "",
        note: str = "",
    ) -> AnswerResult:
        """See base class."""
        return self.says

    async def send_message(self, task_id: str, words: str, by: str = "") -> AnswerResult:
        """See base class."""
        if self.away:
            raise Unreachable("no Temporal server answers at 127.0.0.1:9")
        return self.says


class Returned(HTMLParser):
    """Fields of one form of a page, and its messages."""

    def __init__(self, form: str, page: str) -> None:
        super().__init__()
        self.fields: dict[str, str] = {}
        self.described: dict[str, str] = {}
        self.faults: dict[str, str] = {}
        self._form, self._inside, self._at, self._area = form, False, "", ""
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """See base class."""
        said = {name: value or "" for name, value in attrs}
        self._inside = said.get("id") == self._form if tag == "form" else self._inside
        if not self._inside:
            return
        if said.get("type") == "radio" and "checked" not in said:
            return
        if tag in {"input", "textarea"} and "name" in said:
            ticked = said.get("type") != "checkbox" or "checked" in said
            self.fields[said["name"]] = said.get("value", "") if ticked else ""
            self._area = said["name"] if tag == "textarea" else ""
            if said.get("aria-invalid") == "true":
                self.described[said["name"]] = said["aria-describedby"]
        if "fault" in said.get("class", ""):
            self._at = said.get("id", "left out")
            self.faults[self._at] = ""

    def handle_endtag(self, tag: str) -> None:
        """See base class."""
        self._inside = self._inside and tag != "form"
        self._at = "" if tag in {"p", "ul"} else self._at
        self._area = "" if tag == "textarea" else self._area

    def handle_data(self, data: str) -> None:
        """See base class."""
        if self._area:
            self.fields[self._area] += data
        elif self._at:
            self.faults[self._at] += data

    def fault(self, name: str) -> str:
        """What stands at a field, which says so to who does not see it."""
        return self.faults[self.described[name]]


@asynccontextmanager
async def desk(settings: Settings) -> AsyncGenerator[tuple[Desk, httpx2.AsyncClient]]:
    async with await Desk.connect(settings) as client:
        transport = httpx2.ASGITransport(app=create_app(SITE, client, settings.tenant, ServerDeps(ACCESS)))
        async with httpx2.AsyncClient(transport=transport, base_url=HERE, headers=BEARER) as asking:
            yield client, asking


ASKS = {
    "mark": ACCESS.csrf_token,
    "request_id": "0123456789abcdef",
    "question": f"Which harbours {SCRIPT}?",
    "session": "harbours",
    "budget": "9k",
    "instructions": "Name sources.",
    "accept": "every depth has a date",
    "review_plan": "yes",
}
GOOD, BAD = ("a.md", b"# A\n\nwords"), ("wiki/scan.xyz", bytes(range(256)))


def files(*given: tuple[str, bytes]) -> list[tuple[str, tuple[str, bytes]]]:
    return [("documents", one) for one in given]


@pytest.mark.parametrize(
    ("change", "given", "field", "said"),
    [
        ({"budget": "lots"}, (GOOD,), "budget", "A budget is tokens like 600k"),
        ({"budget": "1"}, (GOOD,), "budget", "A budget is 2,000 to 1,000,000,000 tokens"),
        ({"question": " "}, (GOOD,), "question", "This is empty."),
        ({"session": "s" * 201}, (GOOD,), "session", "at most 200 characters"),
        ({}, (), "documents", "Give the documents to work on"),
        ({}, (BAD,), "documents", "None of these files can be used (wiki/scan.xyz: binary, not text). Give"),
    ],
)
async def test_a_new_task_that_cannot_be_taken_comes_back_as_it_was_sent(
    change: dict[str, str], given: Sequence[tuple[str, bytes]], field: str, said: str, settings: Settings
) -> None:
    async with desk(settings) as (client, asking):
        sent = {**ASKS, **change}
        answer = await asking.post("/tasks", data=sent, files=files(*given) or None)
    assert (answer.status_code, client.taken) == (400, None)
    back = Returned("new-task", answer.text)
    assert said in back.fault(field)
    assert back.faults.keys() == {f"new-task-{field}-fault"}, "every other field is as it should be"
    assert {**back.fields, "documents": ""} == {**sent, "documents": ""}
    assert SCRIPT not in answer.text


async def test_a_budget_that_the_models_do_not_allow_is_said_at_the_budget(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WAYSTATION_ROLES__RESEARCH__MODEL", "harbour-model-1")
    unpriced = Settings(home=settings.home, offline=False)
    async with desk(unpriced) as (client, asking):
        dollars = await asking.post("/tasks", data={**ASKS, "budget": "$2"}, files=files(GOOD))
        tokens = await asking.post("/tasks", data=ASKS, files=files(GOOD))
    assert (dollars.status_code, tokens.status_code, client.taken is None) == (400, 303, False)
    assert "needs models with known prices, but the price of harbour-model-1 is unknown" in Returned(
        "new-task", dollars.text
    ).fault("budget")


async def test_all_that_is_wrong_with_a_new_task_is_said_at_once_with_the_files_that_would_be_left_out(
    settings: Settings,
) -> None:
    async with desk(settings) as (_, asking):
        answer = await asking.post("/tasks", data={**ASKS, "question": "", "budget": "x"}, files=files(GOOD, BAD))
    back = Returned("new-task", answer.text)
    assert back.described.keys() == {"question", "budget"}
    assert back.faults["left out"].strip() == "Left out: wiki/scan.xyz: binary, not text"


async def test_a_file_that_cannot_be_used_costs_itself_alone_and_is_named_on_the_page_of_its_task(
    settings: Settings,
) -> None:
    async with desk(settings) as (client, asking):
        answer = await asking.post("/tasks", data=ASKS, files=files(GOOD, BAD))
        assert answer.headers["location"] == "/tasks/task-0000000000000000"
        assert client.taken is not None
        assert [one.name for one in client.given] == ["a.md"]
        assert [(one.name, one.reason) for one in client.taken.skipped_items] == [("wiki/scan.xyz", "binary, not text")]
        await store_finished_task(settings)
        request = TaskRequest(question="Which?", session="s", request_id="r", skipped_items=client.taken.skipped_items)
        row = await client.prepare_task(request)
        await client._store.register_task(row, client.given)  # pyright: ignore[reportPrivateUsage]
        page = await asking.get(f"/tasks/{row.ref.task_id}")
    assert "<li>wiki/scan.xyz: binary, not text</li>" in page.text


async def test_a_new_task_that_no_server_took_comes_back_under_the_same_id(settings: Settings) -> None:
    async with desk(settings) as (client, asking):
        client.away = True
        answer = await asking.post("/tasks", data=ASKS, files=files(GOOD))
    back = Returned("new-task", answer.text)
    assert (answer.status_code, back.faults["new-task--fault"]) == (503, "No Temporal server answers at 127.0.0.1:9.")
    assert back.fields["request_id"] == ASKS["request_id"], "sent again, it is the same task"


async def test_a_form_of_another_run_comes_back_with_the_mark_of_this_one(settings: Settings) -> None:
    async with desk(settings) as (client, asking):
        answer = await asking.post("/tasks", data={**ASKS, "mark": "0" * 64}, files=files(GOOD))
    back = Returned("new-task", answer.text)
    assert (answer.status_code, client.taken, back.fields["mark"]) == (403, None, ACCESS.csrf_token)
    assert "server has restarted" in back.faults["new-task--fault"]
    assert back.fields["question"] == ASKS["question"]


@pytest.mark.parametrize("text", ["sixty k", "0", "$0", "2000M", "$2,50", "200"])
async def test_an_amount_that_cannot_be_granted_is_said_at_the_amount_with_note_and_name_kept(
    text: str, settings: Settings
) -> None:
    task = await store_finished_task(settings)
    sent = {"mark": ACCESS.csrf_token, "request_id": "writing-1", "choice": "", "add": text}
    sent |= {"by": "Ada", "note": "go on"}
    async with desk(settings) as (_, asking):
        answer = await asking.post(f"/tasks/{task}/approve", data=sent)
    back = Returned(f"answer-{task}-writing-1", answer.text)
    assert (answer.status_code, back.fields) == (400, sent)
    starts = {
        "0": "An amount of zero",
        "$0": "An amount of zero",
        "200": "200 is 200 tokens, too few to be worth a grant",
    }
    assert back.fault("add").startswith(starts.get(text, "An amount is "))


@pytest.mark.parametrize(
    ("reason", "place"),
    [
        ("tokens are requested: say how many, like `--add 50k`, or `tokens` in a signal", "add"),
        ("the task's budget is in tokens alone: give tokens, and no dollars", "add"),
        (
            "the grant would raise the task's budget to 9 tokens, over its ceiling of 8 tokens, which leaves 1 token "
            "for grants",
            "add",
        ),
        ("the request writing-1 was already approved", ""),
    ],
)
async def test_an_answer_that_the_task_refused_comes_back_with_the_reason(
    reason: str, place: str, settings: Settings
) -> None:
    task = await store_finished_task(settings)
    sent = {"mark": ACCESS.csrf_token, "request_id": "writing-1", "choice": "", "add": "$1"}
    sent |= {"by": "Ada", "note": "go on"}
    async with desk(settings) as (client, asking):
        client.says = AnswerResult(outcome="refused", reason=reason)
        answer = await asking.post(f"/tasks/{task}/approve", data=sent)
    back = Returned(f"answer-{task}-writing-1", answer.text)
    assert (answer.status_code, back.fields) == (409, sent)
    assert reason[1:] in back.faults[f"answer-{task}-writing-1-{place}-fault"]


async def test_what_was_typed_for_a_request_that_waits_no_more_is_shown_beside_the_reason(settings: Settings) -> None:
    task = await store_finished_task(settings)
    sent = {"mark": ACCESS.csrf_token, "request_id": "other-1", "add": "60k", "by": "Ada", "note": f"take it {SCRIPT}"}
    async with desk(settings) as (client, asking):
        client.says = AnswerResult(outcome="refused", reason="the request other-1 was already approved")
        answer = await asking.post(f"/tasks/{task}/approve", data=sent)
    assert answer.status_code == 409
    for words in (
        "The request other-1 was already approved",
        "<dd>60k</dd>",
        "<dd>Ada</dd>",
        "<dd>take it &lt;script&gt;",
    ):
        assert words in answer.text


async def test_a_denial_a_message_and_one_answer_to_several_come_back_with_what_is_too_long(
    settings: Settings,
) -> None:
    task = await store_finished_task(settings)
    asked = {"mark": ACCESS.csrf_token, "request_id": "writing-1", "note": "n" * 2_001, "by": "Ada"}
    async with desk(settings) as (client, asking):
        denied = await asking.post(f"/tasks/{task}/deny", data=asked)
        several = await asking.post("/answers/approve", data={**asked, "request": f"{task}/writing-1"})
        client.away = True
        told = await asking.post(
            f"/tasks/{task}/message", data={"mark": ACCESS.csrf_token, "message": "Mind the silt", "by": "Ada"}
        )
        blank = await asking.post(
            f"/tasks/{task}/message", data={"mark": ACCESS.csrf_token, "message": " ", "by": "Ada"}
        )
    for answer, form in ((denied, f"answer-{task}-writing-1"), (several, "answers")):
        back = Returned(form, answer.text)
        assert (answer.status_code, back.fields["note"], back.fields["by"]) == (422, asked["note"], "Ada")
        assert "at most 2000 characters" in back.fault("note")
    back = Returned("message", told.text)
    assert (told.status_code, back.fields["message"], back.fields["by"]) == (503, "Mind the silt", "Ada")
    assert "no Temporal server" in back.faults["message--fault"].lower().replace("temporal", "Temporal")
    assert Returned("message", blank.text).fault("message") == "This is empty."


async def test_a_fork_a_sessions_limit_and_days_come_back_with_what_was_typed(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    task = await store_finished_task(settings)
    mark = {"mark": ACCESS.csrf_token}
    async with await Client.connect(settings) as client:
        transport = httpx2.ASGITransport(app=create_app(SITE, client, settings.tenant, ServerDeps(ACCESS)))
        async with httpx2.AsyncClient(transport=transport, base_url=HERE, headers=BEARER) as asking:
            fork = await asking.post(f"/tasks/{task}/fork", data={**mark, "step": "writing", "budget": "$2,50"})
            limit = await asking.post("/session/limit", data={**mark, "name": "default", "budget": "lots"})
            away = await asking.post("/session/limit", data={**mark, "name": "default", "budget": "2M"})
            days = await asking.get("/spending?since=2026-11-02&until=2026-11-01")
    for answer, form, typed in ((fork, "fork", "$2,50"), (limit, "limit", "lots")):
        back = Returned(form, answer.text)
        assert (answer.status_code, back.fields["budget"]) == (400, typed)
        assert "tokens like 600k" in back.fault("budget")
    assert 'value="writing" selected' in fork.text
    back = Returned("limit", away.text)
    assert (away.status_code, back.fields["budget"], "limit--fault" in back.faults) == (503, "2M", True)
    assert (days.status_code, 'value="2026-11-02"' in days.text, 'id="days-since-fault"' in days.text) == (
        400,
        True,
        True,
    )
