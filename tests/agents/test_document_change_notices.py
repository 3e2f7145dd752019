"""Documents change while agents work: each hears once which, and where; tools and the report go by the new versions."""

from dataclasses import dataclass, field

from tests.agents.test_agent_loop import READ, SUBMIT
from tests.memory.test_document_indexer import IndexingEnvironment, make_indexing_environment
from tests.reports.test_publisher import publish_report, submit_deliverable
from tests.support.agent_environment import (
    DOCUMENTS,
    NOON,
    SECRET,
    SECRET_PLACEHOLDER,
    TASK,
    AgentEnvironment,
    make_tool_use,
    without_statuses,
)
from tests.support.scopes import SYSTEM_SCOPE
from waystation.agents.citation_checker import OUTDATED_CITATION_REASON, CitationChecker
from waystation.agents.deliverables import ReportDraft
from waystation.agents.leg import AgentFinished, TurnLimitReached
from waystation.context.constraints import extract_user_words
from waystation.context.transcript import Message
from waystation.documents.documents import DocumentSet, DocumentsUpdate, SourceDocument
from waystation.documents.redacted_documents import RedactedDocumentStore
from waystation.documents.search import HybridDocumentSearch
from waystation.documents.text_repository import make_document
from waystation.kernel.scopes import TenantScope
from waystation.memory.indexing import MemoryRecall
from waystation.tasks.context_editor import TranscriptRewinder
from waystation.testing.doubles import ScriptedModel, make_scripted_response

FINDING = {"claim": "It is gone.", "citations": ["[harbour.md:1-1]"]}
SUBMIT_NEWER = make_scripted_response(
    make_tool_use("submit_findings", "c7", findings=[{"claim": "It silted up.", "citations": ["[harbour.md:3-3]"]}])
)
SUBMIT_AGAIN = make_scripted_response(make_tool_use("submit_findings", "c6", findings=[FINDING]))
NEWER = SourceDocument(name="harbour.md", text="The harbour was dug in 1811.\nIt was dredged.\nIt silted up.\n")
READ_AGAIN = make_scripted_response(make_tool_use("read_document", "c5", name="harbour.md"))
QUOTED = ReportDraft(
    title="The harbour",
    summary='It "silted up within ten years" [harbour.md:2-2] and "was filled in by hand" [harbour.md:1-1].',
)


async def update_documents(
    env: AgentEnvironment, number: int, *documents: SourceDocument, missing: tuple[str, ...] = ()
) -> None:
    for one in documents:
        await env.store.put_text(one.text, env.ref.scope)
    given = DocumentSet(documents=tuple(map(make_document, documents)), missing=missing)
    asked = DocumentsUpdate(number=number, document_set="0" * 64, updated_at=NOON)
    await env.store.update_documents(TASK, asked, given)


async def news(env: AgentEnvironment) -> list[Message]:
    return [message for message in (await env.load_transcript()).messages if message.documents_update_number]


async def test_an_agent_at_work_hears_once_at_its_next_turn_and_reads_the_new_version(
    env: AgentEnvironment,
) -> None:
    env.terms = env.terms.replace(turn_limit=1)
    assert isinstance(await env.run_leg(ScriptedModel([READ])), TurnLimitReached)
    await update_documents(env, 1, NEWER)
    second = ScriptedModel([READ_AGAIN])
    await env.run_leg(second, 2)
    assert isinstance(await env.run_leg(ScriptedModel([SUBMIT_NEWER]), 3), AgentFinished)
    (heard,) = await news(env)
    assert (heard.id, heard.documents_update_number) == ("m4", 1)
    assert "- changed: harbour.md (lines 2-3; 3 lines now)" in heard.text
    assert [message.id for message in without_statuses(second.requests[0].messages)] == ["m1", "m2", "m3", "m4"]
    assert heard.is_platform_message
    assert extract_user_words([heard]) == (), "no wish of the user"
    results = [result.content for message in (await env.load_transcript()).messages for result in message.tool_results]
    assert "It silted up within ten years." in results[0]
    assert "2| It was dredged." in results[1]


async def test_updates_in_quick_succession_are_one_message_of_what_they_did_together(
    env: AgentEnvironment,
) -> None:
    lamp = SourceDocument(name=f"lamp {SECRET}.md", text="Lit.\n")
    await update_documents(env, 1, NEWER, lamp)
    await update_documents(env, 2, SourceDocument(name="harbour.md", text="Gone.\n"), missing=("keeper.md",))
    await env.run_leg(ScriptedModel([SUBMIT, SUBMIT_AGAIN]))
    results = [result.content for message in (await env.load_transcript()).messages for result in message.tool_results]
    assert "[harbour.md:2-2]: the document changed while the task ran" in results[0]
    (heard,) = await news(env)
    assert heard.documents_update_number == 2
    assert "- changed: harbour.md (line 1; 1 line now)\n- removed: keeper.md\n" in heard.text
    assert f"- added: lamp {SECRET_PLACEHOLDER}.md (1 line)" in heard.text
    assert SECRET not in heard.text


async def test_an_update_that_changed_nothing_or_was_undone_says_nothing(env: AgentEnvironment) -> None:
    await update_documents(env, 1, NEWER)
    await update_documents(env, 2, SourceDocument(name="harbour.md", text=(await first_text(env))))
    await env.run_leg(ScriptedModel([SUBMIT]))
    assert await news(env) == []


async def first_text(env: AgentEnvironment) -> str:
    (update, *_) = await env.store.list_document_updates(TASK, SYSTEM_SCOPE)
    return await env.store.get_text(update.changes[0].before, SYSTEM_SCOPE)


async def test_what_was_heard_and_is_taken_back_is_heard_again(env: AgentEnvironment) -> None:
    env.terms = env.terms.replace(turn_limit=1)
    await env.run_leg(ScriptedModel([READ]))
    await update_documents(env, 1, NEWER)
    await env.run_leg(ScriptedModel([READ_AGAIN]), 2)
    await TranscriptRewinder(env.store, env.outbox_drainer, env.agent_deps.submission_checker).rewind(
        env.run_ref(), "m3", "edit-1", keep=True
    )
    await env.run_leg(ScriptedModel([SUBMIT]), 3)
    assert [message.id for message in await news(env)] == ["m4", "m7"]


async def test_numbers_stay_where_documents_are_removed_and_tools_say_so(env: AgentEnvironment) -> None:
    await update_documents(env, 1, SourceDocument(name="lamp.md", text="The lamp was lit.\n"), missing=("harbour.md",))
    listed = await env.call_tool(make_tool_use("list_documents"))
    assert listed.splitlines()[0] == "harbour.md (removed while the task ran)"
    assert [line.split(" (")[0] for line in listed.splitlines()] == ["harbour.md", "keeper.md", "lamp.md"]
    read = await env.call_tool(make_tool_use("read_document", name="harbour.md"))
    assert read == ("ERROR harbour.md was removed while the task ran: it is no longer evidence. Go on without it.")
    third = make_tool_use("search_documents", query="lamp lit", first_document=3, last_document=3)
    assert "[lamp.md:1-1]" in await env.call_tool(third)


async def test_an_index_that_is_there_follows_the_documents(env: AgentEnvironment) -> None:
    search = HybridDocumentSearch(env.store)
    assert [hit.name for hit in await search.search(env.ref.scope, "silted key", 9)] == [
        "harbour.md",
        "keeper.md",
    ]
    lamp = SourceDocument(name="lamp.md", text="The lamp was lit.\n")
    await update_documents(env, 1, NEWER, lamp, missing=("keeper.md",))
    assert await search.search(env.ref.scope, "key", 9) == ()
    assert [hit.name for hit in await search.search(env.ref.scope, "dredged", 9)] == ["harbour.md"]
    assert [hit.name for hit in await search.search(env.ref.scope, "lamp", 9, range(3, 4))] == ["lamp.md"]


async def test_a_citation_that_held_in_the_version_before_is_said_to_be_outdated_and_not_invented(
    env: AgentEnvironment,
) -> None:
    await submit_deliverable(env, "writing", QUOTED)
    await update_documents(env, 1, NEWER)
    _, report = await publish_report(env)
    assert (
        "[harbour.md:2-2]: the document changed while the task ran; the citation was correct in the earlier version"
        in report
    )
    assert "[harbour.md:1-1]: the quoted words are not in these lines" in report
    await update_documents(env, 2, missing=("harbour.md",))
    _, report = await publish_report(env)
    assert (
        "[harbour.md:2-2]: the document was removed while the task ran; the citation was correct until then" in report
    )
    assert "[harbour.md:1-1]: there is no such document" in report


async def test_a_citation_that_holds_now_is_fine_whatever_held_before(env: AgentEnvironment) -> None:
    await update_documents(env, 1, NEWER)
    unchanged = '"dug in 1811" [harbour.md:1-1]'
    checked = await env.publisher.check.check(env.ref, f'{unchanged} "silted up within" [harbour.md:2-2]')
    assert [citation.quotation for citation in checked.valid_citations] == ["dug in 1811"]
    assert [failed.reason for failed in checked.failed_citations] == [OUTDATED_CITATION_REASON]


async def test_memory_gets_the_newest_version_and_recalls_no_earlier_one_for_the_task(
    env: AgentEnvironment,
) -> None:
    earlier = await make_indexing_environment(env, "task-2", *DOCUMENTS)
    await earlier.remember()
    recollection = MemoryRecall(env.memory, env.embedder, env.redactor, env.store)
    await update_documents(env, 1, NEWER, missing=("keeper.md",))
    assert await recollection.find(env.run_ref(), "harbour silted up within ten years") == ()
    own = IndexingEnvironment(env)
    env.memory.passages.clear()
    await own.remember()
    assert [passage.document for passage in own.in_memory] == ["harbour.md"]
    assert "It was dredged." in own.in_memory[0].text


@dataclass(frozen=True)
class Counting(RedactedDocumentStore):
    """Notes which texts are read."""

    read: list[str] = field(default_factory=list[str])

    async def get_comparison_lines(self, blob: str, reader: TenantScope) -> list[str]:
        """See `RedactedDocumentStore`."""
        self.read.append(blob)
        return await super().get_comparison_lines(blob, reader)


async def test_a_document_is_read_once_in_each_version_however_often_and_however_it_is_cited(
    env: AgentEnvironment,
) -> None:
    await update_documents(env, 1, NEWER)
    redacted = Counting(env.store, env.redactor)
    check = CitationChecker(env.store, env.redactor, redacted)
    names = ["harbour.md", "HARBOUR.md", "Harbour-md", "har bour md"]
    cited = [f'"silted up within ten years" [{name}:{line}-2]' for name in names for line in (1, 2)]
    checked = await check.check(env.ref, " ".join([*cited, "[keeper.md:1-1] [nobody.md:1-1]"]))
    assert len(redacted.read) == len(set(redacted.read)) == 3
    assert [failed.reason for failed in checked.failed_citations] == [OUTDATED_CITATION_REASON] * len(cited) + [
        "there is no such document"
    ]
