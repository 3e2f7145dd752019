"""Whole texts as agents may see them: redacted once, line for line, and kept with their originals."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.agent_environment import (
    NAME,
    NAME_PLACEHOLDER,
    SECRET,
    SECRET_PLACEHOLDER,
    TASK,
    AgentEnvironment,
    make_tool_use,
)
from tests.support.scopes import make_task_scope
from waystation.agents.redaction import TextRedactor
from waystation.documents.documents import SourceDocument
from waystation.documents.redacted_documents import RedactedDocumentStore, redact_display_name
from waystation.kernel.errors import TextNotFoundError
from waystation.privacy.policy import (
    TEXT_LEFT_OUT,
    RedactionConfig,
    RedactionPolicy,
    RedactionResult,
    Span,
    TextDestination,
    build_redacted_text,
    find_cut_position,
    make_failed_redaction,
    normalize_line_endings,
    with_placeholders,
)
from waystation.testing.doubles import PlainRedactor

READER = make_task_scope(TASK)
KEY = f"before\r\n{SECRET}\nafter {NAME}\n"


class CountedRedactor(PlainRedactor):
    """Counts the texts, and may find none of them readable."""

    def __init__(self) -> None:
        super().__init__({SECRET: SECRET_PLACEHOLDER}, {NAME: NAME_PLACEHOLDER})
        self.texts: list[str] = []
        self.gives_up = False

    async def redact(
        self, texts: Sequence[str], destination: TextDestination, tenant: str
    ) -> tuple[RedactionResult, ...]:
        self.texts.extend(texts)
        await asyncio.sleep(0)
        if self.gives_up:
            return tuple(make_failed_redaction(text, "0" * 64) for text in texts)
        return await super().redact(texts, destination, tenant)


@pytest.fixture
def redactor() -> CountedRedactor:
    return CountedRedactor()


async def test_a_text_is_redacted_once_for_a_tenant_and_rules_and_never_again(
    bare_env: AgentEnvironment, redactor: CountedRedactor
) -> None:
    store = bare_env.store
    blob = await store.put_text(KEY, READER)
    shown = await RedactedDocumentStore(store, redactor).get_redacted_text(blob, READER)
    assert shown.lines == ["before", SECRET_PLACEHOLDER, f"after {NAME}"]
    assert await RedactedDocumentStore(store, redactor).get_redacted_text(blob, READER) == shown
    assert len(redactor.texts) == 1
    other = READER.replace(tenant="another tenant", task_id="task-another")
    with pytest.raises(TextNotFoundError):
        await RedactedDocumentStore(store, redactor).get_redacted_text(blob, other)
    await store.put_text(KEY, other)
    await RedactedDocumentStore(store, redactor).get_redacted_text(blob, other)
    await RedactedDocumentStore(store, redactor, RedactionConfig(version="1")).get_redacted_text(blob, READER)
    assert len(redactor.texts) == 3
    assert await store.get_text(blob, READER) == KEY


async def test_what_is_kept_is_shown_to_nobody_who_does_not_have_the_original(
    bare_env: AgentEnvironment, redactor: CountedRedactor
) -> None:
    store, other = bare_env.store, READER.replace(session="another", task_id="task-another")
    blob = await store.put_text(KEY, READER)
    shown = await RedactedDocumentStore(store, redactor).get_redacted_text(blob, READER)
    with pytest.raises(TextNotFoundError):
        await RedactedDocumentStore(store, redactor).get_redacted_text(blob, other)
    await store.put_text(KEY, other)
    assert await RedactedDocumentStore(store, redactor).get_redacted_text(blob, other) == shown
    assert len(redactor.texts) == 1


async def test_what_cannot_be_redacted_tells_nobody_else_that_it_is_there(
    bare_env: AgentEnvironment, redactor: CountedRedactor
) -> None:
    blob = await bare_env.store.put_text(KEY, READER)
    documents = RedactedDocumentStore(bare_env.store, redactor)
    redactor.gives_up = True
    assert (await documents.get_redacted_text(blob, READER)).withheld
    with pytest.raises(TextNotFoundError):
        await documents.get_redacted_text(blob, READER.replace(task_id="task-another"))


async def test_each_treatment_has_its_text_and_places_of_the_same_one_share_it(
    bare_env: AgentEnvironment, redactor: CountedRedactor
) -> None:
    blob = await bare_env.store.put_text(KEY, READER)
    documents = RedactedDocumentStore(bare_env.store, redactor)
    assert NAME in (await documents.get_redacted_text(blob, READER, TextDestination.REPORT)).text
    assert NAME in (await documents.get_redacted_text(blob, READER)).text
    assert NAME_PLACEHOLDER in (await documents.get_redacted_text(blob, READER, TextDestination.COMPRESSED)).text
    assert len(redactor.texts) == 2
    strict = RedactedDocumentStore(bare_env.store, redactor, RedactionConfig(policy=RedactionPolicy.STRICT))
    await strict.get_redacted_text(blob, READER)
    await strict.get_redacted_text(blob, READER, TextDestination.COMPRESSED)
    assert len(redactor.texts) == 2  # of the same treatment as memory's under the policy before


async def test_agents_that_ask_for_the_same_text_at_once_wait_for_one_redaction(
    bare_env: AgentEnvironment, redactor: CountedRedactor
) -> None:
    blob = await bare_env.store.put_text(KEY, READER)
    documents = RedactedDocumentStore(bare_env.store, redactor)
    found = await asyncio.gather(*(documents.get_redacted_text(blob, READER) for _ in range(8)))
    assert len(set(found)) == len(redactor.texts) == 1


async def test_two_workers_that_redact_the_same_text_at_once_keep_one(
    bare_env: AgentEnvironment, redactor: CountedRedactor
) -> None:
    blob = await bare_env.store.put_text(KEY, READER)
    both = [RedactedDocumentStore(bare_env.store, redactor) for _ in range(2)]
    one, other = await asyncio.gather(*(documents.get_redacted_text(blob, READER) for documents in both))
    assert one == other


async def test_a_text_that_cannot_be_redacted_is_put_aside_and_not_tried_again(
    bare_env: AgentEnvironment, redactor: CountedRedactor
) -> None:
    blob = await bare_env.store.put_text(KEY, READER)
    documents = RedactedDocumentStore(bare_env.store, redactor)
    redactor.gives_up = True
    shown = await documents.get_redacted_text(blob, READER)
    assert shown.withheld
    assert shown.lines == ["", "", ""]
    assert await documents.get_redacted_text(blob, READER) == shown
    assert len(redactor.texts) == 1
    redactor.gives_up = False  # as after a restart of the worker: it is not held against the text for ever
    assert not (await RedactedDocumentStore(bare_env.store, redactor).get_redacted_text(blob, READER)).withheld


async def test_nothing_is_kept_where_what_is_replaced_goes_into_no_vault(
    bare_env: AgentEnvironment, redactor: CountedRedactor
) -> None:
    blob = await bare_env.store.put_text(KEY, READER)
    documents = RedactedDocumentStore(bare_env.store, redactor, stores_results=False)
    assert await documents.get_redacted_text(blob, READER) == await documents.get_redacted_text(blob, READER)
    assert len(redactor.texts) == 2


async def test_a_text_that_is_not_kept_any_more_is_missing(
    bare_env: AgentEnvironment, redactor: CountedRedactor
) -> None:
    with pytest.raises(TextNotFoundError):
        await RedactedDocumentStore(bare_env.store, redactor).get_redacted_text("0" * 64, READER)


@given(st.text(st.sampled_from("ab \n\r\x0b\x0c\x1c\x85\u2028é"), max_size=40), st.data())
def test_what_is_shown_has_the_lines_of_the_original_whatever_ends_them(text: str, draw: st.DataObject) -> None:
    plain = normalize_line_endings(text)
    places = sorted(draw.draw(st.sets(st.integers(0, len(plain)), min_size=2, max_size=4))) if len(plain) > 3 else []
    spans = [
        Span(type="GIVEN", start=start, end=end, score=1, placeholder="<GIVEN_0123456789ab>")
        for start, end in zip(places[::2], places[1::2], strict=False)
    ]
    lines = build_redacted_text(plain, with_placeholders(plain, spans)).lines
    assert len(lines) == max(1, len(text.splitlines()))
    if not spans:
        assert lines == (text.splitlines() or [""])


@given(st.text(st.sampled_from("ab<>_"), max_size=60), st.integers(0, 60))
def test_a_redacted_text_is_never_cut_within_a_placeholder(text: str, end: int) -> None:
    placeholder = "<EMAIL_ADDRESS_0123456789ab>"
    whole = text[:20] + placeholder + text[20:]
    place = find_cut_position(whole, end)
    assert place <= end
    assert whole[:place].count(placeholder) + whole[place:].count(placeholder) == whole.count(placeholder)


async def test_an_agent_hears_why_a_document_is_not_shown_and_goes_on(bare_env: AgentEnvironment) -> None:
    redactor = CountedRedactor()
    await bare_env.open_task([SourceDocument(name="slow.md", text=KEY), SourceDocument(name="other.md", text="Tide.")])
    slow = (await bare_env.store.list_documents(bare_env.task_id, READER))[0]
    documents = RedactedDocumentStore(bare_env.store, redactor)
    redactor.gives_up = True
    await documents.get_redacted_text(slow.blob, READER)
    redactor.gives_up = False
    site = await bare_env.make_tool_context()
    box = replace(bare_env.agent_deps, redactor=redactor, redacted_documents=documents).build_role_toolbox("research")
    refused = await box.run(make_tool_use("read_document", name="slow.md"), site)
    assert refused.is_error
    assert refused.content.startswith("slow.md could not be redacted (redaction takes too long, or fails)")
    assert site.notes == [TEXT_LEFT_OUT]
    assert "1| Tide." in (await box.run(make_tool_use("read_document", "c2", name="other.md"), site)).content
    found = await box.run(make_tool_use("search_documents", "c3", query="before after tide"), site)
    assert found.content.startswith("[other.md:1-1]")
    assert "slow.md" not in found.content


async def test_a_quotation_holds_where_it_stands_in_what_agents_saw_and_a_guess_of_the_rest_does_not(
    env: AgentEnvironment,
) -> None:
    text = f'"Her key is {SECRET_PLACEHOLDER}." [keeper.md:2-2] and "Her key is {SECRET}." [keeper.md:2-2]'
    checked = await env.publisher.check.check(env.ref, text)
    assert [citation.quotation for citation in checked.valid_citations] == [f"Her key is {SECRET_PLACEHOLDER}."]
    assert [failed.reason for failed in checked.failed_citations] == ["the quoted words are not in these lines"]


async def test_people_are_told_which_document_was_put_aside_by_its_redacted_name(
    bare_env: AgentEnvironment,
) -> None:
    class SlowRedactor(CountedRedactor):
        async def redact(
            self, texts: Sequence[str], destination: TextDestination, tenant: str
        ) -> tuple[RedactionResult, ...]:
            if destination is TextDestination.TOOL_RESULT and any("tide" in text for text in texts):
                return tuple(make_failed_redaction(text, "0" * 64, put_aside=True) for text in texts)
            return await super().redact(texts, destination, tenant)

    redactor = SlowRedactor()
    private = "interviews/Ada_Lovelace.md"
    await bare_env.open_task(
        [SourceDocument(name=private, text="The tide."), SourceDocument(name="plain.csv", text="a,tide\n1,2\n")]
    )
    documents = RedactedDocumentStore(bare_env.store, redactor)
    box = replace(bare_env.agent_deps, redactor=redactor, redacted_documents=documents).build_role_toolbox("research")
    site = await bare_env.make_tool_context()
    put_aside = "could not be redacted in time and was replaced by <UNREDACTED_TEXT_000000000000>."
    for call in (
        make_tool_use("read_document", name=private),
        make_tool_use("read_document", "c2", name="plain.csv"),
        make_tool_use("search_documents", "c3", query="tide"),
    ):
        assert "tide." not in (await box.run(call, site)).content
    assert list(dict.fromkeys(site.notes)) == [
        f"1 text (interviews/{NAME_PLACEHOLDER}.md) {put_aside}",
        f"1 text (plain.csv) {put_aside}",
    ]
    assert await redact_display_name(private, TextRedactor(redactor, titles="none"), READER.tenant) == "(no title)"
