"""A model judges the cited sentences that code cannot decide."""

import pytest
from pydantic import JsonValue

from tests.reports.test_publisher import PROGRESS, publish_report
from tests.support.agent_environment import SECRET, SECRET_PLACEHOLDER, TASK, AgentEnvironment, make_tool_use
from tests.support.scopes import SYSTEM_SCOPE
from waystation.agents.deliverables import ReportDraft, ReportSection
from waystation.budgets.budget import RunUsage
from waystation.documents.support_verdicts import SupportVerdict
from waystation.kernel.amount import Limit
from waystation.models.ports import ModelResponse
from waystation.planning.plan import SentenceJudgement
from waystation.reports.cited_sentences import extract_cited_sentences
from waystation.reports.sentence_judge import (
    JUDGED_REMARK,
    MAX_JUDGED_SENTENCES,
    JudgedSentenceList,
    SentenceJudge,
)
from waystation.tasks.reviews import JudgeRequest, JudgeResult
from waystation.testing.doubles import ScriptedModel, make_scripted_response

SUPPORTED = "It silted up within ten years [harbour.md:2-2]."
UNDECIDED = ("Silt closed it [harbour.md:2-2].", "It silted up soon [harbour.md:1-2].")
DRAFT = ReportDraft(title="T", summary=" ".join([SUPPORTED, *UNDECIDED]))


def verdict(number: int, found: str, reason: str = "") -> dict[str, JsonValue]:
    return {"number": number, "verdict": found, "reason": reason}


def judged(*verdicts: dict[str, JsonValue]) -> ModelResponse:
    return make_scripted_response(make_tool_use("judge_sentences", "j1", verdicts=list(verdicts)))


BOTH = judged(verdict(1, "not_supported", f"They say nothing of closing, and {SECRET}."), verdict(2, "supported"))


async def judge(env: AgentEnvironment, model: ScriptedModel, *, limit: int = 60_000) -> JudgeResult:
    env.model = model
    asked = SentenceJudge(env.metered_model, env.store, env.redactor, env.publisher.check)
    return await asked.judge(JudgeRequest(ref=env.ref, number=1, model="small", limit=Limit(tokens=limit)))


async def submit(env: AgentEnvironment, draft: ReportDraft = DRAFT) -> None:
    await env.store.commit_deliverable((await env.make_tool_context("writing")).fence, TASK, draft)


async def test_only_what_code_cannot_decide_is_judged_with_its_lines_and_the_cost_has_its_own_line(
    env: AgentEnvironment,
) -> None:
    await submit(
        env, DRAFT.replace(summary=f"{DRAFT.summary} Her key is {SECRET_PLACEHOLDER} since then [keeper.md:2-2].")
    )
    model = ScriptedModel([judged(*(verdict(number, "cannot_tell") for number in (3, 2, 1)))])
    made = await judge(env, model)
    assert made.judgement.replace(verdicts_hash=None) == SentenceJudgement(number=1, undecided=3)
    (opening,) = [request.messages[0].text for request in model.requests]
    assert "1. Silt closed it\n   [harbour.md:2-2] It silted up within ten years.\n2. It silted up soon\n" in opening
    assert "1811" in opening
    assert "<question>\nWhy did it silt up?\n</question>" in opening
    assert ". It silted up within ten years\n" not in opening
    assert SECRET_PLACEHOLDER in opening
    assert SECRET not in opening
    totals = (await env.store.list_task_charges(TASK, SYSTEM_SCOPE)).cost_breakdown
    assert [(line.agent, line.kind, line.calls) for line in totals.lines] == [("judge-1", "review", 1)]


async def test_the_report_marks_what_the_model_found_and_says_that_it_decided(env: AgentEnvironment) -> None:
    await submit(env)
    made = await judge(env, ScriptedModel([BOTH]))
    _, before = await publish_report(env)
    outcome, report = await publish_report(env, PROGRESS.replace(judgements=(made.judgement,)))
    assert before.count("°") == 3, "two marks, and their explanation"
    assert "2 could not be decided" in before
    assert "Silt closed it [harbour.md:2-2]⁽¹⁾." in report
    assert "of 3 cited sentences with the cited lines: 2 are supported, 1 is not (marked in the text). " in report
    assert "Of the 3 sentences, a model decided 2, because code could not." in report
    assert f"{JUDGED_REMARK}They say nothing of closing" in report
    assert SECRET not in report
    assert "- Judgement 1 by a model, of 2 cited sentences that code could not decide: 1 supported" in report
    assert outcome.partial_reason == "", "only a missing figure, date or name makes a report partial"
    assert [one.verdict for one in extract_cited_sentences(report)] == [
        SupportVerdict.SUPPORTED,
        SupportVerdict.NOT_SUPPORTED,
        SupportVerdict.SUPPORTED,
    ]


async def test_a_verdict_holds_for_exactly_the_judged_words(env: AgentEnvironment) -> None:
    await submit(env)
    made = await judge(env, ScriptedModel([BOTH]))
    changed = (UNDECIDED[0].replace("closed", "shut"), UNDECIDED[1].replace("1-2", "2-2"))
    await submit(env, DRAFT.replace(summary=" ".join([SUPPORTED, *changed])))
    _, report = await publish_report(env, PROGRESS.replace(judgements=(made.judgement,)))
    assert "2 could not be decided" in report
    assert "a model decided" not in report


async def test_a_retry_asks_no_model_again(env: AgentEnvironment) -> None:
    await submit(env)
    first = await judge(env, ScriptedModel([BOTH]))
    silent = ScriptedModel([])
    assert await judge(env, silent) == first
    assert not silent.requests


@pytest.mark.parametrize("unusable", [judged(verdict(1, "supported")), judged(*[verdict(1, "supported")] * 2)])
async def test_an_answer_without_each_sentence_is_corrected_once(
    env: AgentEnvironment, unusable: ModelResponse
) -> None:
    await submit(env)
    model = ScriptedModel([unusable, BOTH])
    made = await judge(env, model)
    assert (made.judgement.supported, made.judgement.unsupported, made.notes) == (1, 1, ())
    refused = model.requests[1].messages[-1].tool_results[0].content
    assert "give exactly one verdict for each sentence from 1 to 2" in refused
    again = await judge(env, ScriptedModel([]))
    assert again == made


async def test_without_an_answer_the_sentences_stay_undecided_and_a_note_says_so(env: AgentEnvironment) -> None:
    await submit(env)
    model = ScriptedModel([])
    made = await judge(env, model, limit=200)
    assert (made.judgement, made.totals) == (SentenceJudgement(number=1, undecided=2), RunUsage())
    assert made.notes == ("The budget was too small for a model to judge cited sentences, so only code checked them.",)
    assert not model.requests


async def test_no_model_is_asked_if_code_has_decided_everything(env: AgentEnvironment) -> None:
    await submit(env, ReportDraft(title="T", summary=SUPPORTED))
    model = ScriptedModel([])
    made = await judge(env, model)
    assert (made.judgement, made.notes, model.requests) == (SentenceJudgement(number=1), (), [])
    assert made.judgement.text == "Judgement 1 was not needed: code decided every cited sentence."


async def test_the_sentences_above_the_maximum_stay_undecided(env: AgentEnvironment) -> None:
    markdown = " ".join([UNDECIDED[0]] * (MAX_JUDGED_SENTENCES + 10))
    await submit(env, ReportDraft(title="T", summary="", sections=(ReportSection(heading="H", markdown=markdown),)))
    answer = judged(*(verdict(number, "supported") for number in range(1, MAX_JUDGED_SENTENCES + 1)))
    made = await judge(env, ScriptedModel([answer]))
    assert (made.judgement.supported, made.judgement.undecided) == (MAX_JUDGED_SENTENCES, 10)
    kept = JudgedSentenceList.model_validate_json(
        await env.store.get_text(str(made.judgement.verdicts_hash), SYSTEM_SCOPE)
    )
    assert len(kept.sentences) == MAX_JUDGED_SENTENCES


async def test_a_sentence_that_would_be_shown_in_part_is_not_judged(env: AgentEnvironment) -> None:
    long = f"It silted up {'soon ' * 200}and sank ships [harbour.md:1-2]."
    await submit(env, ReportDraft(title="T", summary=long))
    model = ScriptedModel([])
    made = await judge(env, model)
    assert (made.judgement.supported, made.judgement.unsupported, model.requests) == (0, 0, [])
