"""Whole texts as agents may see them: redacted once, line for line, and kept with their originals."""

import asyncio
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.agents.office import NAME, NAME_PLACEHOLDER, SECRET, SECRET_PLACEHOLDER, TENANT, Office
from waystation.agents.redacted_documents import RedactedDocuments
from waystation.domain.errors import TextMissing
from waystation.domain.privacy import Place, Policy
from waystation.domain.redaction import (
    Redacted,
    RedactionRules,
    Span,
    shown_text,
    unredacted,
    with_line_feeds,
    with_placeholders,
)
from waystation.testing import PlainRedactor

KEY = f"before\r\n{SECRET}\nafter {NAME}\n"


class CountedRedactor(PlainRedactor):
    """Counts the texts, and may find none of them readable."""

    def __init__(self) -> None:
        super().__init__({SECRET: SECRET_PLACEHOLDER}, {NAME: NAME_PLACEHOLDER})
        self.texts: list[str] = []
        self.gives_up = False

    async def redact(self, texts: Sequence[str], place: Place, tenant: str) -> tuple[Redacted, ...]:
        self.texts.extend(texts)
        await asyncio.sleep(0)
        if self.gives_up:
            return tuple(unredacted(text, "0" * 64) for text in texts)
        return await super().redact(texts, place, tenant)


@pytest.fixture
def redactor() -> CountedRedactor:
    return CountedRedactor()


async def test_a_text_is_redacted_once_for_a_tenant_and_rules_and_never_again(
    bare_office: Office, redactor: CountedRedactor
) -> None:
    store = bare_office.store
    blob = await store.put_text(KEY)
    shown = await RedactedDocuments(store, redactor).text(blob, TENANT)
    assert shown.lines == ["before", SECRET_PLACEHOLDER, f"after {NAME}"]
    assert await RedactedDocuments(store, redactor).text(blob, TENANT) == shown
    assert len(redactor.texts) == 1
    await RedactedDocuments(store, redactor).text(blob, "another tenant")
    await RedactedDocuments(store, redactor, RedactionRules(version="1")).text(blob, TENANT)
    assert len(redactor.texts) == 3
    assert await store.get_text(blob) == KEY


async def test_each_treatment_has_its_text_and_places_of_the_same_one_share_it(
    bare_office: Office, redactor: CountedRedactor
) -> None:
    blob = await bare_office.store.put_text(KEY)
    documents = RedactedDocuments(bare_office.store, redactor)
    assert NAME in (await documents.text(blob, TENANT, Place.REPORT)).text
    assert NAME in (await documents.text(blob, TENANT)).text
    assert NAME_PLACEHOLDER in (await documents.text(blob, TENANT, Place.COMPRESSED)).text
    assert len(redactor.texts) == 2
    strict = RedactedDocuments(bare_office.store, redactor, RedactionRules(policy=Policy.STRICT))
    await strict.text(blob, TENANT)
    await strict.text(blob, TENANT, Place.COMPRESSED)
    assert len(redactor.texts) == 2  # of the same treatment as memory's under the policy before


async def test_agents_that_ask_for_the_same_text_at_once_wait_for_one_redaction(
    bare_office: Office, redactor: CountedRedactor
) -> None:
    blob = await bare_office.store.put_text(KEY)
    documents = RedactedDocuments(bare_office.store, redactor)
    found = await asyncio.gather(*(documents.text(blob, TENANT) for _ in range(8)))
    assert len(set(found)) == len(redactor.texts) == 1


async def test_two_workers_that_redact_the_same_text_at_once_keep_one(
    bare_office: Office, redactor: CountedRedactor
) -> None:
    blob = await bare_office.store.put_text(KEY)
    both = [RedactedDocuments(bare_office.store, redactor) for _ in range(2)]
    one, other = await asyncio.gather(*(documents.text(blob, TENANT) for documents in both))
    assert one == other


async def test_a_text_that_cannot_be_redacted_is_put_aside_and_not_tried_again(
    bare_office: Office, redactor: CountedRedactor
) -> None:
    blob = await bare_office.store.put_text(KEY)
    documents = RedactedDocuments(bare_office.store, redactor)
    redactor.gives_up = True
    shown = await documents.text(blob, TENANT)
    assert shown.withheld
    assert shown.lines == ["", "", ""]
    assert await documents.text(blob, TENANT) == shown
    assert len(redactor.texts) == 1
    redactor.gives_up = False  # as after a restart of the worker: it is not held against the text for ever
    assert not (await RedactedDocuments(bare_office.store, redactor).text(blob, TENANT)).withheld


async def test_nothing_is_kept_where_what_is_replaced_goes_into_no_vault(
    bare_office: Office, redactor: CountedRedactor
) -> None:
    blob = await bare_office.store.put_text(KEY)
    documents = RedactedDocuments(bare_office.store, redactor, keeps=False)
    assert await documents.text(blob, TENANT) == await documents.text(blob, TENANT)
    assert len(redactor.texts) == 2


async def test_a_text_that_is_not_kept_any_more_is_missing(bare_office: Office, redactor: CountedRedactor) -> None:
    with pytest.raises(TextMissing):
        await RedactedDocuments(bare_office.store, redactor).text("0" * 64, TENANT)


@given(st.text(st.sampled_from("ab \n\r\x0b\x0c\x1c\x85\u2028é"), max_size=40), st.data())
def test_what_is_shown_has_the_lines_of_the_original_whatever_ends_them(text: str, draw: st.DataObject) -> None:
    plain = with_line_feeds(text)
    places = sorted(draw.draw(st.sets(st.integers(0, len(plain)), min_size=2, max_size=4))) if len(plain) > 3 else []
    spans = [
        Span(type="GIVEN", start=start, end=end, score=1, placeholder="<GIVEN_0123456789ab>")
        for start, end in zip(places[::2], places[1::2], strict=False)
    ]
    lines = shown_text(plain, with_placeholders(plain, spans)).lines
    assert len(lines) == max(1, len(text.splitlines()))
    if not spans:
        assert lines == (text.splitlines() or [""])
