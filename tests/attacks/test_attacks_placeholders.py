"""Placeholders in arguments: they become what they stand for where the session met that, for tools that were granted
it, and not without a word in the audit.
"""

from dataclasses import dataclass
from functools import partial

import pytest
from pydantic import JsonValue

from tests.support.agent_environment import NOON, TENANT, AgentEnvironment, ManualClock, make_tool_use
from tests.support.scopes import SYSTEM_SCOPE
from waystation.agents.action_approvals import PlaceholderResolution
from waystation.agents.redaction import (
    TOOLS_GRANTED_ORIGINALS,
    TextRedactor,
    VaultPlaceholderFactory,
    restore_text_from_vault,
)
from waystation.agents.tools.tool import Tool, ToolContext
from waystation.agents.tools.toolbox import Toolbox
from waystation.documents.documents import SourceDocument
from waystation.erasure.erasure import ForgetOrder
from waystation.models.ports import ToolSpec
from waystation.privacy.keys import AesGcmCipher
from waystation.privacy.policy import TextDestination
from waystation.privacy.vault_repository import SqlVault
from waystation.runtime.sql_store import SqlStore
from waystation.security.placeholders import compute_fingerprint
from waystation.testing.doubles import PlainRedactor

KEY = bytes(range(32))
ADA = "ada@example.org"
PLACEHOLDER = f"<EMAIL_{compute_fingerprint(KEY, TENANT, 'GIVEN', ADA)[:12]}>"
MADE_UP = "<EMAIL_0123456789ab>"


class Listening(Tool):
    """A tool that notes what it is given; it asks for the originals of each of its arguments."""

    originals = frozenset(
        {"query", "more_queries", "name", "document", "skill", "file", "tables", "sql", "url", "text"}
    )
    description = "Listens."

    def __init__(self, name: str) -> None:
        self.name = name
        self.given: list[dict[str, JsonValue]] = []

    @property
    def spec(self) -> ToolSpec:
        return ToolSpec(name=self.name, description=self.description, input_schema={})

    async def call(self, arguments: dict[str, JsonValue], ctx: ToolContext) -> str:
        self.given.append(arguments)
        return "heard"


@dataclass
class PlaceholderEnvironment:
    """A store with a vault in which one session has met an address."""

    env: AgentEnvironment
    vault: SqlVault

    async def meets(self, session: str, tenant: str = TENANT) -> None:
        originals = VaultPlaceholderFactory(
            self.vault, partial(compute_fingerprint, KEY), lambda: NOON, lambda: session
        )
        redactor = TextRedactor(PlainRedactor({ADA: PLACEHOLDER}), originals)
        await redactor.redact([f"Write to {ADA}."], TextDestination.TOOL_RESULT, tenant)

    async def given(self, tool: Listening, **arguments: object) -> dict[str, JsonValue]:
        """What the tool is given in the office's session."""
        store = self.env.store
        redactor = PlainRedactor({})
        box = Toolbox([tool], store=store, redactor=redactor, vault=self.vault)
        call_id = f"call of {tool.name}"
        await box.run(make_tool_use(tool.name, call_id, **arguments), await self.env.make_tool_context(call_id=call_id))
        return tool.given[-1]

    async def audited(self) -> list[PlaceholderResolution]:
        trail = await self.env.store.list_audit_entries(self.env.task_id, SYSTEM_SCOPE)
        return [entry for entry in trail if isinstance(entry, PlaceholderResolution)]


@pytest.fixture
async def memory_env(store: SqlStore) -> PlaceholderEnvironment:
    env = AgentEnvironment(store=store, clock=ManualClock(), store_id=await store.get_store_id())
    await env.open_task([SourceDocument(name="a.md", text="Nothing.")])
    return PlaceholderEnvironment(env, store.build_vault(AesGcmCipher(KEY, "vault")))


ARGUMENTS: dict[str, JsonValue] = {
    "query": f"hex('{PLACEHOLDER}')",
    "more_queries": [f"hex('{PLACEHOLDER}')"],
    "name": PLACEHOLDER,
    "document": f"{PLACEHOLDER}.md",
    "skill": PLACEHOLDER,
    "file": f"{PLACEHOLDER}.md",
    "tables": {"t": f"{PLACEHOLDER}.csv:1-2"},
    "sql": f"SELECT reverse('{PLACEHOLDER}')",
    "url": f"https://example.org/?q={PLACEHOLDER}",
    "text": PLACEHOLDER,
}


TOOLS = (*TOOLS_GRANTED_ORIGINALS, "fetch_page", "web_search", "mail__send_letter")


async def test_what_another_session_met_is_given_to_no_tool_in_no_argument(memory_env: PlaceholderEnvironment) -> None:
    await memory_env.meets("another session")
    given = {tool: await memory_env.given(Listening(tool), **ARGUMENTS) for tool in TOOLS}
    assert given == dict.fromkeys(TOOLS, ARGUMENTS)
    assert await memory_env.audited() == []


async def test_what_the_session_met_is_given_in_arguments_that_were_granted_by_name(
    memory_env: PlaceholderEnvironment,
) -> None:
    await memory_env.meets("session")
    await memory_env.meets("another session")
    given = {tool: await memory_env.given(Listening(tool), **ARGUMENTS) for tool in TOOLS}
    changed = {tool: {name for name in ARGUMENTS if given[tool][name] != ARGUMENTS[name]} for tool in TOOLS}
    assert changed == {tool: TOOLS_GRANTED_ORIGINALS.get(tool, frozenset()) for tool in TOOLS}
    assert [tool for tool in TOOLS if "sql" in changed[tool]] == []
    assert await memory_env.audited() == [
        PlaceholderResolution(agent="research-1", tool=tool, call_id=f"call of {tool}", placeholders=(PLACEHOLDER,))
        for tool in TOOLS
        if changed[tool]
    ]
    trail = "".join(
        entry.model_dump_json()
        for entry in await memory_env.env.store.list_audit_entries(memory_env.env.task_id, SYSTEM_SCOPE)
    )
    assert ADA not in trail


async def test_a_tool_of_others_that_asks_for_originals_is_given_none(memory_env: PlaceholderEnvironment) -> None:
    await memory_env.meets("session")
    assert await memory_env.given(Listening("mail__search_documents"), **ARGUMENTS) == ARGUMENTS


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


async def test_made_up_and_altered_placeholders_stand_for_nothing(memory_env: PlaceholderEnvironment) -> None:
    await memory_env.meets("session")
    given = [(await memory_env.given(Listening("search_documents"), query=f"find {one}")) for one in ALTERED]
    assert dict(zip(ALTERED, given, strict=True)) == {one: {"query": f"find {one}"} for one in ALTERED}
    assert await memory_env.audited() == []


async def test_another_tenants_session_of_the_same_name_has_met_nothing_here(
    memory_env: PlaceholderEnvironment,
) -> None:
    await memory_env.meets("session", "another tenant")
    assert await memory_env.given(Listening("search_documents"), query=PLACEHOLDER) == {"query": PLACEHOLDER}
    assert await memory_env.vault.load_originals(TENANT, [PLACEHOLDER], "session") == {}


async def test_what_was_met_in_no_session_known_is_restored_for_its_owner_and_for_no_tool(
    memory_env: PlaceholderEnvironment,
) -> None:
    await memory_env.meets("")
    assert (await restore_text_from_vault(PLACEHOLDER, memory_env.vault, TENANT)).text == ADA
    assert await memory_env.given(Listening("search_documents"), query=PLACEHOLDER) == {"query": PLACEHOLDER}
    await memory_env.meets("session")
    assert await memory_env.given(Listening("search_documents"), query=PLACEHOLDER) == {"query": ADA}


@pytest.mark.parametrize("everything", [True, False])
async def test_a_session_that_is_forgotten_has_met_nothing_any_more(
    memory_env: PlaceholderEnvironment, everything: bool
) -> None:
    for session in ("session", "another session"):
        await memory_env.meets(session)
    ref = memory_env.env.ref
    await memory_env.env.store.forget_tasks(
        ForgetOrder(store_id=ref.store_id, tenant=ref.tenant, task_ids=(ref.task_id,), everything=everything)
    )
    kept = await memory_env.vault.load_originals(TENANT, [PLACEHOLDER], "session")
    assert kept == ({} if everything else {PLACEHOLDER: ADA})
    assert await memory_env.vault.load_originals(TENANT, [PLACEHOLDER], "another session") == {PLACEHOLDER: ADA}


async def test_what_is_dropped_was_met_by_no_session_when_it_comes_again_in_another(
    memory_env: PlaceholderEnvironment,
) -> None:
    await memory_env.meets("session")
    assert await memory_env.vault.delete_originals(TENANT, [PLACEHOLDER]) == 1
    await memory_env.meets("another session")
    assert await memory_env.vault.load_originals(TENANT, [PLACEHOLDER], "session") == {}
    assert await memory_env.vault.load_originals(TENANT, [PLACEHOLDER], "another session") == {PLACEHOLDER: ADA}
