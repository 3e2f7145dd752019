"""The mutations, and the tests that must notice each: one row for each line that a promise of the platform
depends on.
"""

from typing import NamedTuple


class Mutation(NamedTuple):
    """One change that makes the platform break a promise."""

    area: str
    broken: str
    """What does not hold any more."""
    place: str
    """The file that has the line; or a folder, in which it stands once."""
    old: str
    new: str
    tests: tuple[str, ...]
    """The cheapest that are to fail."""


STORE, WEB, AGENTS = "waystation/store", "waystation/documents/web.py", "waystation/agents"
CODEC, KEYS, QDRANT = (
    "waystation/runtime/temporal/codec.py",
    "waystation/privacy/keys.py",
    "waystation/memory/qdrant",
)
VALIDATOR = "waystation/context/summary_validator.py"
LEDGER = ("tests/budgets/test_budget_account.py",)
SESSION = ("tests/tasks/test_session_state.py",)
CRASHES = ("tests/tasks/test_budget_crash_recovery.py",)
TRANSCRIPTS = ("tests/agents/test_run_repository.py",)
GATE = ("tests/context/test_summary_validator.py",)
CITATIONS = ("tests/documents/test_citations.py",)
APPROVALS = ("tests/tasks/test_approvals.py", "tests/tasks/test_approval_amounts.py")
OWNERSHIP = ("tests/attacks/test_attacks_ownership.py",)
HOSTILE_SITES = ("tests/attacks/test_attacks_web.py",)
PRIVATE_ADDRESSES = ("tests/documents/test_web_private_addresses.py",)
PAYLOADS = ("tests/runtime/test_temporal_codec.py", "tests/attacks/test_attacks_payloads.py")
LIVE = "tests/live"

MUTATIONS = (
    # ---------------------------------------------------------------------------------------------------- ledger
    Mutation(
        "ledger", "reservations pass the limit", "waystation/budgets/budget.py",
        "if not left.can_cover(amount):", "if False:", LEDGER,
    ),
    Mutation(
        "ledger", "a child settles again", "waystation/budgets/budget.py",
        "        if child not in self.reserved:\n            return self\n", "", LEDGER,
    ),
    Mutation(
        "ledger", "what is held counts as free", "waystation/budgets/budget.py",
        "self.limit.remaining_after(self.spent + self.total_reserved)", "self.limit.remaining_after(self.spent)",
        LEDGER,
    ),
    Mutation(
        "ledger", "no limit is a permission to draw", "waystation/budgets/budget.py",
        "drawn = amount.min_with(self.unreserved.amount)", "drawn = amount", LEDGER,
    ),
    Mutation(
        "ledger", "a grant is not held for its child", "waystation/budgets/budget.py",
        "self.grant(amount)._holding(child, amount)", "self.grant(amount)", LEDGER,
    ),
    Mutation(
        "ledger", "more is carved than there is", "waystation/budgets/budget.py",
        "carved = amount.min_with(self.reserved.get(parent, Amount()))", "carved = amount", LEDGER,
    ),
    Mutation(
        "ledger", "cache writes are free", "waystation/kernel/usage.py",
        "self.input + self.cache_write + self.output", "self.input + self.output", ("tests/budgets/test_run_usage.py",),
    ),
    Mutation(
        "ledger", "calls without a reply cost nothing", "waystation/budgets/budget.py",
        "tokens=self.usage.fresh + self.possibly_billed", "tokens=self.usage.fresh",
        ("tests/budgets/test_run_usage.py", *TRANSCRIPTS),
    ),
    Mutation(
        "ledger", "an unknown price is no price", "waystation/budgets/budget.py",
        "None if None in costs else sum", "sum", ("tests/tasks/test_task_state.py",),
    ),
    Mutation(
        "ledger", "a charge counts once for each attempt", "waystation/agents/run_repository.py",
        "    if not await insert_if_absent(connection, charges, row):\n        return False\n",
        "    await insert_if_absent(connection, charges, row)\n", TRANSCRIPTS,
    ),
    Mutation(
        "ledger", "an ask is answered with money again", "waystation/tasks",
        "    if ask.request_id in state.answered:\n        return state, None\n", "", CRASHES,
    ),
    Mutation(
        "ledger", "a task that is over is given money", "waystation/tasks/session.py",
        " and ask.task_id in account.reserved:", ":", SESSION,
    ),
    Mutation(
        "ledger", "an answer of the session raises its task again", "waystation/tasks/state.py",
        "answer.request_id in self.answered_session_requests", "False", ("tests/tasks/test_task_state.py",),
    ),
    Mutation(
        "ledger", "the bound of a request forgets its messages", "waystation/context/tokens.py",
        "PART_OVERHEAD * (1 + len(message.blocks))", "PART_OVERHEAD * len(message.blocks)",
        ("tests/context/test_token_estimates.py",),
    ),
    Mutation(
        "ledger", "a reply may pass what is left", "waystation/budgets/budget.py",
        "room = min(room, remaining.tokens - self.input_tokens)", "room = min(room, remaining.tokens)",
        ("tests/budgets/test_allowance.py",),
    ),
    Mutation(
        "ledger", "subagents hold more than their share together", AGENTS,
        "self._terms.max_concurrent and self._percent + percent <= most:", "self._terms.max_concurrent:",
        ("tests/agents/test_delegate_tool.py",),
    ),
    # ---------------------------------------------------------------------------------------------------- fences
    Mutation(
        "fences", "an older fence holds", "waystation/agents/run_repository.py",
        "runs.c.fence == bindparam(\"held\")", "runs.c.fence >= bindparam(\"held\")",
        TRANSCRIPTS,
    ),
    Mutation(
        "fences", "taking a run over changes nothing", "waystation/agents/run_repository.py",
        "values(fence=runs.c.fence + 1)", "values(fence=runs.c.fence)", TRANSCRIPTS,
    ),
    Mutation(
        "fences", "a commit on an old version is taken", "waystation/agents/run_repository.py",
        "runs.c.version == bindparam(\"known\")", "runs.c.version >= bindparam(\"known\")", TRANSCRIPTS,
    ),
    Mutation(
        "fences", "an intent needs no fence", "waystation/agents/run_repository.py",
        "        await lock_run(connection, fence)\n        return await self._add_intent",
        "        return await self._add_intent", TRANSCRIPTS,
    ),
    Mutation(
        "fences", "an intent without new messages needs no fence", "waystation/agents/run_repository.py",
        "        else:\n            await lock_run(connection, fence)\n        return 0", "        return 0",
        TRANSCRIPTS,
    ),
    Mutation(
        "fences", "an outcome needs no fence", "waystation/agents/run_repository.py",
        "        await lock_run(connection, fence)\n        await delete_partial_reply(connection, fence.run_id)\n"
        "        if await insert_if_absent(connection, outcomes",
        "        await delete_partial_reply(connection, fence.run_id)\n"
        "        if await insert_if_absent(connection, outcomes", TRANSCRIPTS,
    ),
    Mutation(
        "fences", "a tool that must not be repeated is", "waystation/agents/run_repository.py",
        "        return await insert_if_absent(connection, tool_intents, row)",
        "        await insert_if_absent(connection, tool_intents, row)\n        return True", TRANSCRIPTS,
    ),
    Mutation(
        "fences", "a lost subagent writes on", "workflows",
        "LedgerActivities.take_over_run", "LedgerActivities.read_run_totals",
        (f"{LIVE}/test_live_delegation.py::test_a_subagent_whose_workflow_somebody_terminates_delivers_what_it_has",),
    ),
    # ------------------------------------------------------------------------------------------------- workflows
    Mutation(
        "workflows", "a task continues as new while an agent works", "workflows",
        "_pending and self._runners.is_empty and not", "_pending and not",
        (f"{LIVE}/test_live_legs.py::test_a_task_continues_as_new_only_when_every_agent_is_back",),
    ),
    Mutation(
        "workflows", "a task that is being started is taken for dead", "workflows",
        "in self._state.open_tasks if task_id not in self._starting]", "in self._state.open_tasks]",
        (f"{LIVE}/test_live_admission.py",),
    ),
    # ------------------------------------------------------------------------------------------------------ gate
    Mutation(
        "gate", "a summary may be as long as what it stands for", VALIDATOR,
        "< draft.middle.tokens", "<= draft.middle.tokens", GATE,
    ),
    Mutation(
        "gate", "a blank summary passes", VALIDATOR, "    SummaryRule.EMPTY: _empty,\n", "", GATE,
    ),
    Mutation(
        "gate", "a refusal passes for a summary", VALIDATOR,
        "    SummaryRule.ERROR_TEXT: _error_text,\n", "", GATE,
    ),
    Mutation(
        "gate", "what is pinned is hidden", VALIDATOR, "    SummaryRule.PINS: _pins,\n", "", GATE,
    ),
    Mutation(
        "gate", "demands of the user are dropped", VALIDATOR,
        "replaced, needed, lost)", "replaced, lost)", GATE,
    ),
    Mutation(
        "gate", "words that the user never said stay", VALIDATOR,
        "remove_invented_quotations(_plain(summary), replaced.user_texts)",
        "remove_invented_quotations(_plain(summary), (summary,))", GATE,
    ),
    # ------------------------------------------------------------------------------------------------- redaction
    Mutation(
        "redaction", "a contract goes out as it was written", "waystation/agents/task_brief.py",
        "build_user_message(message_id, redacted.text)", "build_user_message(message_id, parts.text(room))",
        ("tests/agents/test_task_brief.py",),
    ),
    Mutation(
        "redaction", "what a model said is kept as it is", f"{AGENTS}/redaction.py",
        "block.replace(text=next(said))", "block.replace(text=block.text)", ("tests/agents/test_reply_redaction.py",),
    ),
    Mutation(
        "redaction", "arguments of calls are kept as they are", f"{AGENTS}/redaction.py",
        "lambda _: next(given)", "lambda text: text", ("tests/agents/test_reply_redaction.py",),
    ),
    Mutation(
        "redaction", "a summary is kept as the model wrote it", f"{AGENTS}/summariser.py",
        '"" if redacted.redaction_failed else redacted.text', '"" if redacted.unredacted else text',
        ("tests/agents/test_summariser.py",),
    ),
    Mutation(
        "redaction", "results of foreign tools pass", f"{AGENTS}/tools/tool.py",
        "redact([result.text], TextDestination.TOOL_RESULT", 'redact([""], TextDestination.TOOL_RESULT',
        ("tests/agents/test_untrusted_tool.py",),
    ),
    Mutation(
        "redaction", "memory is asked with private words", "waystation/memory/indexing.py",
        "redact([query.text], TextDestination.QUERY", 'redact([""], TextDestination.QUERY',
        ("tests/memory/test_document_indexer.py",),
    ),
    Mutation(
        "redaction", "a text goes on before its last attempt", f"{AGENTS}/redaction.py",
        "if self.current_attempt() < self.max_attempts:", "if False:", ("tests/agents/test_redaction_timeouts.py",),
    ),
    Mutation(
        "redaction", "what could not be kept goes on", f"{AGENTS}/redaction.py",
        'raise RedactionFailed(\n                    f"nothing is sent, because the originals of '
        'placeholders cannot be stored: {error}"\n                ) from error',
        "return settled", ("tests/privacy/test_vault.py",),
    ),
    # --------------------------------------------------------------------------------------------------- tenants
    Mutation(
        "tenants", "a tenant reads what all have", f"{STORE}/engine.py",
        "            return table.c.tenant == reader.tenant\n", "            return true()\n", OWNERSHIP,
    ),
    Mutation(
        "tenants", "a session reads what its tenant has", f"{STORE}/engine.py",
        "return and_(table.c.tenant == reader.tenant, table.c.session == reader.session)",
        "return table.c.tenant == reader.tenant", OWNERSHIP,
    ),
    Mutation(
        "tenants", "a task reads what its session has", f"{STORE}/engine.py",
        "return and_(*own, table.c.task_id == reader.task_id)", "return and_(*own)", OWNERSHIP,
    ),
    Mutation(
        "tenants", "a content hash is a capability", "waystation/documents/text_repository.py",
        'owned.where(text_owners.c.blob == bindparam("blob"), build_bound_owner_filter(text_owners, kind))',
        'owned.where(text_owners.c.blob == bindparam("blob"))',
        OWNERSHIP,
    ),
    Mutation(
        "tenants", "a redacted text is stored for a tenant without the original",
        "waystation/documents/text_repository.py",
        "where(text_owners.c.blob == blob, build_owner_filter(text_owners, reader))",
        "where(text_owners.c.blob == blob)",
        ("tests/erasure/test_removal_repository.py",),
    ),
    Mutation(
        "tenants", "a session reads what its tenant has, in a prepared statement", f"{STORE}/engine.py",
        'for name in ("tenant", "session", "task_id") if name in kind.model_fields',
        'for name in ("tenant",) if name in kind.model_fields',
        OWNERSHIP,
    ),
    Mutation(
        "tenants", "an original opens for another tenant", "waystation/privacy/vault_repository.py",
        'f"{tenant}\\x00{placeholder}"', 'f"\\x00{placeholder}"', ("tests/privacy/test_vault.py",),
    ),
    Mutation(
        "tenants", "placeholders are restored for every tenant", "waystation/privacy/vault_repository.py",
        "return vault.c.tenant == tenant, vault", "return true(), vault", ("tests/privacy/test_vault.py",),
    ),
    Mutation(
        "tenants", "two tenants have one task", "waystation/tasks/task.py",
        "'task', request.tenant, request.session", "'task', request.session", ("tests/tasks/test_task_ids.py",),
    ),
    Mutation(
        "tenants", "two tenants have one session", "waystation/tasks/task.py",
        'short_hash("session", tenant, session)', 'short_hash("session", session)', ("tests/tasks/test_task_ids.py",),
    ),
    Mutation(
        "tenants", "memory finds what others have", f"{QDRANT}/edge.py",
        "return qe.Filter(must=[*must], must_not=[*without])", "return qe.Filter(must_not=[*without])",
        ("tests/memory/test_qdrant_memory_contract.py",),
    ),
    # ------------------------------------------------------------------------------------------------- approvals
    Mutation(
        "approvals", "a request is answered again", "waystation/tasks/approvals.py",
        'if approval.decision != "pending":', "if False:", APPROVALS,
    ),
    Mutation(
        "approvals", "a task that is ending takes answers", "waystation/tasks/approvals.py",
        "    if approval_context.ending:\n", "    if False:\n", APPROVALS,
    ),
    Mutation(
        "approvals", "a grant passes the ceiling", "waystation/tasks/approvals.py",
        "    _stay_under(approval_context, granted)\n", "", APPROVALS,
    ),
    Mutation(
        "approvals", "what was authorised in advance passes the ceiling", "waystation/tasks/approvals.py",
        "if not approval_context.ceiling.can_cover(approval_context.limit.increase_by(top_up.amount).amount):",
        "if False:",
        ("tests/tasks/test_unattended_approvals.py",),
    ),
    Mutation(
        "approvals", "what was authorised in advance is never used up", "waystation/tasks/approvals.py",
        "used >= top_up.times", "used > top_up.times", ("tests/tasks/test_unattended_approvals.py",),
    ),
    Mutation(
        "approvals", "a call is approved that nobody named", "waystation/tasks/approvals.py",
        "    if message.request_id is None:\n        raise ValueError(f\"{asks}: look at the call",
        "    if False:\n        raise ValueError(f\"{asks}: look at the call",
        ("tests/tasks/test_tool_approval_requests.py", *APPROVALS),
    ),
    Mutation(
        "approvals", "anybody answers as what was authorised in advance", "waystation/tasks/approvals.py",
        "if by.strip().lower() == AUTHORISED_IN_ADVANCE:", "if False:", APPROVALS,
    ),
    # ------------------------------------------------------------------------------------------------- citations
    Mutation(
        "citations", "lines that are not there are cited", "waystation/documents/citations.py",
        "if not 1 <= citation.first_line <= citation.last_line <= len(document):",
        "if not 1 <= citation.first_line <= citation.last_line:", CITATIONS,
    ),
    Mutation(
        "citations", "words that do not stand there are quoted", "waystation/documents/citations.py",
        "if not all(part.words in text for part in self.parts):\n            return False",
        "if not all(part.words in text for part in self.parts):\n            return True", CITATIONS,
    ),
    Mutation(
        "citations", "a document that is not there is cited", "waystation/documents/citations.py",
        "        return NO_SUCH_DOCUMENT\n", "        return None\n", CITATIONS,
    ),
    Mutation(
        "citations", "a placeholder stands for whole pages", "waystation/documents/citations.py",
        "placeholders * (MAX_PLACEHOLDER_GAP - 1)", "placeholders * 10_000", CITATIONS,
    ),
    Mutation(
        "citations", "a citation that holds is called outdated", "waystation/agents/citation_checker.py",
        "if reason and citation.document in meant]", "if citation.document in meant]",
        ("tests/agents/test_document_change_notices.py",),
    ),
    # ------------------------------------------------------------------------------------------------- addresses
    Mutation(
        "addresses", "private addresses are connected to", "waystation/documents/web.py",
        "            raise NonPublicAddressError\n", "            pass\n", PRIVATE_ADDRESSES,
    ),
    Mutation(
        "addresses", "an address of IPv6 hides one of IPv4", "waystation/documents/web.py",
        "        return IPv4Address(int(address) & 0xFFFFFFFF)\n", "        return address\n", PRIVATE_ADDRESSES,
    ),
    Mutation(
        "addresses", "mapped addresses are taken as they are", "waystation/documents/web.py",
        "return address.ipv4_mapped or address.sixtofour or address", "return address", PRIVATE_ADDRESSES,
    ),
    Mutation(
        "addresses", "a cloud's metadata is read", "waystation/documents/web.py",
        '    ip_network("168.63.129.16/32"),', "   ", PRIVATE_ADDRESSES,
    ),
    Mutation(
        "addresses", "relays of 6to4 are public", "waystation/documents/web.py",
        '    ip_network("192.88.99.0/24"),', "   ", HOSTILE_SITES,
    ),
    Mutation(
        "addresses", "documentation addresses are public", "waystation/documents/web.py",
        '    ip_network("3fff::/20"),', "   ", HOSTILE_SITES,
    ),
    Mutation(
        "addresses", "a proxy of the environment connects for us", "waystation/documents/web.py",
        "trust_env=False", "trust_env=True", HOSTILE_SITES,
    ),
    Mutation(
        "addresses", "redirects are followed by the library", "waystation/documents/web.py",
        "async with self._session.get(URL(address.url), allow_redirects=False) as answer:\n"
        "                if answer.status in _REDIRECTS:",
        "async with self._session.get(URL(address.url), allow_redirects=True) as answer:\n"
        "                if answer.status in _REDIRECTS:",
        ("tests/documents/test_web_fetch.py",),
    ),
    Mutation(
        "addresses", "a site whose rules fail is read", "waystation/documents/web.py",
        "if answer.status >= 500:", "if answer.status > 500:", HOSTILE_SITES,
    ),
    # ----------------------------------------------------------------------------------------------------- codec
    Mutation(
        "codec", "payloads go out plain", CODEC, "        if self._own is None:\n", "        if True:\n", PAYLOADS,
    ),
    Mutation(
        "codec", "a payload opens in another workflow", CODEC,
        "if whose is not None and self._workflow is not None and whose != self._workflow:", "if False:", PAYLOADS,
    ),
    Mutation(
        "codec", "a payload is bound to no workflow", CODEC,
        'UNBOUND if workflow is None else UNBOUND + b"\\x00" + workflow', "UNBOUND", PAYLOADS,
    ),
    Mutation(
        "codec", "whoever sends a mark passes for encrypted", CODEC,
        "    marked.metadata.pop(OPENED, None)\n", "",
        ("tests/attacks/test_attacks_local_users.py::test_who_sends_our_mark_with_a_payload_has_not_sealed_it",),
    ),
    Mutation(
        "codec", "what is sealed opens anywhere", KEYS,
        'b"\\x00".join((self._header, self._purpose, context))', 'b"\\x00".join((self._header, self._purpose))',
        ("tests/privacy/test_keys.py", "tests/privacy/test_vault.py"),
    ),
    Mutation(
        "codec", "a text opens in another row", f"{STORE}/encryption.py",
        'f"{place}\\x00{row}"', 'f"{place}\\x00"', ("tests/attacks/test_attacks_encrypted_rows.py",),
    ),
    Mutation(
        "codec", "plain texts are read in a sealed store", f"{STORE}/encryption.py",
        "    if at_rest.strict:\n        raise StoreError(\n            f\"a value in {place} is not",
        "    if False:\n        raise StoreError(\n            f\"a value in {place} is not",
        ("tests/attacks/test_attacks_encrypted_rows.py",),
    ),
    Mutation(
        "codec", "bytes are encrypted although encryption is off", f"{STORE}/encryption.py",
        "if not value or not at_rest.encrypts or at_rest.cipher is None:", "if not value or at_rest.cipher is None:",
        ("tests/store/test_store_encryption.py", "tests/attacks/test_attacks_encrypted_rows.py"),
    ),
)  # fmt: skip
