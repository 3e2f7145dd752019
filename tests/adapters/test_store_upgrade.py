"""A database of the release before owners were kept: it opens, is upgraded, and is read on by those whose it is."""

import json
from base64 import b64encode
from collections.abc import Mapping
from contextlib import aclosing
from pathlib import Path

import pytest
from alembic import command
from alembic.config import Config
from pydantic import JsonValue
from sqlalchemy import Connection, insert, text

from tests.adapters.conftest import store_clock
from tests.adapters.test_store_at_rest import NO_KEY, OTHER, SEALING
from tests.adapters.test_store_forgetting import ended, order
from tests.postgres import PostgresServer
from tests.store_contract.values import NOON, TERMS, request, row
from waystation.adapters.store import AtRest, SqlStore, migrate, migrations, store_status
from waystation.adapters.store.engine import Database
from waystation.adapters.store.schema import texts
from waystation.adapters.store.texts import content_hash, shown_row
from waystation.adapters.store.upgrades import reseal
from waystation.domain.amount import Limit
from waystation.domain.budget import Account
from waystation.domain.compaction.outcome import ContextEdit
from waystation.domain.compaction.rungs import preview
from waystation.domain.documents import Document, DocumentChange, DocumentSet, DocumentsUpdate, KeptUpdate
from waystation.domain.errors import StoreError, TextMissing
from waystation.domain.foreign import ToolDefinition
from waystation.domain.memory import Passage
from waystation.domain.ownership import OfTenant
from waystation.domain.plan import Oversight, Review
from waystation.domain.privacy import ShownKey, ShownText, Treatment
from waystation.domain.task import ReportVersion, TaskPhase, TaskRow, TaskTerms, Telling
from waystation.domain.task_state import TaskState
from waystation.domain.transcript import Message, ToolResult, ToolUse
from waystation.domain.web import FETCH_PAGE, KeptPage, framed_page
from waystation.settings import Settings

VICTIM = row(request("victim", tenant="harbour", session="spring"))
THIEF = row(request("thief", tenant="lighthouse", session="spring"))
LONG = "A long result. " * 1_000
PAGE = KeptPage(url="https://a.example/b", blob=content_hash("A page\nabout Ada"), retrieved=NOON)
SAID: Mapping[str, str] = {
    "document": "The newest version",
    "before": "The version before",
    "given": DocumentSet(
        documents=(Document(name="d.md", blob=content_hash("The newest version"), lines=1, characters=18),)
    ).model_dump_json(),
    "report": "# Report",
    "first report": "# What there was before",
    "telling": "Leave it out",
    "instructions": "Keep every date",
    "faults": '{"faults": []}',
    "page": "A page\nabout Ada",
    "result": LONG,
}
"""Texts of the victim, by what they are."""
HASH = {what: content_hash(said) for what, said in SAID.items()}
STATE = TaskState(
    account=Account(limit=Limit()), oversight=Oversight(reviews=(Review(number=1, faults=0, found=HASH["faults"]),))
).model_dump_json()
LOOKS_LIKE_A_STATE = STATE.replace(HASH["faults"], HASH["report"])
SHOWN = ShownKey(blob=HASH["document"], tenant=VICTIM.ref.tenant, treatment=Treatment.IDENTIFIERS, version="1")
ALL = (*SAID.values(), STATE)


class OldStore:
    """Writes rows as release 0011 did: plain, or sealed for their column alone."""

    def __init__(self, database: Database, at_rest: AtRest) -> None:
        self._database, self._cipher = database, at_rest.cipher if at_rest.seals else None

    async def add(self, table: str, sealed: str = "", **values: object) -> None:
        if sealed and self._cipher is not None:
            opened = str(values[sealed]).encode()
            kept = self._cipher.seal(opened, f"{table}.{sealed}".encode())
            values[sealed] = b"\xff" + kept if table == "texts" else "\x01" + b64encode(kept).decode()
        elif table == "texts":
            values[sealed] = str(values[sealed]).encode()
        names = ", ".join(values)
        places = ", ".join(f":{name}" for name in values)
        async with self._database.write() as connection:
            await connection.execute(text(f"INSERT INTO {table} ({names}) VALUES ({places})"), values)

    async def text(self, said: str, blob: str = "") -> str:
        kept = blob or content_hash(said)
        await self.add("texts", "content", blob=kept, content=said)
        return kept

    async def task(self, kept: TaskRow, progress: str | None, document: str) -> None:
        task_id = kept.ref.task_id
        own = {"task_id": task_id, "store_id": "old", "tenant": kept.ref.tenant, "session": kept.ref.session}
        asked = {"request_id": kept.request.request_id, "digest": "d", "request": kept.request.model_dump_json()}
        rest = {"terms": TERMS.model_dump_json(), "title": "T", "submitted_at": NOON.replace(tzinfo=None)}
        if self._database.backend == "postgresql":
            rest["submitted_at"] = NOON
        await self.add("tasks", "request", **own, **asked, **rest, progress=progress)
        await self.add(
            "documents", task_id=task_id, position=0, name="d.md", blob=document, lines=1, characters=18, removed=False
        )
        opened = {"step_id": "w", "role": "research", "fence": 1, "version": 2, "opened_at": rest["submitted_at"]}
        await self.add("runs", "", run_id=f"{task_id}/w", task_id=task_id, **opened)

    async def message(self, kept: TaskRow, version: int, message: Message) -> None:
        own = {"run_id": f"{kept.ref.task_id}/w", "version": version, "message_id": message.id}
        at = NOON if self._database.backend == "postgresql" else NOON.replace(tzinfo=None)
        await self.add("messages", "body", **own, body=message.model_dump_json(), committed_at=at)

    async def audit(self, kept: TaskRow, entry_id: str, body: str) -> None:
        await self.add("audit", "body", task_id=kept.ref.task_id, entry_id=entry_id, body=body)


def called(tool: str, content: str, id_: str = "1") -> tuple[Message, Message]:
    """A call, and what came back."""
    url: dict[str, JsonValue] = {"url": PAGE.url}
    return (
        Message(id=f"call-{id_}", role="assistant", blocks=(ToolUse(id=id_, name=tool, input=url),)),
        Message(id=f"back-{id_}", role="user", blocks=(ToolResult(tool_use_id=id_, content=content),)),
    )


async def victims(old: OldStore) -> None:
    state = await old.text(STATE)
    for said in SAID.values():
        await old.text(said)
    progress = ended(VICTIM, HASH["report"]).model_copy(
        update={
            "state": state,
            "reports": (ReportVersion(number=1, report=HASH["first report"], phase=TaskPhase.PARTIAL),),
        }
    )
    await old.task(VICTIM, progress.model_dump_json(), HASH["document"])
    change = DocumentChange(position=0, name="d.md", before=HASH["before"], after=HASH["document"])
    made = DocumentsUpdate(number=1, given=HASH["given"], updated_at=NOON)
    kept = KeptUpdate(**made.model_dump(), changes=(change,))
    edit = ContextEdit(id="edit-1", agent="w", action="compact", instructions=HASH["instructions"], asked_at=NOON)
    await old.audit(VICTIM, "documents-1", kept.model_dump_json())
    await old.audit(VICTIM, "told-1", Telling(number=1, text=HASH["telling"], told_at=NOON).model_dump_json())
    await old.audit(VICTIM, "edit", edit.model_dump_json())
    # The page's first line is shown redacted, so that it is none of the original's.
    page = called(FETCH_PAGE, framed_page(PAGE, ["2| about <PERSON_7f3a2c91d04e>"], "2-2 of 2"))
    result = called("search_documents", preview(LONG, HASH["result"]), "2")
    for version, message in enumerate((*page, *result)):
        await old.message(VICTIM, version, message)
    await old.text('{"text": "As it was shown"}', blob=shown_row(SHOWN))


async def thiefs(old: OldStore) -> None:
    """Everything in which an attacker can write a hash that is not theirs."""
    trap = await old.text(LOOKS_LIKE_A_STATE)
    progress = ended(THIEF, trap).model_copy(update={"notes": (HASH["report"],), "title": HASH["report"]})
    await old.task(THIEF, progress.model_dump_json(), trap)
    change = DocumentChange(position=0, name=HASH["report"], after=trap)
    made = DocumentsUpdate(number=1, given=trap, by=HASH["report"], updated_at=NOON)
    await old.audit(THIEF, "documents-1", KeptUpdate(**made.model_dump(), changes=(change,)).model_dump_json())
    tool = ToolDefinition(server="s", tool="t", parts={"text": HASH["report"], "given": HASH["given"]})
    await old.audit(THIEF, "tool-1", tool.model_dump_json())
    forged = called("s__tool", framed_page(PAGE, ["1| A page"], "1-1 of 2"))
    guessed = called("s__tool", preview("Guessed. " * 1_000, HASH["result"]), "2")
    short = called("s__tool", preview(SAID["telling"], HASH["telling"]), "3")  # whoever guesses its ends has it
    for version, message in enumerate((*forged, *guessed, *short)):
        await old.message(THIEF, version, message)
    passage = Passage(
        id="p", tenant=THIEF.ref.tenant, session=THIEF.ref.session, task_id=THIEF.ref.task_id,
        run_id=f"{THIEF.ref.task_id}/w", step_id="w", text=HASH["report"], content_hash="c", created=NOON,
    )  # fmt: skip
    own = {"passage_id": "p", "run_id": passage.run_id, "task_id": passage.task_id}
    await old.add("passages", "body", **own, body=passage.model_dump_json())


@pytest.fixture(params=["sqlite", "postgresql"])
def old_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite+aiosqlite:///{tmp_path}/waystation.db"
    server: PostgresServer = request.getfixturevalue("postgres")
    return Settings(store_url=server.new_database()).database_url


@pytest.fixture(params=[NO_KEY, SEALING], ids=["plain", "sealed"])
async def old_store(request: pytest.FixtureRequest, old_url: str) -> AtRest:
    at_rest: AtRest = request.param
    async with aclosing(Database(old_url)) as database:
        async with database.write() as connection:
            await connection.run_sync(upgraded_to_0011)
        old = OldStore(database, at_rest)
        now = NOON if database.backend == "postgresql" else NOON.replace(tzinfo=None)
        await old.add("identity", store_id="old", created_at=now)
        await victims(old)
        await thiefs(old)
    return at_rest


def upgraded_to_0011(connection: Connection) -> None:
    config = Config()
    config.set_main_option("script_location", str(Path(migrations.__path__[0])))
    config.attributes["connection"] = connection
    command.upgrade(config, "0011")


async def readable(store: SqlStore, kept: TaskRow) -> set[str]:
    found: set[str] = set()
    for said in ALL:
        try:
            found.add(await store.get_text(content_hash(said), kept.ref.reader))
        except TextMissing:
            continue
    return found


async def test_an_old_store_is_read_on_by_those_whose_it_is_and_by_nobody_else(old_url: str, old_store: AtRest) -> None:
    await migrate(old_url, store_clock)
    async with aclosing(await SqlStore.open(old_url, store_clock, at_rest=old_store)) as store:
        assert await readable(store, VICTIM) == set(ALL)
        assert await readable(store, THIEF) == set()
        assert await store.get_text(content_hash(LOOKS_LIKE_A_STATE), OfTenant(tenant=THIEF.ref.tenant))
        assert (await store.task(VICTIM.ref.task_id, VICTIM.ref.reader)).request == VICTIM.request
        assert [one.name for one in await store.documents(VICTIM.ref.task_id, VICTIM.ref.reader)] == ["d.md"]
        run_id = f"{VICTIM.ref.task_id}/w"
        assert len((await store.load(run_id, VICTIM.ref.reader)).messages) == 4
        assert not (await store.load(run_id, THIEF.ref.reader)).messages


async def test_terms_that_did_not_say_what_was_followed_say_it_from_then_on(old_url: str, old_store: AtRest) -> None:
    """What says nothing of it later follows nothing: whoever takes a word out of terms must not permit anything."""
    said_nothing = TERMS.model_dump(mode="json", exclude={"procedures_among_documents"})
    async with aclosing(Database(old_url)) as database, database.write() as connection:
        this = {"terms": json.dumps(said_nothing), "task": THIEF.ref.task_id}
        await connection.execute(text("UPDATE tasks SET terms = :terms WHERE task_id = :task"), this)
    await migrate(old_url, store_clock)
    async with aclosing(await SqlStore.open(old_url, store_clock, at_rest=old_store)) as store:
        terms = (await store.task(THIEF.ref.task_id, THIEF.ref.reader)).terms
        assert terms == TERMS.model_copy(update={"procedures_among_documents": True})
        assert (await store.task(VICTIM.ref.task_id, VICTIM.ref.reader)).terms == TERMS
    assert not TaskTerms.model_validate(said_nothing).procedures_among_documents


async def test_what_an_old_store_shows_is_made_anew(old_url: str, old_store: AtRest) -> None:
    await migrate(old_url, store_clock)
    async with aclosing(await SqlStore.open(old_url, store_clock, at_rest=old_store)) as store:
        assert await store.shown(SHOWN, VICTIM.ref.reader) is None
        await store.keep_shown(SHOWN, ShownText(text="Anew"))
        assert await store.shown(SHOWN, VICTIM.ref.reader) == ShownText(text="Anew")


async def test_everything_of_an_old_task_is_forgotten(old_url: str, old_store: AtRest) -> None:
    await migrate(old_url, store_clock)
    async with aclosing(await SqlStore.open(old_url, store_clock, at_rest=old_store)) as store:
        kept = VICTIM.model_copy(update={"ref": VICTIM.ref.model_copy(update={"store_id": "old"})})
        assert (await store.forget(order(kept, everything=True))).texts == len(ALL)
        async with store.database.read() as connection:
            left = (await connection.exec_driver_sql("SELECT blob FROM texts")).scalars().all()
    assert left == [content_hash(LOOKS_LIKE_A_STATE)]


@pytest.mark.parametrize("old_store", [SEALING], indirect=True)
@pytest.mark.parametrize("without", [NO_KEY, OTHER], ids=["no key", "another key"])
async def test_owners_wait_for_somebody_with_the_key(old_url: str, old_store: AtRest, without: AtRest) -> None:
    await migrate(old_url, store_clock)
    async with aclosing(await SqlStore.open(old_url, store_clock, at_rest=without)) as store:
        with pytest.raises(TextMissing):
            await store.get_text(HASH["report"], VICTIM.ref.reader)
    async with aclosing(await SqlStore.open(old_url, store_clock, at_rest=old_store)) as store:
        assert await readable(store, VICTIM) == set(ALL)


@pytest.mark.parametrize("old_store", [SEALING, NO_KEY], indirect=True, ids=["sealed", "plain"])
async def test_an_old_store_is_resealed_as_a_whole(old_url: str, old_store: AtRest) -> None:
    await migrate(old_url, store_clock)
    await (await SqlStore.open(old_url, store_clock, at_rest=SEALING)).aclose()
    async with aclosing(Database(old_url, at_rest=SEALING)) as database:
        assert await reseal(database, store_clock, seals=True) > len(ALL)
    async with aclosing(await SqlStore.open(old_url, store_clock, at_rest=SEALING)) as store:
        assert await readable(store, VICTIM) == set(ALL)
        assert await readable(store, THIEF) == set()
        assert len((await store.load(f"{VICTIM.ref.task_id}/w", VICTIM.ref.reader)).messages) == 4


async def test_what_belongs_to_nobody_is_counted_and_can_be_dropped(old_url: str, old_store: AtRest) -> None:
    lost = "Nobody names this. " * 3
    async with aclosing(Database(old_url)) as database:
        await OldStore(database, old_store).text(lost)
    await migrate(old_url, store_clock)
    assert (await store_status(old_url)).unowned == 0  # not before owners were looked for
    async with aclosing(await SqlStore.open(old_url, store_clock, at_rest=old_store)) as store:
        before = await readable(store, VICTIM)
        async with store.database.write() as connection:
            of_lost = shown_row(SHOWN.model_copy(update={"blob": content_hash(lost)}))
            await connection.execute(insert(texts).values(blob=of_lost, content=f"{of_lost}\n{{}}".encode()))
    status = await store_status(old_url)
    assert status.unowned == 2  # the text, and what is kept of it as it is shown
    async with aclosing(await SqlStore.open(old_url, store_clock, at_rest=old_store)) as store:
        assert await store.drop_unowned() == 2
        assert await readable(store, VICTIM) == before == set(ALL)
        assert await store.get_text(content_hash(LOOKS_LIKE_A_STATE), OfTenant(tenant=THIEF.ref.tenant))
    assert (await store_status(old_url)).unowned == 0


@pytest.mark.parametrize("old_store", [SEALING], indirect=True)
async def test_nothing_is_dropped_while_nobody_with_the_key_has_looked_for_owners(
    old_url: str, old_store: AtRest
) -> None:
    assert old_store.seals
    await migrate(old_url, store_clock)
    async with aclosing(await SqlStore.open(old_url, store_clock, at_rest=NO_KEY)) as store:
        with pytest.raises(StoreError, match="run this with the key"):
            await store.drop_unowned()
