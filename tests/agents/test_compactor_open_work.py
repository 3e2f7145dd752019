"""Open work in a run: what the summary's ledger says is left to do, whatever the summariser wrote."""

from tests.support.agent_environment import NAME, NAME_PLACEHOLDER, TASK, AgentEnvironment, make_tool_use
from tests.support.conversations import make_text_message
from tests.support.full_context import make_conversation, make_summary_response, run_compaction
from waystation.agents.compactor import describe_unfinished_result
from waystation.context.compaction import CompactionStatus
from waystation.context.summary import OPEN_ITEM_PREFIX, parse_ledger_entries
from waystation.testing.doubles import ScriptedModel

NOTE = {"text": "It silted up.", "document": "harbour.md", "first_line": 2, "last_line": 2}


async def open_lines(env: AgentEnvironment) -> tuple[str, ...]:
    """What the ledger of the compaction that is made now has as open."""
    outcome = await run_compaction(env, ScriptedModel([make_summary_response("It went on.")]))
    assert outcome.status is CompactionStatus.COMPRESSED
    (record,) = (await env.load_transcript()).compactions
    assert record.type == "summarised"
    return parse_ledger_entries(record.summary, OPEN_ITEM_PREFIX)


async def test_the_summary_says_that_the_result_is_not_handed_in_and_what_is_kept_for_it(
    full_env: AgentEnvironment,
) -> None:
    await full_env.call_tool(make_tool_use("take_note", "n1", **NOTE))
    assert await open_lines(full_env) == (
        "this step: its result is not submitted yet; kept so far: 1 note (read_notes shows them)",
    )


async def test_what_the_agents_own_list_has_open_is_there_redacted(env: AgentEnvironment) -> None:
    first, *turns = make_conversation()
    await env.commit_conversation(
        [first, *turns[:4], make_text_message("m6x", f"[DONE] search\n[TODO] ask {NAME}"), *turns[4:]]
    )
    assert await open_lines(env) == (
        f"[TODO] ask {NAME_PLACEHOLDER}",
        "this step: its result is not submitted yet; kept so far: nothing",
    )


async def test_a_writer_is_told_which_sections_it_has_written(env: AgentEnvironment) -> None:
    for heading in ("Causes", "Sources"):
        await env.call_tool(make_tool_use("write_section", heading=heading, markdown="Silt."), "writing")
    assert describe_unfinished_result(*await env.store.load_work(f"{TASK}/writing", env.ref.scope)) == (
        "this step: its result is not submitted yet; kept so far: sections “Causes”, “Sources”"
    )
