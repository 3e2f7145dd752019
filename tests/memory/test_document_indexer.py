"""Documents of a task in memory: redacted, with their source, once for a session, and as many as the terms let in."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

import pytest

from tests.support.agent_environment import NAME, NAME_PLACEHOLDER, AgentEnvironment, make_tool_use
from tests.support.scopes import SYSTEM_SCOPE
from waystation.documents.documents import DocumentSet, DocumentsUpdate, SourceDocument
from waystation.documents.search import split_into_passages
from waystation.documents.text_repository import make_document
from waystation.erasure.erasure import ForgetOrder
from waystation.kernel.errors import RedactionFailed
from waystation.memory.indexing import DocumentIndexer, MemoryRecall, render_recalled_excerpts
from waystation.memory.passage_builder import SLICE_CHARACTERS, IndexingState
from waystation.memory.passages import Passage
from waystation.privacy.policy import RedactionResult, TextDestination
from waystation.testing.doubles import PlainRedactor

PILOT = SourceDocument(
    name="pilot.md",
    text=f"# The bar\n\nThe bar carries two fathoms.\n\nIts keeper is {NAME},\nwho lives by the mole.\n",
)
NEWER = SourceDocument(name="pilot.md", text="# The bar\n\nThe bar carries three fathoms.\n")
LONG = SourceDocument(
    name="long.md", text="".join(f"Beacon {number} stands {number} cables off.\n\n" for number in range(3_000))
)


@dataclass(frozen=True)
class IndexingEnvironment:
    """One task of an office and what brings its documents into memory."""

    env: AgentEnvironment

    @property
    def document_indexer(self) -> DocumentIndexer:
        env = self.env
        return DocumentIndexer(
            store=env.store,
            redactor=env.redactor,
            redacted_documents=env.redacted_documents,
            splitter=split_into_passages,
            outbox_drainer=env.outbox_drainer,
            clock=env.clock,
        )

    async def remember(self, most: int = 1_000_000) -> IndexingState:
        """To the end."""
        so_far = IndexingState(ref=self.env.ref, max_characters=most)
        while not so_far.done:
            so_far = await self.document_indexer.index_next_slice(so_far)
        return so_far

    @property
    def in_memory(self) -> list[Passage]:
        return [item.passage for item in self.env.memory.passages.values()]

    async def recalled(self, query: str) -> str:
        env = self.env
        recollection = MemoryRecall(env.memory, env.embedder, env.redactor, env.store)
        return render_recalled_excerpts(await recollection.find(env.run_ref(), query))


class Listening(PlainRedactor):
    """Remembers the long texts on their way to memory: those are documents, and names of documents are short."""

    def __init__(self) -> None:
        super().__init__({}, {NAME: NAME_PLACEHOLDER})
        self.read: list[str] = []

    async def redact(self, texts: Sequence[str], place: TextDestination, tenant: str) -> tuple[RedactionResult, ...]:
        if place is TextDestination.COMPRESSED:
            self.read += [text for text in texts if len(text) > len(NEWER.name)]
        return await super().redact(texts, place, tenant)


async def change(shelf: IndexingEnvironment, *documents: SourceDocument) -> None:
    """These take the places of the task's documents of their names."""
    store, task_id = shelf.env.store, shelf.env.task_id
    for one in documents:
        await store.put_text(one.text, shelf.env.ref.scope)
    given = DocumentSet(documents=tuple(map(make_document, documents)))
    update = DocumentsUpdate(
        number=1 + len(await store.list_document_updates(task_id, SYSTEM_SCOPE)),
        document_set=await store.put_text(given.model_dump_json(), shelf.env.ref.scope),
        updated_at=shelf.env.clock(),
    )
    await store.update_documents(task_id, update, given)


async def make_indexing_environment(
    env: AgentEnvironment, task_id: str, *documents: SourceDocument
) -> IndexingEnvironment:
    """A task of its own in the office's session."""
    own = replace(env, task_id=task_id)
    await own.open_task(documents)
    return IndexingEnvironment(own)


async def test_a_later_task_recalls_a_document_with_its_source_and_without_names(
    bare_env: AgentEnvironment,
) -> None:
    first = await make_indexing_environment(bare_env, "task-1", PILOT)
    done = await first.remember()
    assert (done.skipped_characters, done.characters, done.passages) == (0, len(PILOT.text), len(first.in_memory))
    later = await make_indexing_environment(bare_env, "task-2")
    found = await later.recalled("Who is the keeper of the bar?")
    assert re.search(r"\[pilot\.md:\d+-\d+\]\n", found)
    assert f"Its keeper is {NAME_PLACEHOLDER},\nwho lives by the mole." in found
    assert NAME not in found
    assert {passage.kind for passage in first.in_memory} == {"document"}


async def test_who_has_the_document_before_it_is_told_nothing_of_it(bare_env: AgentEnvironment) -> None:
    first = await make_indexing_environment(bare_env, "task-1", PILOT)
    await first.remember()
    assert await first.recalled("the keeper of the bar") == ""
    same = await make_indexing_environment(bare_env, "task-2", PILOT.replace(name="copy.md"))
    assert await same.recalled("the keeper of the bar") == ""


async def test_a_document_of_two_tasks_of_a_session_is_remembered_once(bare_env: AgentEnvironment) -> None:
    first, second = [await make_indexing_environment(bare_env, task_id, PILOT) for task_id in ("task-1", "task-2")]
    await first.remember()
    before = first.in_memory
    assert (await second.remember()).passages == len(before)
    assert second.in_memory == before


async def test_when_a_task_ends_again_only_what_changed_is_read_and_what_it_replaced_is_recalled_no_more(
    bare_env: AgentEnvironment,
) -> None:
    redactor = Listening()
    first = await make_indexing_environment(replace(bare_env, redactor=redactor), "task-1", PILOT, LONG)
    await first.remember()
    unchanged = [passage for passage in first.in_memory if passage.document == LONG.name]
    await change(first, NEWER)
    redactor.read.clear()
    again = await first.remember()
    assert redactor.read == [NEWER.text]
    assert (again.characters, again.skipped_characters) == (len(NEWER.text) + len(LONG.text), 0)
    assert again.passages == len(unchanged) + 1
    assert [passage for passage in first.in_memory if passage.document == LONG.name] == unchanged
    later = await make_indexing_environment(bare_env, "task-2")
    assert "three fathoms" in (found := await later.recalled("What does the bar carry?"))
    assert "two fathoms" not in found


async def test_a_document_that_memory_has_by_another_task_is_not_read_again(bare_env: AgentEnvironment) -> None:
    redactor = Listening()
    env = replace(bare_env, redactor=redactor)
    first, second = [await make_indexing_environment(env, task_id, LONG) for task_id in ("task-1", "task-2")]
    await first.remember(most=50_000)
    redactor.read.clear()
    done = await second.remember()
    assert sum(map(len, redactor.read)) < len(LONG.text) - 45_000
    assert (done.characters, done.skipped_characters, done.passages) == (len(LONG.text), 0, len(second.in_memory))
    lines = [line for passage in second.in_memory for line in passage.text.splitlines()[1:] if line]
    assert lines == [line for line in LONG.text.splitlines() if line]


async def test_a_document_that_changes_while_it_is_read_is_read_anew(bare_env: AgentEnvironment) -> None:
    first = await make_indexing_environment(bare_env, "task-1", LONG)
    so_far = await first.document_indexer.index_next_slice(IndexingState(ref=first.env.ref, max_characters=10**6))
    longer = LONG.replace(text=f"{PILOT.text}{LONG.text}")
    await change(first, longer)
    while not so_far.done:
        so_far = await first.document_indexer.index_next_slice(so_far)
    blob = make_document(longer).blob
    passages = [passage for passage in first.in_memory if passage.blob == blob]
    assert [passage.place for passage in passages] == list(range(len(passages)))
    assert (passages[0].first_line, passages[-1].last_line) == (1, len(longer.text.splitlines()) - 1)
    await first.remember()
    assert {passage.blob for passage in first.in_memory} == {blob}


async def test_a_slice_that_is_done_again_changes_nothing(bare_env: AgentEnvironment) -> None:
    first = await make_indexing_environment(bare_env, "task-1", LONG)
    begun = IndexingState(ref=first.env.ref, max_characters=10**6)
    after = await first.document_indexer.index_next_slice(begun)
    before = first.in_memory
    assert await first.document_indexer.index_next_slice(begun) == after
    assert first.in_memory == before
    assert SLICE_CHARACTERS <= after.characters < len(LONG.text)


async def test_all_slices_together_have_every_line_once_under_its_number(bare_env: AgentEnvironment) -> None:
    first = await make_indexing_environment(bare_env, "task-1", PILOT, LONG)
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


async def test_what_the_terms_do_not_let_in_is_counted(bare_env: AgentEnvironment) -> None:
    first = await make_indexing_environment(bare_env, "task-1", LONG, PILOT)
    done = await first.remember(most=50_000)
    assert done.characters <= 50_000 < done.characters + 100
    assert done.skipped_characters == len(LONG.text) + len(PILOT.text) - done.characters
    assert sum(len(passage.text) for passage in first.in_memory) < 2 * 50_000


async def test_while_memory_does_not_answer_passages_of_documents_wait(bare_env: AgentEnvironment) -> None:
    first = await make_indexing_environment(bare_env, "task-1", PILOT)
    bare_env.memory.failing = True
    done = await first.remember()
    assert await bare_env.store.count_pending_passages("task-1") == done.passages
    bare_env.memory.failing = False
    assert (await bare_env.outbox_drainer.drain()).stored == done.passages
    assert len(first.in_memory) == done.passages


async def test_nothing_of_a_document_is_kept_while_it_cannot_be_redacted(bare_env: AgentEnvironment) -> None:
    first = await make_indexing_environment(bare_env, "task-1", PILOT)
    bare_env.redactor.failing_at = frozenset({TextDestination.COMPRESSED})
    with pytest.raises(RedactionFailed):
        await first.remember()
    assert await bare_env.store.list_passage_ids() == frozenset()


async def test_a_secret_that_goes_over_passages_is_replaced_in_all_of_them(bare_env: AgentEnvironment) -> None:
    secret = "\n".join(f"{number:064x}" for number in range(30))
    env = replace(bare_env, redactor=PlainRedactor({secret: "<SECRET_0123456789ab>"}))
    first = await make_indexing_environment(
        env, "task-1", SourceDocument(name="key.md", text=f"The key:\n{secret}\nThe end.\n")
    )
    await first.remember()
    assert not re.search("0{30}", "".join(passage.text for passage in first.in_memory))
    assert first.in_memory[-1].text == "[key.md:32-32]\nThe end."


async def test_a_task_that_is_forgotten_meanwhile_remembers_nothing_more(bare_env: AgentEnvironment) -> None:
    first = await make_indexing_environment(bare_env, "task-1", LONG)
    after = await first.document_indexer.index_next_slice(IndexingState(ref=first.env.ref, max_characters=10**6))
    order = ForgetOrder(store_id=bare_env.store_id, tenant=bare_env.ref.tenant, task_ids=("task-1",), everything=False)
    # The office's tasks have no tenant of their own in the store's rows but this one.
    assert (await bare_env.store.forget_tasks(order)).tasks == 1
    await bare_env.outbox_drainer.drain()
    assert first.in_memory == []
    stopped = await first.document_indexer.index_next_slice(after)
    assert stopped.done
    assert first.in_memory == []
    assert await bare_env.store.count_pending_passages() == 0


async def test_a_passage_of_a_document_is_expanded_to_the_lines_around_it(bare_env: AgentEnvironment) -> None:
    first = await make_indexing_environment(bare_env, "task-1", LONG, PILOT)
    await first.remember()
    passage = next(passage for passage in first.in_memory if passage.first_line > 1_000)
    later = await make_indexing_environment(bare_env, "task-2")
    expanded = await later.env.call_tool(make_tool_use("expand", id=passage.short_id))
    assert expanded.startswith(f"[long.md:{passage.first_line - 20}-{passage.last_line + 20}]\n")
    assert "\n".join(LONG.text.splitlines()[passage.first_line - 1 : passage.last_line]) in expanded


async def test_lines_are_counted_the_same_whatever_ends_them(bare_env: AgentEnvironment) -> None:
    text = "one\r\ntwo\x0bthree\rfour\u2028\nsix\n"
    first = await make_indexing_environment(bare_env, "task-1", SourceDocument(name="ends.md", text=text))
    done = await first.remember()
    assert (done.characters, done.skipped_characters) == (len(text), 0)
    assert "\n".join(passage.text for passage in first.in_memory).splitlines() == [
        "[ends.md:1-6]", "one", "two", "three", "four", "", "six",
    ]  # fmt: skip
