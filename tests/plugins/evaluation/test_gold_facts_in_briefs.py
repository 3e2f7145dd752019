"""Of the gold facts that a researcher has noted, how many reach the writer."""

from pathlib import Path
from typing import NamedTuple

import pytest

from tests.support.agent_environment import AgentEnvironment, never_interrupted
from tests.support.agent_fixtures import open_agent_environment_copy
from waystation.agents.call_ledger import MeteredModel
from waystation.agents.leg import AgentFinished, LegRequest, TurnLimitReached
from waystation.agents.loop import AgentLoop
from waystation.agents.task_brief import PromptSpace
from waystation.documents.word_normalization import contains_phrase, normalize_words
from waystation.kernel.amount import Limit
from waystation.models.ports import ChatModel
from waystation.models.profiles import OFFLINE_MODEL
from waystation.planning.plan import build_standard_plan
from waystation.plugins.evaluation.question_sets import (
    EvaluationQuestion,
    find_question_set,
    load_evaluation_questions,
    load_question_set,
)
from waystation.plugins.offline.chat_model import create_offline_model
from waystation.tasks.task import TaskRequest

MIN_SHARE = 0.95
WINDOW, TRIGGER = 50_000, 37_500
"""Those of a writer with the default budget. The researchers have more, so that no compaction is needed."""
MAX_LEGS = 5


class FactCounts(NamedTuple):
    noted: int
    """Gold facts that stand in a note."""
    shown: int
    """Of these, those that stand in the writer's first message."""


async def research(env: AgentEnvironment, step_id: str, model: ChatModel) -> None:
    """Run the researcher of a step to its end."""
    loop = AgentLoop(
        model=MeteredModel(model=model, store=env.store, clock=env.clock, meter=env.meter),
        deps=env.agent_deps,
        briefs=env.brief_builder,
        clock=env.clock,
    )
    for leg in range(1, MAX_LEGS + 1):
        request = LegRequest(run=env.run_ref(step_id), leg=leg, limit=env.limit, config=env.terms)
        outcome = await loop.run(request, never_interrupted)
        if isinstance(outcome, AgentFinished):
            return
        assert isinstance(outcome, TurnLimitReached), outcome
    raise AssertionError(f"{step_id} of {env.task_id} did not end")


async def count_facts(env: AgentEnvironment, asked: EvaluationQuestion, model: ChatModel) -> FactCounts:
    """Run the research of a question, then compare its notes with what the writer begins with."""
    env.task_id = f"task-{asked.gold.id}"
    plan = build_standard_plan(asked.gold.question)
    request = TaskRequest(question=asked.gold.question, request_id=env.task_id)
    await env.open_task(asked.documents, plan, request)
    await research(env, "research-1", model)
    space = PromptSpace(window=WINDOW, fixed_tokens=3_000, trigger=TRIGGER)
    brief = await env.brief_builder.build_message(env.run_ref("writing"), "m1", [], space)
    notes = await env.store.list_notes(env.task_id, env.ref.scope)
    noted = [normalize_words(note.text) for note in notes]
    shown = normalize_words(brief.text)
    facts = [
        wordings
        for wordings in asked.gold.facts
        if any(contains_phrase(words, wording) for words in noted for wording in wordings)
    ]
    return FactCounts(
        len(facts), sum(any(contains_phrase(shown, wording) for wording in wordings) for wordings in facts)
    )


@pytest.mark.timeout(1_800)
async def test_gold_facts_that_a_researcher_noted_stand_in_what_the_writer_begins_with(
    prepared_stores: Path, tmp_path: Path
) -> None:
    path = find_question_set("packages")
    questions = load_evaluation_questions(load_question_set(path), path.parent, tmp_path / "documents")
    async with open_agent_environment_copy(prepared_stores / "bare.db", tmp_path) as env:
        env.terms = env.terms.replace(
            model=OFFLINE_MODEL, condense_model=OFFLINE_MODEL, window=200_000, trigger=150_000, target=75_000
        )
        env.limit = Limit(tokens=1_000_000)
        counts = [await count_facts(env, asked, create_offline_model()) for asked in questions]
    noted, shown = sum(one.noted for one in counts), sum(one.shown for one in counts)
    assert noted >= 30, "the researchers noted too little to compare"
    assert shown >= MIN_SHARE * noted, (noted, shown)
