"""Documents of a task in memory: redacted, with their source, once for a session, and as many as the terms let in."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

import pytest

from tests.agents.office import NAME, NAME_PLACEHOLDER, Office, use
from tests.readers import ANYONE
from waystation.documents.documents import DocumentSet, DocumentsUpdate, SourceDocument
from waystation.documents.search import split_into_passages
from waystation.documents.text_repository import make_document
from waystation.erasure.removal import ForgetOrder
from waystation.kernel.errors import RedactionFailed
from waystation.memory.archive import DocumentIndexer, MemoryRecall, as_records
from waystation.memory.memory import Passage
from waystation.memory.passages import SLICE_CHARACTERS, IndexingState
from waystation.privacy.policy import RedactionResult, TextDestination
from waystation.testing import PlainRedactor

PILOT = SourceDocument(
    name="pilot.md",
    text=f"# The bar\n\nThe bar carries two fathoms.\n\nIts keeper is {NAME},\nwho lives by the mole.\n",
)
NEWER = SourceDocument(name="pilot.md", text="# The bar\n\nThe bar carries three fathoms.\n")
LONG = SourceDocument(
    name="long.md", text="".join(f"Beacon {number} stands {number} cables off.\n\n" for number in range(3_000))
)


@dataclass(frozen=True)
class Shelf:
    """One task of an office and what brings its documents into memory."""

    office: Office

    @property
    def librarian(self) -> DocumentIndexer:
        office = self.office
        return DocumentIndexer(
            store=office.store,
            redactor=office.redactor,
            redacted=office.redacted,
            cut=split_into_passages,
            archive=office.archive,
            clock=office.clock,
        )

    async def remember(self, most: int = 1_000_000) -> IndexingState:
        """To the end."""
        so_far = IndexingState(ref=self.office.ref, most_characters=most)
        while not so_far.done:
            so_far = await self.librarian.next_slice(so_far)
        return so_far

    @property
    def in_memory(self) -> list[Passage]:
        return [item.passage for item in self.office.memory.passages.values()]

    async def recalled(self, query: str) -> str:
        office = self.office
        recollection = MemoryRecall(office.memory, office.embedder, office.redactor, office.store)
        return as_records(await recollection.find(office.run_ref(), query))


class Listening(PlainRedactor):
    """Remembers the long texts on their way to memory: those are documents, and names of documents are short."""

    def __init__(self) -> None:
        super().__init__({}, {NAME: NAME_PLACEHOLDER})
        self.read: list[str] = []

    async def redact(self, texts: Sequence[str], place: TextDestination, tenant: str) -> tuple[RedactionResult, ...]:
        if place is TextDestination.COMPRESSED:
            self.read += [text for text in texts if len(text) > len(NEWER.name)]
        return await super().redact(texts, place, tenant)


async def change(shelf: Shelf, *documents: SourceDocument) -> None:
    """These take the places of the task's documents of their names."""
    store, task_id = shelf.office.store, shelf.office.task_id
    for one in documents:
        await store.put_text(one.text, shelf.office.ref.reader)
    given = DocumentSet(documents=tuple(map(make_document, documents)))
    update = DocumentsUpdate(
        number=1 + len(await store.document_updates(task_id, ANYONE)),
        given=await store.put_text(given.model_dump_json(), shelf.office.ref.reader),
        updated_at=shelf.office.clock(),
    )
    await store.update_documents(task_id, update, given)


async def shelf(office: Office, task_id: str, *documents: SourceDocument) -> Shelf:
    """A task of its own in the office's session."""
    own = replace(office, task_id=task_id)
    await own.open_task(documents)
    return Shelf(own)


async def test_a_later_task_recalls_a_document_with_its_source_and_without_names(bare_office: Office) -> None:
    first = await shelf(bare_office, "task-1", PILOT)
    done = await first.remember()
    assert (done.left_out, done.characters, done.passages) == (0, len(PILOT.text), len(first.in_memory))
    later = await shelf(bare_office, "task-2")
    found = await later.recalled("Who is the keeper of the bar?")
    assert re.search(r"\[pilot\.md:\d+-\d+\]\n", found)
    assert f"Its keeper is {NAME_PLACEHOLDER},\nwho lives by the mole." in found
    assert NAME not in found
    assert {passage.kind for passage in first.in_memory} == {"document"}


async def test_who_has_the_document_before_it_is_told_nothing_of_it(bare_office: Office) -> None:
    first = await shelf(bare_office, "task-1", PILOT)
    await first.remember()
    assert await first.recalled("the keeper of the bar") == ""
    same = await shelf(bare_office, "task-2", PILOT.replace(name="copy.md"))
    assert await same.recalled("the keeper of the bar") == ""


async def test_a_document_of_two_tasks_of_a_session_is_remembered_once(bare_office: Office) -> None:
    first, second = [await shelf(bare_office, task_id, PILOT) for task_id in ("task-1", "task-2")]
    await first.remember()
    before = first.in_memory
    assert (await second.remember()).passages == len(before)
    assert second.in_memory == before


async def test_when_a_task_ends_again_only_what_changed_is_read_and_what_it_replaced_is_recalled_no_more(
    bare_office: Office,
) -> None:
    redactor = Listening()
    first = await shelf(replace(bare_office, redactor=redactor), "task-1", PILOT, LONG)
    await first.remember()
    unchanged = [passage for passage in first.in_memory if passage.document == LONG.name]
    await change(first, NEWER)
    redactor.read.clear()
    again = await first.remember()
    assert redactor.read == [NEWER.text]
    assert (again.characters, again.left_out) == (len(NEWER.text) + len(LONG.text), 0)
    assert again.passages == len(unchanged) + 1
    assert [passage for passage in first.in_memory if passage.document == LONG.name] == unchanged
    later = await shelf(bare_office, "task-2")
    assert "three fathoms" in (found := await later.recalled("What does the bar carry?"))
    assert "two fathoms" not in found


async def test_a_document_that_memory_has_by_another_task_is_not_read_again(bare_office: Office) -> None:
    redactor = Listening()
    office = replace(bare_office, redactor=redactor)
    first, second = [await shelf(office, task_id, LONG) for task_id in ("task-1", "task-2")]
    await first.remember(most=50_000)
    redactor.read.clear()
    done = await second.remember()
    assert sum(map(len, redactor.read)) < len(LONG.text) - 45_000
    assert (done.characters, done.left_out, done.passages) == (len(LONG.text), 0, len(second.in_memory))
    lines = [line for passage in second.in_memory for line in passage.text.splitlines()[1:] if line]
    assert lines == [line for line in LONG.text.splitlines() if line]


async def test_a_document_that_changes_while_it_is_read_is_read_anew(bare_office: Office) -> None:
    first = await shelf(bare_office, "task-1", LONG)
    so_far = await first.librarian.next_slice(IndexingState(ref=first.office.ref, most_characters=10**6))
    longer = LONG.replace(text=f"{PILOT.text}{LONG.text}")
    await change(first, longer)
    while not so_far.done:
        so_far = await first.librarian.next_slice(so_far)
    blob = make_document(longer).blob
    passages = [passage for passage in first.in_memory if passage.blob == blob]
    assert [passage.place for passage in passages] == list(range(len(passages)))
    assert (passages[0].first_line, passages[-1].last_line) == (1, len(longer.text.splitlines()) - 1)
    await first.remember()
    assert {passage.blob for passage in first.in_memory} == {blob}


async def test_a_slice_that_is_done_again_changes_nothing(bare_office: Office) -> None:
    first = await shelf(bare_office, "task-1", LONG)
    begun = IndexingState(ref=first.office.ref, most_characters=10**6)
    after = await first.librarian.next_slice(begun)
    before = first.in_memory
    assert await first.librarian.next_slice(begun) == after
    assert first.in_memory == before
    assert SLICE_CHARACTERS <= after.characters < len(LONG.text)


async def test_all_slices_together_have_every_line_once_under_its_number(bare_office: Office) -> None:
    first = await shelf(bare_office, "task-1", PILOT, LONG)
    assert (await first.remember()).slices > 2
    passages = [passage for passage in first.in_memory if passage.document == "long.md"]
    assert [passage.place for passage in passages] == list(range(len(passages)))
    lines = LONG.text.splitlines()
    for passage in passages:
        source, *said = passage.text.splitlines()
        assert source == f"[long.md:{passage.first_line}-{passage.last_line}]"
        assert said == lines[passage.first_line - 1 : passage.last_line]
    said = [line for passage in passages for line in passage.text.splitlines()[1:] if line]
    assert said == [line for line in lines if line]


async def test_what_the_terms_do_not_let_in_is_counted(bare_office: Office) -> None:
    first = await shelf(bare_office, "task-1", LONG, PILOT)
    done = await first.remember(most=50_000)
    assert done.characters <= 50_000 < done.characters + 100
    assert done.left_out == len(LONG.text) + len(PILOT.text) - done.characters
    assert sum(len(passage.text) for passage in first.in_memory) < 2 * 50_000


async def test_while_memory_does_not_answer_passages_of_documents_wait(bare_office: Office) -> None:
    first = await shelf(bare_office, "task-1", PILOT)
    bare_office.memory.failing = True
    done = await first.remember()
    assert await bare_office.store.count_pending_passages("task-1") == done.passages
    bare_office.memory.failing = False
    assert (await bare_office.archive.drain()).stored == done.passages
    assert len(first.in_memory) == done.passages


async def test_nothing_of_a_document_is_kept_while_it_cannot_be_redacted(bare_office: Office) -> None:
    first = await shelf(bare_office, "task-1", PILOT)
    bare_office.redactor.failing_at = frozenset({TextDestination.COMPRESSED})
    with pytest.raises(RedactionFailed):
        await first.remember()
    assert await bare_office.store.passage_ids() == frozenset()


async def test_a_secret_that_goes_over_passages_is_replaced_in_all_of_them(bare_office: Office) -> None:
    secret = "\n".join(f"{number:064x}" for number in range(30))
    office = replace(bare_office, redactor=PlainRedactor({secret: "<SECRET_0123456789ab>"}))
    first = await shelf(office, "task-1", SourceDocument(name="key.md", text=f"The key:\n{secret}\nThe end.\n"))
    await first.remember()
    assert not re.search("0{30}", "".join(passage.text for passage in first.in_memory))
    assert first.in_memory[-1].text == "[key.md:32-32]\nThe end."


async def test_a_task_that_is_forgotten_meanwhile_remembers_nothing_more(bare_office: Office) -> None:
    first = await shelf(bare_office, "task-1", LONG)
    after = await first.librarian.next_slice(IndexingState(ref=first.office.ref, most_characters=10**6))
    order = ForgetOrder(
        store_id=bare_office.store_id, tenant=bare_office.ref.tenant, task_ids=("task-1",), everything=False
    )
    # The office's tasks have no tenant of their own in the store's rows but this one.
    assert (await bare_office.store.forget(order)).tasks == 1
    await bare_office.archive.drain()
    assert first.in_memory == []
    stopped = await first.librarian.next_slice(after)
    assert stopped.done
    assert first.in_memory == []
    assert await bare_office.store.count_pending_passages() == 0


async def test_a_passage_of_a_document_is_expanded_to_the_lines_around_it(bare_office: Office) -> None:
    first = await shelf(bare_office, "task-1", LONG, PILOT)
    await first.remember()
    passage = next(passage for passage in first.in_memory if passage.first_line > 1_000)
    later = await shelf(bare_office, "task-2")
    expanded = await later.office.call(use("expand", id=passage.short_id))
    assert expanded.startswith(f"[long.md:{passage.first_line - 20}-{passage.last_line + 20}]\n")
    assert "\n".join(LONG.text.splitlines()[passage.first_line - 1 : passage.last_line]) in expanded


async def test_lines_are_counted_the_same_whatever_ends_them(bare_office: Office) -> None:
    text = "one\r\ntwo\x0bthree\rfour\u2028\nsix\n"
    first = await shelf(bare_office, "task-1", SourceDocument(name="ends.md", text=text))
    done = await first.remember()
    assert (done.characters, done.left_out) == (len(text), 0)
    assert "\n".join(passage.text for passage in first.in_memory).splitlines() == [
        "[ends.md:1-6]", "one", "two", "three", "four", "", "six",
    ]  # fmt: skip
