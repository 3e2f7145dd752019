"""Who gets how much of an agent's next request, as the client tells it from the store."""

import pytest
from inline_snapshot import snapshot

from tests.agents.full_context import compressed, conversation, summary
from tests.agents.office import ASKED, TASK, Office, use
from tests.agents.test_librarian import PILOT, shelf
from tests.readers import ANYONE
from tests.unit.histories import prose
from waystation.agents.prompt_sections import PromptSection, compute_prompt_demands
from waystation.agents.tool_visibility import ToolPolicy
from waystation.cli.render_context import context_text
from waystation.client.context import RESULT_LAYERS, load_agent_contexts
from waystation.client.lookups import list_agent_ids
from waystation.context.history import build_model_view
from waystation.context.tokens import TokenEstimator, estimate_request_tokens
from waystation.context.transcript import Text, build_user_message
from waystation.documents.documents import SourceDocument
from waystation.documents.procedures import ProcedureSource
from waystation.kernel.amount import Amount, Limit
from waystation.kernel.errors import BadInput
from waystation.kernel.usage import Usage
from waystation.planning.plan import standard_plan
from waystation.tasks.context_editor import Rewinder
from waystation.tasks.task import BudgetProgress, StepProgress, TaskPhase, TaskProgress
from waystation.tasks.view import AgentContext
from waystation.testing import ScriptedModel, make_scripted_response

SKILL = ProcedureSource(name="research.md", text="# How to do the research\nStart at the end.\n")
HARBOUR = SourceDocument(name="harbour.md", text=prose(400))


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


async def context_of(office: Office, legs: int = 1) -> AgentContext:
    row = await office.store.task(TASK, ANYONE)
    (found,) = await load_agent_contexts(office.store, row, progress(legs), "research-1", ToolPolicy())
    return found


async def worked(office: Office) -> None:
    """A leg with a note, a procedure, a read and a failure."""
    await office.open_task([HARBOUR], asked=ASKED.replace(procedures=(SKILL,)))
    office.terms = office.terms.replace(turn_limit=1)
    calls = (
        use("take_note", "c1", text="It silted up.", document="harbour.md", first_line=1, last_line=1),
        use("read_skill", "c2", name="research"),
        use("read_document", "c3", name="harbour.md"),
        use("read_document", "c4", name="no.md"),
    )
    await office.leg(ScriptedModel([make_scripted_response(Text(text="I begin."), *calls)]))


async def test_every_token_of_a_request_is_in_one_layer(full: Office) -> None:
    await compressed(full, ScriptedModel([summary()]))
    transcript = await full.transcript()
    demands = compute_prompt_demands(transcript, TokenEstimator(fixed=2_000), RESULT_LAYERS)
    total = sum(part.tokens for parts in demands.values() for part in parts)
    assert total == estimate_request_tokens(2_000, build_model_view(transcript))
    assert {
        PromptSection.EPISODIC,
        PromptSection.SHORT_TERM,
        PromptSection.RETRIEVED,
    } <= demands.keys()  # its tool is recall
    assert PromptSection.OBSERVATIONS not in demands


async def test_what_a_leg_leaves_is_shown_layer_by_layer(bare_office: Office) -> None:
    await worked(bare_office)
    found = await context_of(bare_office)
    asked = {row.layer: row.asked for row in found.allocation.rows}
    assert [layer for layer, tokens in asked.items() if not tokens] == [PromptSection.EPISODIC]
    assert (found.turn, found.window, found.cached_share, found.system_known) == (2, 20_000, 0.75, True)
    assert asked[PromptSection.SYSTEM] > 1_000
    assert asked[PromptSection.OBSERVATIONS] > 200
    assert found.allocation.got <= found.allocation.limit == 18_000


async def test_a_status_that_was_taken_back_counts_in_no_request(bare_office: Office) -> None:
    await worked(bare_office)
    before = await context_of(bare_office)
    store = bare_office.store
    await Rewinder(store, bare_office.archive).rewind(bare_office.run_ref(), "m1", "edit-1", keep=True)
    after = await context_of(bare_office)
    asked = [
        {row.layer: row.asked for row in found.allocation.rows}[PromptSection.RUNTIME] for found in (before, after)
    ]
    assert asked[0] > asked[1] == 0


async def test_before_its_first_leg_has_ended_an_agents_tools_are_estimated(bare_office: Office) -> None:
    await worked(bare_office)
    found = await context_of(bare_office, legs=0)
    (estimated,) = (row.asked for row in found.allocation.rows if row.layer is PromptSection.SYSTEM)
    ended = await bare_office.store.outcome(bare_office.run_ref().run_id, 1, ANYONE)
    assert ended is not None
    assert not found.system_known
    assert estimated == ended.standing.fixed
    assert "System prompt and tools are estimated, without tools of the web" in context_text(found)


async def test_an_agent_that_has_not_begun_has_no_context(office: Office) -> None:
    assert (
        await load_agent_contexts(office.store, await office.store.task(TASK, ANYONE), progress(0), None, ToolPolicy())
        == ()
    )


async def test_an_unknown_agent_is_refused_with_those_that_there_are(office: Office) -> None:
    with pytest.raises(BadInput, match="task-1 has no agent 'cook'; it has research-1"):
        await load_agent_contexts(
            office.store, await office.store.task(TASK, ANYONE), progress(0), "cook", ToolPolicy()
        )


async def test_what_a_task_remembers_of_its_documents_is_no_agent_of_it(bare_office: Office) -> None:
    store = bare_office.store
    later = await shelf(bare_office, TASK, PILOT)
    await later.remember()
    await store.save_plan(TASK, standard_plan("Which pilot?"))
    assert f"{TASK}/documents/" in await store.run_ids(TASK, ANYONE)
    agents = await list_agent_ids(store, TASK, ANYONE)
    assert "writing" in agents
    assert all(not agent.endswith("/") for agent in agents)


async def test_the_table_names_share_and_rule_of_each_layer(office: Office) -> None:
    await office.said([build_user_message("m1", "<task>\nWhy?\n</task>"), *conversation()[1:]])
    assert context_text(await context_of(office)) == snapshot("""\
research-1, turn 14: claude-sonnet-5-5, a window of 20,000 tokens
full from 15,000 on; 75.0% of its input so far was read from the cache
System prompt and tools are estimated, without tools of the web and of servers, until a leg has ended.
layer                share   asked     got  gave way  gives way first
system and policy      900   2,814   2,814         -  the last named
task contract          900      12      12         -  the last named
runtime state          540       0       0         -  the last named
short-term memory    3,240     273     273         -  the oldest
episodic memory      2,340       0       0         -  the oldest
semantic memory      1,620       0       0         -  what can be read again, the oldest first
procedural memory    1,260       0       0         -  the least relevant
observations         3,960       0       0         -  what can be read again, the oldest first
retrieved evidence   1,620  16,925  14,901     2,024  the least relevant
work buffer          1,620   4,000       0     4,000  the last named
all                 18,000  24,024  18,000     6,024\
""")
