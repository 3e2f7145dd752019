"""Placeholders in arguments: they become what they stand for where the session met that, for tools that were granted
it, and not without a word in the audit.
"""

from dataclasses import dataclass
from functools import partial

import pytest
from pydantic import JsonValue

from tests.agents.office import NOON, TENANT, MovingClock, Office, use
from tests.readers import ANYONE
from waystation.agents.decisions import Resolution
from waystation.agents.redaction import GRANTED, TextRedactor, VaultPlaceholderFactory, restore_text_from_vault
from waystation.agents.tools.box import Toolbox
from waystation.agents.tools.tool import Tool, ToolContext
from waystation.documents.documents import SourceDocument
from waystation.erasure.removal import ForgetOrder
from waystation.models.ports import ToolSpec
from waystation.plugins.redaction.placeholders import fingerprint
from waystation.privacy.keys import AesGcmCipher
from waystation.privacy.policy import TextDestination
from waystation.privacy.vault_repository import SqlVault
from waystation.runtime.sql_store import SqlStore
from waystation.testing import PlainRedactor

KEY = bytes(range(32))
ADA = "ada@example.org"
PLACEHOLDER = f"<EMAIL_{fingerprint(KEY, TENANT, 'GIVEN', ADA)[:12]}>"
MADE_UP = "<EMAIL_0123456789ab>"


class Listening(Tool):
    """A tool that notes what it is given; it asks for the originals of each of its arguments."""

    originals = frozenset({"query", "name", "document", "skill", "file", "tables", "sql", "url", "text"})
    description = "Listens."

    def __init__(self, name: str) -> None:
        self.name = name
        self.given: list[dict[str, JsonValue]] = []

    @property
    def spec(self) -> ToolSpec:
        return ToolSpec(name=self.name, description=self.description, input_schema={})

    async def call(self, arguments: dict[str, JsonValue], at: ToolContext) -> str:
        self.given.append(arguments)
        return "heard"


@dataclass
class House:
    """A store with a vault in which one session has met an address."""

    office: Office
    vault: SqlVault

    async def meets(self, session: str, tenant: str = TENANT) -> None:
        originals = VaultPlaceholderFactory(self.vault, partial(fingerprint, KEY), lambda: NOON, lambda: session)
        redactor = TextRedactor(PlainRedactor({ADA: PLACEHOLDER}), originals)
        await redactor.redact([f"Write to {ADA}."], TextDestination.TOOL_RESULT, tenant)

    async def given(self, tool: Listening, **arguments: object) -> dict[str, JsonValue]:
        """What the tool is given in the office's session."""
        store = self.office.store
        redactor = PlainRedactor({})
        box = Toolbox([tool], store=store, redactor=redactor, vault=self.vault)
        call_id = f"call of {tool.name}"
        await box.run(use(tool.name, call_id, **arguments), await self.office.site(call_id=call_id))
        return tool.given[-1]

    async def audited(self) -> list[Resolution]:
        trail = await self.office.store.list_audit_entries(self.office.task_id, ANYONE)
        return [entry for entry in trail if isinstance(entry, Resolution)]


@pytest.fixture
async def house(store: SqlStore) -> House:
    office = Office(store=store, clock=MovingClock(), store_id=await store.store_id())
    await office.open_task([SourceDocument(name="a.md", text="Nothing.")])
    return House(office, store.vault(AesGcmCipher(KEY, "vault")))


ARGUMENTS: dict[str, JsonValue] = {
    "query": f"hex('{PLACEHOLDER}')",
    "name": PLACEHOLDER,
    "document": f"{PLACEHOLDER}.md",
    "skill": PLACEHOLDER,
    "file": f"{PLACEHOLDER}.md",
    "tables": {"t": f"{PLACEHOLDER}.csv:1-2"},
    "sql": f"SELECT reverse('{PLACEHOLDER}')",
    "url": f"https://example.org/?q={PLACEHOLDER}",
    "text": PLACEHOLDER,
}


TOOLS = (*GRANTED, "fetch_page", "web_search", "mail__send_letter")


async def test_what_another_session_met_is_given_to_no_tool_in_no_argument(house: House) -> None:
    await house.meets("another session")
    given = {tool: await house.given(Listening(tool), **ARGUMENTS) for tool in TOOLS}
    assert given == dict.fromkeys(TOOLS, ARGUMENTS)
    assert await house.audited() == []


async def test_what_the_session_met_is_given_in_arguments_that_were_granted_by_name(house: House) -> None:
    await house.meets("session")
    await house.meets("another session")
    given = {tool: await house.given(Listening(tool), **ARGUMENTS) for tool in TOOLS}
    changed = {tool: {name for name in ARGUMENTS if given[tool][name] != ARGUMENTS[name]} for tool in TOOLS}
    assert changed == {tool: GRANTED.get(tool, frozenset()) for tool in TOOLS}
    assert [tool for tool in TOOLS if "sql" in changed[tool]] == []
    assert await house.audited() == [
        Resolution(agent="research-1", tool=tool, call_id=f"call of {tool}", placeholders=(PLACEHOLDER,))
        for tool in TOOLS
        if changed[tool]
    ]
    trail = "".join(
        entry.model_dump_json() for entry in await house.office.store.list_audit_entries(house.office.task_id, ANYONE)
    )
    assert ADA not in trail


async def test_a_tool_of_others_that_asks_for_originals_is_given_none(house: House) -> None:
    await house.meets("session")
    assert await house.given(Listening("mail__search_documents"), **ARGUMENTS) == ARGUMENTS


ALTERED = (
    MADE_UP,
    PLACEHOLDER.lower(),
    PLACEHOLDER.upper(),
    PLACEHOLDER.replace("EMAIL", "PERSON"),
    f"{PLACEHOLDER[:-1]}0>",
    PLACEHOLDER[1:-1],
    PLACEHOLDER.replace("_", "%"),
    f"<EMAIL_{'_' * 12}>",
)


async def test_made_up_and_altered_placeholders_stand_for_nothing(house: House) -> None:
    await house.meets("session")
    given = [(await house.given(Listening("search_documents"), query=f"find {one}")) for one in ALTERED]
    assert dict(zip(ALTERED, given, strict=True)) == {one: {"query": f"find {one}"} for one in ALTERED}
    assert await house.audited() == []


async def test_another_tenants_session_of_the_same_name_has_met_nothing_here(house: House) -> None:
    await house.meets("session", "another tenant")
    assert await house.given(Listening("search_documents"), query=PLACEHOLDER) == {"query": PLACEHOLDER}
    assert await house.vault.originals(TENANT, [PLACEHOLDER], "session") == {}


async def test_what_was_met_in_no_session_known_is_restored_for_its_owner_and_for_no_tool(house: House) -> None:
    await house.meets("")
    assert (await restore_text_from_vault(PLACEHOLDER, house.vault, TENANT)).text == ADA
    assert await house.given(Listening("search_documents"), query=PLACEHOLDER) == {"query": PLACEHOLDER}
    await house.meets("session")
    assert await house.given(Listening("search_documents"), query=PLACEHOLDER) == {"query": ADA}


@pytest.mark.parametrize("everything", [True, False])
async def test_a_session_that_is_forgotten_has_met_nothing_any_more(house: House, everything: bool) -> None:
    for session in ("session", "another session"):
        await house.meets(session)
    ref = house.office.ref
    await house.office.store.forget(
        ForgetOrder(store_id=ref.store_id, tenant=ref.tenant, task_ids=(ref.task_id,), everything=everything)
    )
    kept = await house.vault.originals(TENANT, [PLACEHOLDER], "session")
    assert kept == ({} if everything else {PLACEHOLDER: ADA})
    assert await house.vault.originals(TENANT, [PLACEHOLDER], "another session") == {PLACEHOLDER: ADA}


async def test_what_is_dropped_was_met_by_no_session_when_it_comes_again_in_another(house: House) -> None:
    await house.meets("session")
    assert await house.vault.drop(TENANT, [PLACEHOLDER]) == 1
    await house.meets("another session")
    assert await house.vault.originals(TENANT, [PLACEHOLDER], "session") == {}
    assert await house.vault.originals(TENANT, [PLACEHOLDER], "another session") == {PLACEHOLDER: ADA}
