"""`waystation privacy find` and `erase`: what they say of one person, and what they refuse before anything is done."""

import asyncio
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from io import BytesIO, TextIOWrapper

import pytest

from tests.support.finished_tasks import make_task_row
from waystation.cli.console import BAD_USAGE, OK, UNREACHABLE, WORK_FAILED
from waystation.cli.main import run
from waystation.cli.privacy import ErasureOptions, format_receipt, select_near_values
from waystation.client.erasure import PersonErasureReceipt
from waystation.client.person_search import PersonLocations, PersonSearch
from waystation.config.settings import Settings
from waystation.documents.documents import SourceDocument
from waystation.erasure.erasure import RelatedValue
from waystation.kernel.clock import utc_now
from waystation.kernel.erasure_locations import ErasureLocation
from waystation.kernel.scopes import TenantScope
from waystation.privacy.policy import VaultEntry
from waystation.runtime.store_setup import build_cipher, load_or_create_installation_key, open_store
from waystation.security.placeholders import build_placeholder, compute_fingerprint
from waystation.tasks.task import TaskPhase, TaskRequest, tenant_hash
from waystation.tasks.view import as_stored

MAIL, NAME = "ada@example.com", "Ada Lovelace"
REQUEST = TaskRequest(question=f"What does {MAIL} ask?", request_id="r1", session=f"letters of {NAME}")


async def keep_task(settings: Settings) -> str:
    """A task that is over, with a person in question, document and vault."""
    settings.home.mkdir()
    store = await open_store(settings)
    tenant, row = tenant_hash(REQUEST.tenant), make_task_row(REQUEST, settings, await store.get_store_id())
    await store.register_task(row, (SourceDocument(name="a.md", text=f"{MAIL}\n{MAIL.upper()}\nBy Dr. {NAME}\n"),))
    await store.save_task_progress(row.ref.task_id, as_stored(row, TaskPhase.DONE))
    key = load_or_create_installation_key(settings)
    titled = f"Dr. {NAME}"
    made = build_placeholder(key, tenant, "PERSON", titled)
    original = VaultEntry(
        type="PERSON", placeholder=made, fingerprint=compute_fingerprint(key, tenant, "PERSON", titled), text=titled
    )
    await store.build_vault(build_cipher(settings, "vault")).store_originals(tenant, [original])
    await store.put_text("unrelated", row.ref.scope)
    await store.aclose()
    return row.ref.task_id


@pytest.fixture
def task_id(without_server: Settings) -> str:
    return asyncio.run(keep_task(without_server))


def test_what_the_rules_recognise_is_counted_by_place(task_id: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["privacy", "find", MAIL]) == OK
    told = capsys.readouterr()
    assert told.out == f"     1  requests: {task_id}\n     2  documents: {task_id}\n"
    assert told.err.startswith("workflow histories were not searched: no Temporal server answers at 127.0.0.1:1")


def test_nobody_found_is_an_exit_code_and_json_has_no_content(task_id: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["privacy", "find", "bob@example.com", "--json"]) == WORK_FAILED
    assert json.loads(capsys.readouterr().out)["traces"] == []
    assert run(["privacy", "find", MAIL, "--json"]) == OK
    out = capsys.readouterr().out
    assert MAIL not in out
    found = json.loads(out)
    assert set(found) == {"known_as", "recognised", "types", "traces", "histories", "finding"}
    assert found["traces"][0] == {"place": "documents", "task_id": task_id, "count": 2}


def test_what_may_be_the_same_persons_is_shown_where_that_is_asked_for(
    task_id: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert task_id
    asyncio.run(task_about(f"Reach {NAME} at ada.l@example.org, 212-555-0147, password=Tr0ub4dor&3."))
    assert run(["privacy", "find", NAME, "--type", "PERSON"]) == OK
    assert "212-555-0147" not in capsys.readouterr().out
    assert run(["privacy", "find", NAME, "--type", "PERSON", "--near"]) == OK
    assert capsys.readouterr().out.splitlines()[-3:] == [
        "These values may belong to the same person. To find or erase them, give each as a VALUE:",
        "  ada.l@example.org (EMAIL, similar, on 1 line together with the value you gave)",
        "  212-555-0147 (PHONE, on 1 line together with the value you gave)",
    ]
    assert run(["privacy", "find", NAME, "--type", "PERSON", "--near", "--json"]) == OK
    near = json.loads(capsys.readouterr().out)["near"]
    assert near[0] == {"text": "ada.l@example.org", "type": "EMAIL", "lines": 1, "alike": True}


def test_originals_in_the_vault_that_have_the_value_lead_to_their_placeholders(
    task_id: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", TextIOWrapper(BytesIO(f"{NAME}\n".encode())))
    assert run(["privacy", "find", "-", "--type", "person", "--json"]) == OK
    found = json.loads(capsys.readouterr().out)
    assert len(found["known_as"]) == 2
    assert found["recognised"]
    counts = {trace["place"]: trace["count"] for trace in found["traces"]}
    assert counts == {"documents": 1, "vault": 1, "names of sessions and requests": 1}
    assert task_id


def test_a_value_that_no_rule_recognises_is_looked_for_as_written_and_that_is_said(
    task_id: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert task_id
    assert run(["privacy", "find", "What does"]) == OK
    told = capsys.readouterr()
    assert "No rule recognises this value." in told.err
    assert "its exact text, its placeholders of the types LOCATION and PERSON, and all" in told.err
    assert "1  requests" in told.out


def test_another_tenant_has_nobody(
    task_id: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert task_id
    monkeypatch.setenv("WAYSTATION_TENANT", "other")
    assert run(["privacy", "find", MAIL]) == WORK_FAILED
    assert capsys.readouterr().out == "Not found.\n"


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["find", "-a"], BAD_USAGE, "No such option"),
        (["find", "Jo"], BAD_USAGE, "the value needs at least 3 letters or digits: give the whole name or number"),
        (["erase", "bob@example.com", "--yes"], WORK_FAILED, "Not found: nothing to erase"),
        (["find", NAME, "--type", "FOO"], BAD_USAGE, "there is no type 'FOO': choose one of ACCOUNT, "),
        (["find", NAME, "--type", "WANTED"], BAD_USAGE, "there is no type 'WANTED': choose one of"),
        (["erase", NAME, "--type", "", "--yes"], BAD_USAGE, "there is no type ''"),
        (["erase", MAIL, "--receipt", "--also", NAME], BAD_USAGE, "--receipt and --also cannot be combined"),
        (["erase", MAIL, "--receipt"], UNREACHABLE, "no Temporal server answers at 127.0.0.1:1"),
        (["erase", MAIL, "--yes"], UNREACHABLE, "no Temporal server answers at 127.0.0.1:1"),
    ],
)
def test_what_cannot_be_done_is_refused_and_nothing_is_erased(
    arguments: list[str], code: int, said: str, task_id: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert task_id
    assert run(["privacy", *arguments]) == code
    assert said in capsys.readouterr().err
    assert run(["privacy", "find", MAIL]) == OK


async def task_with(settings: Settings, kind: str, name: str) -> None:
    """A task with the name's placeholder, of which the vault has nothing."""
    key = load_or_create_installation_key(settings)
    await task_about(f"Where is {build_placeholder(key, tenant_hash(REQUEST.tenant), kind, name)}?")


async def task_about(question: str) -> None:
    settings = Settings()
    store = await open_store(settings)
    request = REQUEST.replace(question=question, request_id="r2")
    await store.register_task(make_task_row(request, settings, await store.get_store_id()), ())
    await store.aclose()


@pytest.mark.parametrize("kind", ["PERSON", "LOCATION"])
def test_a_name_that_no_rule_recognises_alone_is_looked_for_by_the_placeholders_of_names(
    kind: str, task_id: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert task_id
    asyncio.run(task_with(Settings(), kind, "Qwrtzu Xyplk"))
    assert run(["privacy", "find", "Qwrtzu Xyplk"]) == OK
    assert "1  requests: task-" in capsys.readouterr().out


NEAR = [
    RelatedValue(text=text, type=kind, lines=2, alike=False) for text, kind in (("a@x.org", "EMAIL"), ("Bob", "PERSON"))
]


async def test_other_values_are_erased_where_the_person_says_so_for_each(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    async def answer(question: str) -> bool:
        asked.append(question)
        return "EMAIL" in question

    monkeypatch.setattr("waystation.cli.privacy.ask_confirmation", answer)
    assert await select_near_values(NEAR, ErasureOptions(histories=False, yes=False)) == ["a@x.org"]
    assert asked == [
        "Erase a@x.org (EMAIL, on 2 lines together with the value you gave), too? [y/N]",
        "Erase Bob (PERSON, on 2 lines together with the value you gave), too? [y/N]",
    ]


@dataclass
class Order:
    """What happens in which order, where a server and workers are there."""

    happened: list[str] = field(default_factory=list[str])
    refused: str = "never"
    """A part of the question that is answered with no."""

    def format_found_places(self, _: PersonLocations) -> str:
        self.happened.append("shown")
        return ""

    async def ask_confirmation(self, question: str) -> bool:
        self.happened.append("asked")
        return self.refused not in question

    async def run_erasure(
        self, search: PersonSearch, found: PersonLocations, *, histories: bool, tell: Callable[[str], None]
    ) -> PersonErasureReceipt:
        self.happened.append(f"erased {search.query.value}")
        assert found.traces
        assert await search.store.list_tasks(TenantScope(tenant=tenant_hash(REQUEST.tenant)))  # which is open still
        return receipt()


async def nobody_objects(*_: object) -> None:
    """As where everything is there."""


@pytest.fixture
def order(monkeypatch: pytest.MonkeyPatch, task_id: str) -> Order:
    assert task_id
    order = Order()
    for name in ("format_found_places", "ask_confirmation", "run_erasure"):
        monkeypatch.setattr(f"waystation.cli.privacy.{name}", getattr(order, name))
    for name in ("require_tasks_finished", "require_workers"):
        monkeypatch.setattr(f"waystation.cli.privacy.{name}", nobody_objects)
    return order


def test_all_values_are_shown_and_agreed_to_before_the_first_is_erased(order: Order) -> None:
    assert run(["privacy", "erase", NAME, "--also", MAIL]) == OK
    once = ["shown", "asked"]
    # The vault has the name with a title, too, which is offered and then looked at as the others are.
    assert order.happened[:4] == once * 2
    erased = [one for one in order.happened if one.startswith("erased")]
    assert erased[:2] == [f"erased {NAME}", f"erased {MAIL}"]
    assert order.happened[-len(erased) :] == erased


def test_who_says_no_to_one_value_keeps_that_one_alone(order: Order) -> None:
    order.refused = f"Replace {MAIL} with"
    assert run(["privacy", "erase", NAME, "--also", MAIL]) == OK
    assert f"erased {NAME}" in order.happened
    assert f"erased {MAIL}" not in order.happened


def test_a_value_that_cannot_be_looked_for_keeps_all_from_being_erased(order: Order) -> None:
    assert run(["privacy", "erase", NAME, "--also", "a", "--yes"]) == BAD_USAGE
    assert run(["privacy", "erase", NAME, "--also", MAIL, "--type", "FOO", "--yes"]) == BAD_USAGE
    assert order.happened == []


async def test_other_values_are_told_where_nobody_is_asked(capsys: pytest.CaptureFixture[str]) -> None:
    assert await select_near_values(NEAR, ErasureOptions(histories=False, yes=True)) == []
    assert "  a@x.org (EMAIL, on 2 lines together with the value you gave)\n" in capsys.readouterr().err


WHEN = utc_now().replace(2026, 11, 21, 12, 0, 0)
AT = f"{WHEN.astimezone():%Y-%m-%d %H:%M:%S %Z}"


def receipt() -> PersonErasureReceipt:
    """Of an order that found nothing in the store."""
    return PersonErasureReceipt(
        id="1", at=WHEN, known_as=(), found={}, left={}, originals=0, files=1, histories_deleted=0, histories_left=()
    )


def test_a_receipt_of_an_order_that_found_nothing_in_the_store_says_so() -> None:
    lines = format_receipt(receipt()).splitlines()
    assert lines[1] == f"completed {AT}: the store had nothing to erase"
    assert "report files rewritten: 1;" in lines[2]


def test_a_receipt_says_what_went_what_stays_and_nothing_else() -> None:
    receipt = PersonErasureReceipt(
        id="01a2",
        at=WHEN,
        known_as=("c654",),
        found={ErasureLocation.REQUEST: 1, ErasureLocation.TRANSCRIPT: 1_234},
        left={ErasureLocation.IDENTIFIER: 1},
        originals=1,
        files=2,
        histories_deleted=3,
        histories_left=("session-1",),
    )
    assert format_receipt(receipt) == (
        "receipt 01a2\n"
        f"erased {AT}: 1 in requests, 1,234 in transcripts\n"
        "originals deleted from the vault: 1; report files rewritten: 2; workflow histories deleted: 3\n"
        "placeholder (SHA-256) c654\n"
        "not erased: 1 in names of sessions and requests\n"
        "workflow histories that still contain the value: session-1"
    )


UNREACHED = {
    "backups": "backups of the database, memory and Temporal",
    "copies of reports": "copies of reports",
    "other machines": "files of reports and plans in home folders of other machines",
    "encrypted reasoning": "reasoning that the provider of a model has encrypted",
    "recipients": "data that was sent to providers of models, embeddings and web search, to tool servers and web "
    "sites, and in notifications, webhooks and traces",
    "names of keys": "names in the list of API keys",
    "schedules": "names and notes of schedules",
    "callers": "user and host names of callers",
    "database files": "files of PostgreSQL until `VACUUM FULL`, and of a Qdrant server until they are rewritten",
    "other tenants": "data of other tenants",
}


def test_a_receipt_names_every_place_that_was_not_reached_as_text_and_as_json(
    order: Order, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["privacy", "erase", NAME, "--yes"]) == OK
    text = capsys.readouterr().out
    assert run(["privacy", "erase", NAME, "--yes", "--json"]) == OK
    places = json.loads(capsys.readouterr().out)["not_reached"]
    assert order.happened.count(f"erased {NAME}") == 2
    assert [one["location"] for one in places] == [*UNREACHED]
    for place, description in zip(places, UNREACHED.values(), strict=True):
        assert description in place["description"]
        assert f"- {place['description']}\n" in text
