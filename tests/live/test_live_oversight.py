"""The plan is revised after the research, and the report reviewed: within bounds, once, and whatever happens."""

from pathlib import Path

import pytest
from temporalio.client import Client

from tests.support.agent_environment import without_statuses
from tests.support.oversight_model import (
    ADD_STEP_CALL,
    FAIL_REVIEW_CALL,
    INVALID_REVISION_CALL,
    KEEP_PLAN_CALL,
    PASS_REVIEW_CALL,
    OversightTaskModel,
    with_oversight,
)
from tests.support.scopes import SYSTEM_SCOPE
from tests.support.task_model import CALL_TOKENS, WORK_TOKENS, ModelCall, ScriptedCall, make_task_config
from tests.support.temporal_platform import TaskSubmitter, run_platform, start_dev_server, wait_until
from waystation.budgets.budget import BudgetMode
from waystation.kernel.errors import ModelRejected, ModelUnavailable
from waystation.privacy.ports import Redactor
from waystation.tasks.approvals import APPROVE_BUDGET, DENY_BUDGET, REVIEW_PLAN
from waystation.tasks.signals import ContextEditInput
from waystation.tasks.task import TaskPhase, TaskProgress
from waystation.workflows.session import SessionWorkflow
from waystation.workflows.task import TaskWorkflow

RESEARCH_CALLS = 7


async def done(counter: TaskSubmitter) -> tuple[TaskProgress, str]:
    """How the task ended, and its report."""
    ended = await counter.get_task_handle().result()
    return ended, await counter.store.get_text(str(ended.report), SYSTEM_SCOPE)


async def settled(counter: TaskSubmitter) -> None:
    """Wait until the session holds nothing for the task any more."""

    async def free() -> bool:
        return not (await counter.session.query(SessionWorkflow.account)).reserved

    await wait_until(free)


def of(crew: OversightTaskModel, step: str) -> int:
    return sum(call.step == step for call in crew.calls)


async def test_a_step_that_a_revision_adds_is_done_before_what_needs_it(
    server: Client, tmp_path: Path, redactor: Redactor
) -> None:
    crew = OversightTaskModel(revisions=[ADD_STEP_CALL])
    async with run_platform(server, tmp_path, redactor, crew) as counter:
        await counter.submit(under=with_oversight(reviews=0))
        ended, report = await done(counter)
        versions = await counter.store.list_plan_versions(ended.task_id, SYSTEM_SCOPE)
        bill = (await counter.store.list_task_charges(ended.task_id, SYSTEM_SCOPE)).cost_breakdown
    assert [step.id for step in ended.steps] == ["harbours", "tides", "fog", "weigh", "write"]
    order = [call.step for call in crew.calls]
    assert order.index("revision") > max(place for place, step in enumerate(order) if step in {"harbours", "tides"})
    assert order.index("weigh") > max(place for place, step in enumerate(order) if step == "fog")
    assert (of(crew, "revision"), of(crew, "fog")) == (1, RESEARCH_CALLS)
    assert ended.phase is TaskPhase.DONE
    assert ended.totals.spent.tokens == WORK_TOKENS + (RESEARCH_CALLS + 1) * CALL_TOKENS
    assert ended.budget.spent == ended.totals.spent
    assert [(one.number, one.made_by, one.reason) for one in versions] == [
        (1, "plan", ""),
        (2, "revision-1", "Nobody has read about fog."),
    ]
    assert versions[-1].plan.get_step("fog").goal == "Read about fog."
    assert "made plan version 2: added fog; changed weigh. Nobody has read about fog." in report
    assert [line.calls for line in bill.lines if (line.agent, line.kind) == ("revision-1", "plan")] == [1]
    opening = crew.asked[0].messages[0].text
    assert '<found step="harbours" title="Harbours">' in opening
    assert "- weigh (analysis, not begun; needs harbours, tides) Weigh: Weigh both." in opening


ASKING = with_oversight(reviews=0).replace(revision_percent=5)
"""An agent of the crew starts with a tenth of its task's budget."""


async def asked_about_the_revision(counter: TaskSubmitter) -> TaskProgress:
    async def asked() -> bool:
        progress = await counter.get_task_handle().query(TaskWorkflow.progress)
        return any(one.decision == "pending" for one in progress.approvals)

    await wait_until(asked)
    return await counter.get_task_handle().query(TaskWorkflow.progress)


@pytest.mark.parametrize("agrees", [True, False])
async def test_a_revision_that_may_cost_much_waits_for_a_person_and_denied_the_plan_stays_as_it_was(
    agrees: bool, server: Client, tmp_path: Path, redactor: Redactor
) -> None:
    crew = OversightTaskModel(revisions=[ADD_STEP_CALL])
    async with run_platform(server, tmp_path, redactor, crew) as counter:
        await counter.submit(under=ASKING)
        waiting = await asked_about_the_revision(counter)
        await counter.get_task_handle().signal(REVIEW_PLAN, {"plan": "0" * 64})
        await counter.get_task_handle().signal(
            APPROVE_BUDGET if agrees else DENY_BUDGET, {"request_id": "plan-1", "by": "Ada"}
        )
        ended, report = await done(counter)
        versions = await counter.store.list_plan_versions(ended.task_id, SYSTEM_SCOPE)
    assert [step.id for step in waiting.steps] == ["harbours", "tides", "weigh", "write"]
    assert waiting.approvals[0].requested.tokens == 5_000
    (refused,) = ended.rejected_messages
    assert "a revision of the plan cannot be edited" in refused.reason
    assert ended.phase is TaskPhase.DONE
    assert of(crew, "fog") == (RESEARCH_CALLS if agrees else 0)
    assert [step.id for step in versions[-1].plan.steps if step.id == "fog"] == (["fog"] if agrees else [])
    assert versions[-1].plan.get_step("weigh").needs == (
        ("harbours", "tides", "fog") if agrees else ("harbours", "tides")
    )
    assert len(versions) == (2 if agrees else 3)
    assert ("Revision 1 of the plan was denied" in report) is not agrees


@pytest.mark.parametrize(
    ("moves", "calls", "notes"),
    [
        ([KEEP_PLAN_CALL], 1, 0),
        ([INVALID_REVISION_CALL], 2, 1),
        ([INVALID_REVISION_CALL, KEEP_PLAN_CALL], 2, 0),
    ],
    ids=["kept", "impossible", "repaired"],
)
async def test_a_plan_may_be_kept_and_an_impossible_revision_changes_nothing(
    server: Client, tmp_path: Path, redactor: Redactor, moves: list[ScriptedCall], calls: int, notes: int
) -> None:
    crew = OversightTaskModel(revisions=moves)
    async with run_platform(server, tmp_path, redactor, crew) as counter:
        await counter.submit(under=with_oversight(reviews=0))
        ended, report = await done(counter)
        versions = await counter.store.list_plan_versions(ended.task_id, SYSTEM_SCOPE)
    assert (of(crew, "revision"), len(versions), ended.phase) == (calls, 1, TaskPhase.DONE)
    assert len(ended.notes) == notes
    assert "Revision 1, after the research, left the plan unchanged." in report
    for asked in crew.asked[1:]:
        assert "- step 'harbours' has started and cannot be changed" in asked.messages[-1].tool_results[0].content


@pytest.mark.parametrize(
    ("reviews", "faults"), [([FAIL_REVIEW_CALL, PASS_REVIEW_CALL], (3, 0)), ([FAIL_REVIEW_CALL], (3, 1))]
)
async def test_a_report_goes_back_with_its_faults_and_what_stays_is_told(
    server: Client, tmp_path: Path, redactor: Redactor, reviews: list[ScriptedCall], faults: tuple[int, int]
) -> None:
    crew = OversightTaskModel(reviews=reviews)
    async with run_platform(server, tmp_path, redactor, crew) as counter:
        await counter.submit(under=with_oversight(revisions=0))
        ended, report = await done(counter)
        bill = (await counter.store.list_task_charges(ended.task_id, SYSTEM_SCOPE)).cost_breakdown
        writer = await counter.store.load_transcript(f"{ended.task_id}/write", SYSTEM_SCOPE)
    assert [(review.faults, review.sent_back) for review in ended.reviews] == [(faults[0], True), (faults[1], False)]
    assert ("no one fixed:\n  - uncovered: It does not say how deep the bar is." in report) == bool(faults[1])
    assert "## Depths, harbours and tides" in report
    assert (of(crew, "review"), of(crew, "write")) == (2, 4)
    (sent,) = [message for message in without_statuses(writer.messages) if message.is_platform_message]
    assert "Review 1 of your report found" in sent.text
    assert "- uncovered: It does not say how deep the bar is." in sent.text
    assert {line.agent for line in bill.lines if line.kind == "review"} == {"review-1", "review-2"}
    assert ended.totals.spent.tokens == WORK_TOKENS + 4 * CALL_TOKENS == ended.budget.spent.tokens
    assert ended.phase is TaskPhase.DONE


async def test_a_model_judges_the_sentences_that_code_cannot_decide(
    server: Client, tmp_path: Path, redactor: Redactor
) -> None:
    verdicts: ScriptedCall = (
        "judge_sentences",
        {"verdicts": [{"number": 1, "verdict": "not_supported", "reason": "They name no channel."}]},
    )
    crew = OversightTaskModel(
        judgements=[verdicts], written="The white beacon marks the channel's edge [pilot.md:1-1]."
    )
    async with run_platform(server, tmp_path, redactor, crew) as counter:
        await counter.submit(under=with_oversight(revisions=0, reviews=0).replace(judge_model="small"))
        ended, report = await done(counter)
        bill = (await counter.store.list_task_charges(ended.task_id, SYSTEM_SCOPE)).cost_breakdown
    assert [(one.unsupported, one.undecided) for one in ended.judgements] == [(1, 0)]
    assert "a model compared the sentence with the cited lines: They name no channel" in report
    assert [line.calls for line in bill.lines if line.agent == "judge-1"] == [1]
    assert ended.totals.spent == ended.budget.spent
    assert ended.phase is TaskPhase.DONE


async def test_after_a_rewind_the_report_is_judged_again_in_a_run_of_its_own(
    server: Client, tmp_path: Path, redactor: Redactor
) -> None:
    first: ScriptedCall = (
        "judge_sentences",
        {"verdicts": [{"number": 1, "verdict": "not_supported", "reason": "No."}]},
    )
    second: ScriptedCall = ("judge_sentences", {"verdicts": [{"number": 1, "verdict": "supported"}]})
    crew = OversightTaskModel(
        judgements=[first, second], written="The white beacon marks the channel's edge [pilot.md:1-1]."
    )
    async with run_platform(server, tmp_path, redactor, crew) as counter:
        await counter.submit(under=with_oversight(revisions=0, reviews=0).replace(judge_model="small"))
        _, before = await done(counter)
        await settled(counter)
        await counter.edit(ContextEditInput(action="rewind", agent="harbours", message="m5"))
        ended, after = await done(counter)
        bill = (await counter.store.list_task_charges(ended.task_id, SYSTEM_SCOPE)).cost_breakdown
    assert [(one.number, one.supported, one.unsupported) for one in ended.judgements] == [(1, 0, 1), (2, 1, 0)]
    assert [line.calls for line in bill.lines if line.agent in {"judge-1", "judge-2"}] == [1, 1]
    assert "⁽¹⁾" in before
    assert "⁽¹⁾" not in after


async def test_a_judge_that_fails_leaves_the_sentences_undecided(
    server: Client, tmp_path: Path, redactor: Redactor
) -> None:
    async def refusing(call: ModelCall) -> None:
        if call.step == "judge":
            raise ModelRejected("the endpoint judge.example needs a key")

    crew = OversightTaskModel(
        before=refusing,
        judgements=[("judge_sentences", {"verdicts": []})],
        written="The white beacon marks the channel's edge [pilot.md:1-1].",
    )
    async with run_platform(server, tmp_path, redactor, crew) as counter:
        await counter.submit(under=with_oversight(revisions=0, reviews=0).replace(judge_model="small"))
        ended, report = await done(counter)
    assert (ended.phase, ended.judgements) == (TaskPhase.DONE, ())
    assert ended.notes == ("No model could judge the report's sentences (the endpoint judge.example needs a key).",)
    assert "1 could not be decided" in report


async def test_a_judge_that_is_busy_for_hours_does_not_hold_back_a_complete_report(
    server: Client, tmp_path: Path, redactor: Redactor
) -> None:
    async def busy(call: ModelCall) -> None:
        if call.step == "judge":
            raise ModelUnavailable("judge.example is overloaded", retry_after=7_200)

    crew = OversightTaskModel(
        before=busy,
        judgements=[("judge_sentences", {"verdicts": []})],
        written="The white beacon marks the channel's edge [pilot.md:1-1].",
    )
    async with run_platform(server, tmp_path, redactor, crew) as counter:
        await counter.submit(under=with_oversight(revisions=0, reviews=0).replace(judge_model="small"))
        ended, report = await done(counter)
    assert (ended.phase, ended.judgements) == (TaskPhase.DONE, ())
    assert ended.notes == ("No model could judge the report's sentences (judge.example is overloaded).",)
    assert "1 could not be decided" in report


async def test_too_little_money_leaves_the_plan_and_the_report_as_they_are(
    server: Client, tmp_path: Path, redactor: Redactor
) -> None:
    crew = OversightTaskModel(revisions=[ADD_STEP_CALL], reviews=[FAIL_REVIEW_CALL])
    async with run_platform(server, tmp_path, redactor, crew) as counter:
        await counter.submit(under=with_oversight(given=make_task_config(budget=9_000, mode=BudgetMode.HARD)))
        ended, report = await done(counter)
    assert (of(crew, "revision"), of(crew, "review")) == (0, 0)
    assert {*ended.notes} >= {
        "The budget was too small for a revision of the plan, so the plan stays unchanged.",
        "The budget was too small for a model to review the report, so only code checked it.",
    }
    assert (ended.phase, "# Pilotage" in report) == (TaskPhase.PARTIAL, True)


async def test_a_model_that_fails_for_good_fails_no_task(server: Client, tmp_path: Path, redactor: Redactor) -> None:
    async def refusing(call: ModelCall) -> None:
        if call.step in {"revision", "review", "judge"}:
            raise ModelRejected("no such model")

    crew = OversightTaskModel(before=refusing)
    async with run_platform(server, tmp_path, redactor, crew) as counter:
        await counter.submit(under=with_oversight())
        ended, _ = await done(counter)
    assert ended.phase is TaskPhase.DONE
    assert ended.notes == (
        "The plan could not be revised (no such model); it stays as it was.",
        "The report could not be reviewed (no such model).",
    )


async def test_a_task_that_continues_as_new_in_between_is_looked_over_once(tmp_path: Path, redactor: Redactor) -> None:
    crew = OversightTaskModel(revisions=[ADD_STEP_CALL], reviews=[FAIL_REVIEW_CALL, PASS_REVIEW_CALL])
    async with (
        start_dev_server("limit.historyCount.suggestContinueAsNew=20", cached=False) as server,
        run_platform(server, tmp_path, redactor, crew) as counter,
    ):
        await counter.submit(under=with_oversight())
        first = (await counter.get_task_handle().describe()).run_id
        ended, _ = await done(counter)
        last = (await counter.get_task_handle().describe()).run_id
        writer = await counter.store.load_transcript(f"{ended.task_id}/write", SYSTEM_SCOPE)
    assert first != last
    assert (of(crew, "revision"), of(crew, "fog"), of(crew, "review"), of(crew, "write")) == (1, RESEARCH_CALLS, 2, 4)
    assert sum(message.is_platform_message for message in without_statuses(writer.messages)) == 1
    assert (ended.phase, len(ended.revisions), len(ended.reviews)) == (TaskPhase.DONE, 1, 2)


async def test_a_rewound_task_keeps_its_newest_plan_and_is_reviewed_anew(
    server: Client, tmp_path: Path, redactor: Redactor
) -> None:
    crew = OversightTaskModel(revisions=[ADD_STEP_CALL])
    async with run_platform(server, tmp_path, redactor, crew) as counter:
        await counter.submit(under=with_oversight())
        await done(counter)
        await settled(counter)
        await counter.edit(ContextEditInput(action="rewind", agent="harbours", message="m5", by="Ada"))
        second, _ = await done(counter)
    assert [step.id for step in second.steps] == ["harbours", "tides", "fog", "weigh", "write"]
    assert (of(crew, "revision"), of(crew, "fog"), of(crew, "review")) == (1, RESEARCH_CALLS, 4)
    assert "The rewind does not undo revision 1 of the plan." in second.notes
    assert second.phase is TaskPhase.DONE
