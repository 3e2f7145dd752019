"""One person in the store, on both databases: counted by task and place, and erased from every text."""

from contextlib import aclosing

import pytest

from tests.erasure.test_removal_repository import dump_all_tables, make_redacted_text_key
from tests.store.test_store_encryption import SEALING, open_encrypted_store
from tests.support.scopes import SYSTEM_SCOPE
from tests.support.store_values import make_task_request, make_task_row
from tests.support.stored_task import make_passage_ids, store_whole_task
from waystation.context.transcript import Text
from waystation.documents.documents import Document, SourceDocument
from waystation.erasure.erasure import (
    ERASED_MARKER,
    ErasureQuery,
    PersonErasureOrder,
    sum_matches_by_location,
)
from waystation.erasure.forget_repository import SEARCHED_COLUMNS
from waystation.kernel.erasure_locations import ErasureLocation
from waystation.kernel.errors import WrongStore
from waystation.kernel.scopes import TenantScope
from waystation.privacy.policy import RedactedText
from waystation.runtime.sql_store import SqlStore
from waystation.tasks.task import TaskRow

ADA = "<PERSON_aaaaaaaaaaaa>"
SOUGHT = ErasureQuery("Ada Lovelace", (ADA,))
LETTER = SourceDocument(
    name="Letter of Ada Lovelace.md",
    text="Dear sir,\nAda\nLovelace writes.\nADA LOVELACE\n",
    file_name="[1] Ada Lovelace.md",
)
OTHER = SourceDocument(name="tides.md", text="High water at noon.")


async def store_task_with_person(
    store: SqlStore, name: str, tenant: str = "default", person: str = "Ada Lovelace"
) -> TaskRow:
    """A task that has ended, with this person in clear and by placeholder wherever text is kept."""
    kept = make_task_row(make_task_request(name, question=f"What does {person} say?", session=name, tenant=tenant))
    letter = LETTER if person == "Ada Lovelace" else SourceDocument(name="letter.md", text=f"{person} writes.")
    documents, remembered = [letter, OTHER], f"{ADA} said so"
    return (await store_whole_task(store, kept, person, documents=documents, remembered=remembered)).row


def order(kept: TaskRow) -> PersonErasureOrder:
    return PersonErasureOrder(
        store_id=kept.ref.store_id, tenant=kept.ref.tenant, wanted_placeholder="", placeholders=(ADA,)
    )


async def test_a_person_is_counted_by_task_and_place_in_clear_and_by_placeholder(store: SqlStore) -> None:
    kept = await store_task_with_person(store, "first")
    await store_task_with_person(store, "second", person="Charles Babbage")
    traces = await store.find_erasure_matches(kept.ref.tenant, SOUGHT)
    found = sum_matches_by_location(tuple(trace for trace in traces if trace.task_id == kept.ref.task_id))
    assert (
        found.items()
        >= {
            ErasureLocation.REQUEST: 1,
            ErasureLocation.DOCUMENT_NAME: 2,
            ErasureLocation.DOCUMENT: 2,
            ErasureLocation.TEXT: 4,
            ErasureLocation.TITLE: 1,
            ErasureLocation.PLAN: 5,
            ErasureLocation.AUDIT: 2,
            ErasureLocation.TRANSCRIPT: 4,  # with the reply that still arrives
            ErasureLocation.REMEMBERED: 1,
        }.items()
    )
    assert found.keys() == {text.place for text in SEARCHED_COLUMNS} - {ErasureLocation.OUTBOX} | {
        ErasureLocation.DOCUMENT,
        ErasureLocation.TEXT,
    }
    of_the_other = {trace.place for trace in traces if trace.task_id != kept.ref.task_id}
    assert of_the_other == {ErasureLocation.TEXT, ErasureLocation.REMEMBERED}, (
        "the report and the passage have the placeholder"
    )


async def test_what_is_erased_is_nowhere_and_everything_that_is_left_is_read_as_before(store: SqlStore) -> None:
    kept = await store_task_with_person(store, "first")
    await store.erase_person(order(kept), SOUGHT)
    assert await store.find_erasure_matches(kept.ref.tenant, SOUGHT) == ()
    left = await dump_all_tables(store)
    assert [word for word in ("Ada", "Lovelace", "LOVELACE", "aaaaaaaaaaaa") if word in left] == []
    after = await store.get_task(kept.ref.task_id, SYSTEM_SCOPE)
    assert after.request.question == f"What does {ERASED_MARKER} say?"
    said = (await store.load_transcript(f"{kept.ref.task_id}/research-1", SYSTEM_SCOPE)).messages
    revised = (await store.list_plan_versions(kept.ref.task_id, SYSTEM_SCOPE))[1]
    assert (revised.made_by, revised.reason) == ("revision-1", ERASED_MARKER)
    assert [(step.title, step.goal) for step in revised.plan.steps] == [(ERASED_MARKER, ERASED_MARKER)]
    long = said[0].text.removeprefix(f"{ERASED_MARKER}, see ")
    assert await store.get_text(long, SYSTEM_SCOPE) == f"A long result about {ERASED_MARKER}"
    assert said[1].blocks[:2] == (Text(text=ERASED_MARKER), Text(text="Yes."))
    assert after.progress is not None
    assert after.progress.report is not None
    report = await store.get_text(after.progress.report, SYSTEM_SCOPE)
    assert report == f"# Report: {ERASED_MARKER} said so\n{ERASED_MARKER}, in {long}."


async def test_documents_of_an_encrypted_store_open_as_they_are_after_an_erasure(store_url: str) -> None:
    """Their names are bound to their texts, which have another hash then."""
    async with aclosing(await open_encrypted_store(store_url, SEALING)) as store:
        kept = await store_task_with_person(store, "first")
        await store.erase_person(order(kept), SOUGHT)
        letter, tides = await store.list_documents(kept.ref.task_id, SYSTEM_SCOPE)
        assert (letter.name, tides.name) == (f"Letter of {ERASED_MARKER}.md", "tides.md")
        assert (letter.file_name, tides.file_name) == (f"[1] {ERASED_MARKER}.md", "")
        assert (
            await store.get_text(letter.blob, SYSTEM_SCOPE)
            == f"Dear sir,\n\n{ERASED_MARKER} writes.\n{ERASED_MARKER}\n"
        )


async def test_a_document_keeps_its_lines_so_that_citations_still_check(store: SqlStore) -> None:
    kept = await store_task_with_person(store, "first")
    before = await store.list_documents(kept.ref.task_id, SYSTEM_SCOPE)
    await store.erase_person(order(kept), SOUGHT)
    text = f"Dear sir,\n\n{ERASED_MARKER} writes.\n{ERASED_MARKER}\n"
    letter, tides = await store.list_documents(kept.ref.task_id, SYSTEM_SCOPE)
    assert letter == Document(
        name=f"Letter of {ERASED_MARKER}.md",
        blob=letter.blob,
        lines=before[0].lines,
        characters=len(text),
        file_name=f"[1] {ERASED_MARKER}.md",
    )
    assert await store.get_text(letter.blob, SYSTEM_SCOPE) == text
    assert len(text.splitlines()) == before[0].lines
    assert tides == before[1]


async def test_passages_that_had_the_person_wait_to_be_embedded_anew_and_no_others(store: SqlStore) -> None:
    kept = await store_task_with_person(store, "first")
    await store.erase_person(order(kept), SOUGHT)
    (waiting,) = (await store.load_outbox_batch(10)).pending
    assert (waiting.id, waiting.text) == (make_passage_ids(kept.ref.task_id)[0], f"{ERASED_MARKER} said so")
    assert waiting.content_hash != "before"


async def test_another_tenant_keeps_the_same_document_and_every_word(store: SqlStore) -> None:
    kept, theirs = (
        await store_task_with_person(store, "first"),
        await store_task_with_person(store, "first", tenant="others"),
    )
    before = await store.find_erasure_matches(theirs.ref.tenant, SOUGHT)
    await store.erase_person(order(kept), SOUGHT)
    assert await store.find_erasure_matches(theirs.ref.tenant, SOUGHT) == before
    assert (
        await store.get_text((await store.list_documents(theirs.ref.task_id, SYSTEM_SCOPE))[0].blob, SYSTEM_SCOPE)
        == LETTER.text
    )


async def test_the_same_task_is_known_again_and_a_new_one_gets_the_document_as_it_is_given(store: SqlStore) -> None:
    kept = await store_task_with_person(store, "first")
    await store.erase_person(order(kept), SOUGHT)
    assert not await store.register_task(kept, [LETTER, OTHER])
    again = make_task_row(make_task_request("later", question="And?", session="first"))
    await store.register_task(again, [LETTER])
    assert (
        await store.get_text((await store.list_documents(again.ref.task_id, SYSTEM_SCOPE))[0].blob, SYSTEM_SCOPE)
        == LETTER.text
    )


async def test_an_order_is_carried_out_twice_and_refused_by_another_store(store: SqlStore) -> None:
    kept = await store_task_with_person(store, "first")
    await store.erase_person(order(kept), SOUGHT)
    left = await dump_all_tables(store)
    await store.erase_person(order(kept), SOUGHT)
    assert await dump_all_tables(store) == left
    with pytest.raises(WrongStore):
        await store.erase_person(order(kept).replace(store_id="elsewhere"), SOUGHT)


async def test_what_was_shown_of_documents_is_made_anew_after_a_person_was_erased(store: SqlStore) -> None:
    kept = await store_task_with_person(store, "first")
    keys = [make_redacted_text_key(kept, LETTER.text), make_redacted_text_key(kept, OTHER.text)]
    for key in keys:
        await store.save_redacted_text(key, RedactedText(text=f"{ADA} writes."))
    await store.erase_person(order(kept), SOUGHT)
    assert [await store.get_redacted_text(key, TenantScope(tenant=key.tenant)) for key in keys] == [None, None]
    assert ADA not in await dump_all_tables(store)
