"""Under `strict` agents know people, and documents named after them, by placeholders: they work with these alone.

Under `standard` they know their names, and what is kept of their work does not.
"""

from collections.abc import AsyncIterator
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial

import pytest

from tests.reports.test_publisher import DRAFT, PROGRESS
from tests.support.agent_environment import NOON, TASK, AgentEnvironment, make_tool_use
from tests.support.scopes import SYSTEM_SCOPE
from waystation.agents.redaction import TextRedactor, VaultPlaceholderFactory, load_task_redactor
from waystation.documents.documents import SourceDocument
from waystation.plugins.redaction.redactor import PresidioRedactor
from waystation.plugins.redaction.rules import DetectionConfig
from waystation.privacy.keys import AesGcmCipher
from waystation.privacy.policy import RedactionPolicy, TextDestination
from waystation.privacy.vault_repository import SqlVault
from waystation.reports.publisher import ReportPublisher
from waystation.security.placeholders import compute_fingerprint

KEY = bytes(range(32))
ADA, GRACE = "Ada Lovelace", "Grace Hopper"
DOCUMENTS = (
    SourceDocument(name=f"Interview with {ADA}.md", text=f"{ADA} wrote the first program.\nShe wrote notes.\n"),
    SourceDocument(name=f"Interview with {GRACE}.md", text=f"{GRACE} wrote a compiler.\n"),
    SourceDocument(name="mail of anna.berg@example.org.eml", text="The bar carries two fathoms.\n"),
)


@dataclass
class NamedAgentEnvironment:
    """An office with the real redactor and a vault."""

    env: AgentEnvironment
    redactor: TextRedactor
    vault: SqlVault

    async def call(self, name: str, /, **arguments: object) -> str:
        """The result of a call with these arguments, as it is kept."""
        site = await self.env.make_tool_context()
        desk = replace(self.env.agent_deps, redactor=self.redactor, vault=self.vault)
        result = await desk.build_role_toolbox("research").run(make_tool_use(name, "c1", **arguments), site)
        return f"ERROR {result.content}" if result.is_error else result.content

    @property
    def publisher(self) -> ReportPublisher:
        publisher = self.env.publisher
        check = replace(publisher.check, redactor=self.redactor, vault=self.vault)
        return replace(publisher, redactor=self.redactor, check=check)

    async def redacted(self, text: str, destination: TextDestination = TextDestination.TOOL_RESULT) -> str:
        (redacted,) = await self.redactor.redact([text], destination, self.env.ref.tenant)
        return redacted.text


@pytest.fixture(scope="module")
def presidio() -> PresidioRedactor:
    return PresidioRedactor(KEY, DetectionConfig(policy=RedactionPolicy.STRICT))


@pytest.fixture
async def strict(bare_env: AgentEnvironment, presidio: PresidioRedactor) -> NamedAgentEnvironment:
    await bare_env.open_task(DOCUMENTS)
    vault = bare_env.store.build_vault(AesGcmCipher(KEY, "vault"))
    redactor = TextRedactor(
        presidio, VaultPlaceholderFactory(vault, partial(compute_fingerprint, KEY), lambda: NOON, lambda: "session")
    )
    return NamedAgentEnvironment(bare_env, redactor, vault)


@pytest.fixture
async def standard(bare_env: AgentEnvironment) -> AsyncIterator[NamedAgentEnvironment]:
    await bare_env.open_task(DOCUMENTS)
    vault = bare_env.store.build_vault(AesGcmCipher(KEY, "vault"))
    with closing(PresidioRedactor(KEY)) as presidio:
        redactor = TextRedactor(
            presidio, VaultPlaceholderFactory(vault, partial(compute_fingerprint, KEY), lambda: NOON, lambda: "session")
        )
        yield NamedAgentEnvironment(bare_env, redactor, vault)


async def shown_names(strict: NamedAgentEnvironment) -> list[str]:
    return [line.partition(" (")[0] for line in (await strict.call("list_documents")).splitlines()]


async def test_a_document_is_opened_by_the_name_that_its_agent_is_shown(strict: NamedAgentEnvironment) -> None:
    names = await shown_names(strict)
    assert len(set(names)) == len(DOCUMENTS)
    assert all("<" in name for name in names)
    for name, words in zip(names, ("first program", "a compiler", "two fathoms"), strict=True):
        read = await strict.call("read_document", name=name)
        assert words in read
        assert ADA not in read
        assert read.startswith(f"{name}, lines 1-")


async def test_people_are_searched_for_by_their_placeholders(strict: NamedAgentEnvironment) -> None:
    person = (await strict.redacted(f"{GRACE} wrote it.")).partition(" wrote")[0]
    assert person.startswith("<PERSON_")
    found = await strict.call("search_documents", query=f"{person} compiler")
    assert f"{person} wrote a compiler." in found
    assert GRACE not in found


async def test_a_name_that_no_document_has_is_refused_without_the_names_of_others(
    strict: NamedAgentEnvironment,
) -> None:
    refused = await strict.call("read_document", name=f"Interview with {ADA} Byron.md")
    assert refused.startswith("ERROR There is no document")
    assert ADA not in refused


async def test_notes_and_citations_by_placeholder_hold(strict: NamedAgentEnvironment) -> None:
    name = (await shown_names(strict))[0]
    await strict.call("take_note", text="She wrote notes.", document=name, first_line=2, last_line=2)
    (note,) = await strict.env.store.list_notes(TASK, SYSTEM_SCOPE)
    assert note.document == DOCUMENTS[0].name
    publisher = strict.publisher
    report = await strict.env.store.get_text((await publisher.publish(strict.env.ref, PROGRESS)).report, SYSTEM_SCOPE)
    assert f"She wrote notes. [{name}:2-2]" in report
    assert ADA not in report
    draft = DRAFT.replace(summary=f'It says "She wrote notes." [{name}:2-2]', sections=())
    fence = (await strict.env.make_tool_context("writing")).fence
    await strict.env.store.commit_deliverable(fence, TASK, draft)
    outcome = await publisher.publish(strict.env.ref, PROGRESS)
    assert (outcome.citations, outcome.failed) == (1, 0)


@pytest.mark.parametrize(
    "destination",
    [
        TextDestination.COMPRESSED,
        TextDestination.SUMMARY,
        TextDestination.WISH,
        TextDestination.TITLE,
        TextDestination.QUERY,
    ],
)
async def test_under_standard_a_file_name_keeps_its_person_for_agents_and_nowhere_else(
    standard: NamedAgentEnvironment, destination: TextDestination
) -> None:
    name = (await shown_names(standard))[0]
    assert name == DOCUMENTS[0].name
    text = f"read_document({name}) says so [{name}:2-2], and `{name}` too."
    desk = replace(standard.env.agent_deps, redactor=standard.redactor, vault=standard.vault)
    redactor = await load_task_redactor(desk.redactor, desk.store, standard.env.ref.scope)
    (kept,) = await redactor.redact([text], destination, standard.env.ref.tenant)
    person = (await standard.redacted(ADA, TextDestination.COMPRESSED)).strip()
    called = f"Interview with {person}.md"
    assert kept.text == f"read_document({called}) says so [{called}:2-2], and `{called}` too."


async def test_under_standard_what_was_recalled_by_placeholder_is_opened_and_cited_all_the_same(
    standard: NamedAgentEnvironment,
) -> None:
    name = f"Interview with {await standard.redacted(ADA, TextDestination.COMPRESSED)}.md"
    assert "first program" in await standard.call("read_document", name=name)
    draft = DRAFT.replace(summary=f'It says "She wrote notes." [{name}:2-2]', sections=())
    fence = (await standard.env.make_tool_context("writing")).fence
    await standard.env.store.commit_deliverable(fence, TASK, draft)
    publisher = standard.publisher
    outcome = await publisher.publish(standard.env.ref, PROGRESS)
    assert (outcome.citations, outcome.failed) == (1, 0)
