"""Who gets how much of an agent's next request, as the client tells it from the store."""

import pytest
from inline_snapshot import snapshot

from tests.memory.test_document_indexer import PILOT, make_indexing_environment
from tests.support.agent_environment import TASK, TASK_REQUEST, AgentEnvironment, make_tool_use
from tests.support.conversations import make_filler_text
from tests.support.full_context import make_conversation, make_summary_response, run_compaction
from tests.support.scopes import SYSTEM_SCOPE
from waystation.agents.prompt_sections import PromptSection, compute_prompt_demands
from waystation.agents.tool_visibility import ToolPolicy
from waystation.cli.render_context import format_context
from waystation.client.agent_contexts import RESULT_SECTIONS, load_agent_contexts
from waystation.client.store_queries import list_agent_ids
from waystation.context.history import build_model_view
from waystation.context.tokens import TokenEstimator, estimate_request_tokens
from waystation.context.transcript import Text, build_user_message
from waystation.documents.documents import SourceDocument
from waystation.documents.procedures import ProcedureSource
from waystation.kernel.amount import Amount, Limit
from waystation.kernel.errors import BadInput
from waystation.kernel.usage import Usage
from waystation.planning.plan import build_standard_plan
from waystation.tasks.context_editor import TranscriptRewinder
from waystation.tasks.task import BudgetProgress, StepProgress, TaskPhase, TaskProgress
from waystation.tasks.view import NextPromptView, TaskView
from waystation.testing.doubles import ScriptedModel, make_scripted_response

SKILL = ProcedureSource(name="research.md", text="# How to do the research\nStart at the end.\n")
HARBOUR = SourceDocument(name="harbour.md", text=make_filler_text(400))


def progress(legs: int) -> TaskProgress:
    usage = Usage(input=1_000, cache_read=3_000, output=50)
    step = StepProgress(
        id="research-1",
        role="research",
        state="working",
        legs=legs,
        usage=usage,
        limit=Limit(tokens=9_000),
        spent=Amount(tokens=1_050),
    )
    budget = BudgetProgress(limit=Limit(tokens=9_000), spent=Amount(), reserved=Amount())
    return TaskProgress(
        task_id=TASK, phase=TaskPhase.WORKING, title="Why?", model="claude-sonnet-5-5", steps=(step,), budget=budget
    )


async def context_of(env: AgentEnvironment, legs: int = 1) -> NextPromptView:
    row = await env.store.get_task(TASK, SYSTEM_SCOPE)
    (found,) = await load_agent_contexts(
        env.store, row, TaskView.from_progress(progress(legs)), "research-1", ToolPolicy()
    )
    return found


async def worked(env: AgentEnvironment) -> None:
    """A leg with a note, a procedure, a read and a failure."""
    await env.open_task([HARBOUR], asked=TASK_REQUEST.replace(procedures=(SKILL,)))
    env.terms = env.terms.replace(turn_limit=1)
    calls = (
        make_tool_use("take_note", "c1", text="It silted up.", document="harbour.md", first_line=1, last_line=1),
        make_tool_use("read_skill", "c2", name="research"),
        make_tool_use("read_document", "c3", name="harbour.md"),
        make_tool_use("read_document", "c4", name="no.md"),
    )
    await env.run_leg(ScriptedModel([make_scripted_response(Text(text="I begin."), *calls)]))


async def test_every_token_of_a_request_is_in_one_layer(full_env: AgentEnvironment) -> None:
    await run_compaction(full_env, ScriptedModel([make_summary_response()]))
    transcript = await full_env.load_transcript()
    demands = compute_prompt_demands(transcript, TokenEstimator(fixed_tokens=2_000), RESULT_SECTIONS)
    total = sum(part.tokens for parts in demands.values() for part in parts)
    assert total == estimate_request_tokens(2_000, build_model_view(transcript))
    assert {
        PromptSection.EPISODIC,
        PromptSection.SHORT_TERM,
        PromptSection.RETRIEVED,
    } <= demands.keys()  # its tool is recall
    assert PromptSection.OBSERVATIONS not in demands


async def test_what_a_leg_leaves_is_shown_layer_by_layer(bare_env: AgentEnvironment) -> None:
    await worked(bare_env)
    found = await context_of(bare_env)
    asked = {row.section: row.requested for row in found.allocation.rows}
    assert [layer for layer, tokens in asked.items() if not tokens] == [PromptSection.EPISODIC]
    assert (found.turn, found.window, found.cached_share, found.system_known) == (2, 22_000, 0.75, True)
    assert asked[PromptSection.SYSTEM] > 1_000
    assert asked[PromptSection.OBSERVATIONS] > 200
    assert found.allocation.allocated_tokens <= found.allocation.limit == 19_800


async def test_a_status_that_was_taken_back_counts_in_no_request(bare_env: AgentEnvironment) -> None:
    await worked(bare_env)
    before = await context_of(bare_env)
    store = bare_env.store
    await TranscriptRewinder(store, bare_env.outbox_drainer, bare_env.agent_deps.submission_checker).rewind(
        bare_env.run_ref(), "m1", "edit-1", keep=True
    )
    after = await context_of(bare_env)
    asked = [
        {row.section: row.requested for row in found.allocation.rows}[PromptSection.RUNTIME]
        for found in (before, after)
    ]
    assert asked[0] > asked[1] == 0


async def test_before_its_first_leg_has_ended_an_agents_tools_are_estimated(bare_env: AgentEnvironment) -> None:
    await worked(bare_env)
    found = await context_of(bare_env, legs=0)
    (estimated,) = (row.requested for row in found.allocation.rows if row.section is PromptSection.SYSTEM)
    ended = await bare_env.store.get_leg_outcome(bare_env.run_ref().run_id, 1, SYSTEM_SCOPE)
    assert ended is not None
    assert not found.system_known
    assert estimated == ended.state.fixed_tokens
    assert "The sizes of system prompt and tools are estimates until" in format_context(found)


async def test_an_agent_that_has_not_begun_has_no_context(env: AgentEnvironment) -> None:
    assert (
        await load_agent_contexts(
            env.store,
            await env.store.get_task(TASK, SYSTEM_SCOPE),
            TaskView.from_progress(progress(0)),
            None,
            ToolPolicy(),
        )
        == ()
    )


async def test_an_unknown_agent_is_refused_with_those_that_there_are(env: AgentEnvironment) -> None:
    with pytest.raises(BadInput, match="task-1 has no agent 'cook'; it has research-1"):
        await load_agent_contexts(
            env.store,
            await env.store.get_task(TASK, SYSTEM_SCOPE),
            TaskView.from_progress(progress(0)),
            "cook",
            ToolPolicy(),
        )


async def test_what_a_task_remembers_of_its_documents_is_no_agent_of_it(bare_env: AgentEnvironment) -> None:
    store = bare_env.store
    later = await make_indexing_environment(bare_env, TASK, PILOT)
    await later.remember()
    await store.save_plan(TASK, build_standard_plan("Which pilot?"))
    assert f"{TASK}/documents/" in await store.list_run_ids(TASK, SYSTEM_SCOPE)
    agents = await list_agent_ids(store, TASK, SYSTEM_SCOPE)
    assert "writing" in agents
    assert all(not agent.endswith("/") for agent in agents)


async def test_the_table_names_share_and_rule_of_each_layer(env: AgentEnvironment) -> None:
    await env.commit_conversation([build_user_message("m1", "<task>\nWhy?\n</task>"), *make_conversation()[1:]])
    assert format_context(await context_of(env)) == snapshot("""\
research-1, turn 14: claude-sonnet-5-5, a window of 22,000 tokens
a compaction starts at 16,500 tokens; so far, 75.0% of the input was read from the cache
The sizes of system prompt and tools are estimates until the agent's first turns are stored.
The estimates leave out web tools and the tools of tool servers.
layer                share   asked     got  gave way  gives way first
system and policy      990   4,534   4,534         -  the last named
task brief             990      12      12         -  the last named
runtime state          594       0       0         -  the last named
short-term memory    3,564     273     273         -  the oldest
episodic memory      2,574       0       0         -  the oldest
semantic memory      1,782       0       0         -  what can be read again, the oldest first
procedural memory    1,386       0       0         -  the least relevant
observations         4,356       0       0         -  what can be read again, the oldest first
retrieved evidence   1,782  16,925  14,981     1,944  the least relevant
work buffer          1,782   4,000       0     4,000  the last named
all                 19,800  25,744  19,800     5,944\
""")
