import pytest
from inline_snapshot import snapshot
from pydantic import JsonValue

from tests.support.agent_environment import (
    NAME,
    NAME_PLACEHOLDER,
    PLAN,
    SECRET,
    SECRET_PLACEHOLDER,
    TASK,
    TASK_REQUEST,
    AgentEnvironment,
    make_tool_use,
)
from tests.support.prices import PRICES
from tests.support.scopes import SYSTEM_SCOPE
from waystation.agents.call_ledger import MAX_UNANSWERED_CALLS
from waystation.agents.planner import SUBMIT_PLAN, PlanningResult
from waystation.agents.structured_caller import (
    MAX_REPLY_TOKENS,
    MAX_THINKING_REPLY_TOKENS,
    MIN_THINKING_REPLY_TOKENS,
    CallOptions,
)
from waystation.context.message_rules import find_violations
from waystation.context.transcript import Block, Text, Thinking
from waystation.kernel.amount import Amount, Limit
from waystation.kernel.errors import (
    BrokenEndpointError,
    ModelError,
    ModelUnavailable,
    RedactionFailed,
    SpendingLimitReached,
)
from waystation.models.ports import ModelResponse, StopReason
from waystation.planning.plan import Plan, Step, build_standard_plan
from waystation.privacy.policy import TextDestination
from waystation.reports.reviewers import REVISE_PLAN
from waystation.testing.doubles import PlainRedactor, ScriptedModel, make_scripted_response

RUN_ID = f"{TASK}/plan"
GOOD_STEPS: list[JsonValue] = [step.model_dump(mode="json") for step in PLAN.steps]


def planning(steps: JsonValue, call_id: str = "p1") -> ModelResponse:
    return make_scripted_response(make_tool_use("submit_plan", call_id, steps=steps))


GOOD, BAD = planning(GOOD_STEPS), planning(GOOD_STEPS[:2])


async def made(env: AgentEnvironment, model: ScriptedModel, limit: int = 60_000) -> PlanningResult:
    env.model = model
    return await env.planner.create_plan(env.ref, CallOptions("claude-sonnet-5-5", Limit(tokens=limit), PRICES))


@pytest.fixture
async def unplanned(bare_env: AgentEnvironment) -> AgentEnvironment:
    await bare_env.open_task(plan=None)
    return bare_env


async def stored_plan(env: AgentEnvironment) -> Plan:
    plan = await env.store.get_newest_plan(TASK, SYSTEM_SCOPE)
    assert plan is not None
    return plan


async def test_a_good_plan_is_kept_with_its_goals_and_given_without_them(unplanned: AgentEnvironment) -> None:
    model = ScriptedModel([GOOD])
    plan = await made(unplanned, model)
    assert plan.plan == PLAN.without_goals()
    assert (plan.notes, plan.totals.usage) == ((), GOOD.usage)
    assert await stored_plan(unplanned) == PLAN
    (request,) = model.requests
    assert (request.require_tool, [tool.name for tool in request.tools]) == ("submit_plan", ["submit_plan"])
    assert "<question>\nWhy did it silt up?\n</question>\n<today>" in request.messages[0].text


async def test_the_planner_sees_the_first_lines_of_documents_as_agents_may_see_them(
    unplanned: AgentEnvironment,
) -> None:
    (message,) = (await first_request(unplanned)).messages
    assert message.text.partition("</documents>\n")[2] == snapshot("""\
<previews documents="2 of 2">
- harbour.md: The harbour was dug in 1811. / It silted up within ten years.
- keeper.md: The keeper was Ada Lovelace. / Her key is <SECRET_0123456789ab>.
</previews>
<question>
Why did it silt up?
</question>
<today>Saturday, 2026-11-21</today>
</task>\
""")
    assert SECRET not in message.text


@pytest.mark.parametrize(
    ("bad", "complaint"),
    [
        (BAD, "- a plan has 3 to 12 steps, but this one has 2"),
        (planning("none"), "- steps: Input should be a valid"),
        (planning([{"id": "a", "role": "chief", "title": "x"}]), "- steps.0.role: Input should be 'research'"),
        (make_scripted_response(Text(text="My plan: look.")), "- answer with one call of submit_plan"),
        (make_scripted_response(stop=StopReason.REFUSAL), "- answer with one call of submit_plan"),
    ],
    ids=["too short", "no list", "unknown role", "no call", "nothing"],
)
async def test_a_plan_that_cannot_be_run_is_repaired_once_with_its_errors_shown(
    unplanned: AgentEnvironment, bad: ModelResponse, complaint: str
) -> None:
    model = ScriptedModel([bad, planning(GOOD_STEPS, "p2")])
    assert (await made(unplanned, model)).plan == PLAN.without_goals()
    told = model.requests[1].messages
    assert find_violations(told) == ()
    last = told[-1]
    shown = last.text or last.tool_results[0].content
    assert complaint in shown
    assert shown.endswith("Submit a corrected one.")


async def test_after_two_plans_that_cannot_be_run_the_standard_plan_is_used(unplanned: AgentEnvironment) -> None:
    plan = await made(unplanned, ScriptedModel([BAD, planning([], "p2")]))
    assert plan.plan == build_standard_plan("").without_goals()
    assert plan.notes == ("The model's plan could not run, even after a correction, so the standard plan is used.",)
    assert plan.totals.usage.fresh == 240
    assert "Why did it silt up?" in (await stored_plan(unplanned)).steps[0].goal


async def test_a_budget_too_small_for_planning_leads_to_the_standard_plan_without_a_call(
    unplanned: AgentEnvironment,
) -> None:
    model = ScriptedModel([])
    plan = await made(unplanned, model, limit=600)
    assert plan.plan == build_standard_plan("").without_goals()
    assert plan.notes == ("The budget is too small for a model to plan, so the standard plan is used.",)
    assert (model.calls, plan.totals.spent) == (0, Amount())


async def test_a_repair_that_does_not_fit_the_budget_leads_to_the_standard_plan(unplanned: AgentEnvironment) -> None:
    model = ScriptedModel([BAD, GOOD])
    request = await first_request(unplanned)
    plan = await made(unplanned, model, limit=await model.count_tokens(request) + 2_100)
    assert (model.calls, plan.plan) == (1, build_standard_plan("").without_goals())
    assert model.requests[0].max_output == 2_100


async def first_request(env: AgentEnvironment):
    probe = ScriptedModel([ModelUnavailable("busy", possibly_billed=False)])
    with pytest.raises(ModelUnavailable):
        await made(env, probe)
    return probe.requests[0]


async def test_a_saved_plan_is_given_again_without_a_call(unplanned: AgentEnvironment) -> None:
    first = await made(unplanned, ScriptedModel([GOOD]))
    again = ScriptedModel([])
    assert await made(unplanned, again) == first
    assert again.calls == 0


async def test_a_retry_after_a_crash_asks_nothing_twice(unplanned: AgentEnvironment) -> None:
    with pytest.raises(ModelUnavailable):
        await made(unplanned, ScriptedModel([BAD, ModelUnavailable("cut", possibly_billed=False)]))
    second = ScriptedModel([planning(GOOD_STEPS, "p2")])
    plan = await made(unplanned, second)
    assert (second.calls, plan.plan) == (1, PLAN.without_goals())
    assert plan.totals.usage.fresh == 240


async def test_a_retry_after_a_crash_with_a_committed_plan_makes_no_call(unplanned: AgentEnvironment) -> None:
    def answer(_: object) -> ModelResponse:
        unplanned.redactor.failing_at = frozenset({TextDestination.TITLE})
        return GOOD

    with pytest.raises(RedactionFailed):
        await made(unplanned, ScriptedModel(answer))
    assert await unplanned.store.get_newest_plan(TASK, SYSTEM_SCOPE) is None
    unplanned.redactor.failing_at = frozenset()
    again = ScriptedModel([])
    assert (await made(unplanned, again)).plan == PLAN.without_goals()


async def test_titles_are_redacted_as_everything_in_the_history_and_the_question_as_everything_sent(
    bare_env: AgentEnvironment,
) -> None:
    await bare_env.open_task(plan=None, asked=TASK_REQUEST.replace(question=f"Whose key is {SECRET}?"))
    titled = [step.replace(title=f"Ask {NAME} " + "again " * 14) for step in PLAN.steps]
    model = ScriptedModel([planning([step.model_dump(mode="json") for step in titled])])
    plan = await made(bare_env, model)
    assert SECRET not in model.requests[0].model_dump_json()
    assert SECRET_PLACEHOLDER in model.requests[0].model_dump_json()
    for step in plan.plan.steps:
        assert step.title == f"Ask {NAME_PLACEHOLDER} again again again again again…"


async def test_an_id_with_something_private_is_replaced_by_role_and_number(bare_env: AgentEnvironment) -> None:
    bare_env.redactor = PlainRedactor({"tide tables": "<PERSON_aaaaaaaaaaaa>"})
    await bare_env.open_task(plan=None)
    first, *others = PLAN.steps
    named = [first.replace(id="tide-tables")]
    named += [
        step.replace(needs=tuple("tide-tables" if need == first.id else need for need in step.needs)) for step in others
    ]
    model = ScriptedModel([planning([step.model_dump(mode="json") for step in named])])
    plan = (await made(bare_env, model)).plan
    assert plan.steps[0].id == f"{first.role}-1"
    assert [step.id for step in plan.steps[1:]] == [step.id for step in others]
    assert all("tide-tables" not in step.needs for step in plan.steps)


@pytest.mark.parametrize(
    "error",
    [SpendingLimitReached("no credit"), BrokenEndpointError("a page")],
    ids=["spending limit", "broken endpoint"],
)
async def test_where_a_person_has_to_see_to_something_the_standard_plan_is_used_and_says_why(
    unplanned: AgentEnvironment, error: ModelError
) -> None:
    plan = await made(unplanned, ScriptedModel([error]))
    assert plan.plan == build_standard_plan("").without_goals()
    assert plan.notes == (f"The model returned no plan, so the standard plan is used. ({error})",)
    assert plan.totals.possibly_billed == 0


async def test_planning_ends_with_the_cause_where_call_after_call_brings_no_reply(unplanned: AgentEnvironment) -> None:
    cut = ModelUnavailable("cut", possibly_billed=True)
    for _ in range(MAX_UNANSWERED_CALLS - 1):
        with pytest.raises(ModelUnavailable):
            await made(unplanned, ScriptedModel([cut]), limit=250_000)
    plan = await made(unplanned, ScriptedModel([cut]), limit=250_000)
    assert plan.plan == build_standard_plan("").without_goals()
    assert "the last one: cut" in plan.notes[0]


async def test_a_planning_call_without_a_reply_that_spent_the_budget_is_named_in_its_note(
    unplanned: AgentEnvironment,
) -> None:
    limit = await ScriptedModel([]).count_tokens(await first_request(unplanned)) + 2_500
    plan = await made(unplanned, ScriptedModel([ModelUnavailable("cut", possibly_billed=True)]), limit=limit)
    assert plan.notes == ("The model returned no plan, so the standard plan is used. (cut)",)


async def test_a_cut_stream_is_counted_and_the_next_attempt_goes_on(unplanned: AgentEnvironment) -> None:
    with pytest.raises(ModelUnavailable):
        await made(unplanned, ScriptedModel([ModelUnavailable("cut", possibly_billed=True)]))
    plan = await made(unplanned, ScriptedModel([GOOD]))
    assert plan.totals.possibly_billed > 2_000
    assert plan.totals.usage == GOOD.usage


async def test_a_model_that_thinks_before_it_plans_has_room_for_both(unplanned: AgentEnvironment) -> None:
    model = ScriptedModel([GOOD, GOOD])
    await made(unplanned, model)
    assert model.requests[0].max_output == MAX_THINKING_REPLY_TOKENS


async def test_a_model_that_is_made_to_plan_at_once_needs_no_room_for_thinking(unplanned: AgentEnvironment) -> None:
    unplanned.model = model = ScriptedModel([GOOD])
    await unplanned.planner.create_plan(
        unplanned.ref, CallOptions("claude-haiku-5-5", Limit(tokens=60_000), PRICES, "medium")
    )
    assert (model.requests[0].max_output, model.requests[0].effort) == (MAX_REPLY_TOKENS, "medium")


async def test_at_the_highest_efforts_a_plan_has_room_for_the_longest_thinking(unplanned: AgentEnvironment) -> None:
    unplanned.model = model = ScriptedModel([GOOD])
    await unplanned.planner.create_plan(
        unplanned.ref, CallOptions("claude-sonnet-5-5", Limit(tokens=60_000), PRICES, "xhigh")
    )
    assert (model.requests[0].max_output, model.requests[0].effort) == (MAX_THINKING_REPLY_TOKENS, "xhigh")


async def test_a_long_reply_is_shortened_to_what_planning_may_spend(unplanned: AgentEnvironment) -> None:
    model = ScriptedModel([GOOD])
    await made(unplanned, model, limit=20_000)
    assert MIN_THINKING_REPLY_TOKENS < model.requests[0].max_output < MAX_THINKING_REPLY_TOKENS


@pytest.mark.parametrize(
    "blocks",
    [
        (Thinking(thinking="Which steps", signature=""),),
        (Thinking(thinking="Which steps", signature="s"), make_tool_use("submit_plan", "p1", steps=[])),
    ],
    ids=["while thinking", "in the call"],
)
async def test_a_reply_that_was_cut_is_not_sent_back_and_the_plan_is_asked_for_at_once(
    unplanned: AgentEnvironment, blocks: tuple[Block, ...]
) -> None:
    model = ScriptedModel([make_scripted_response(*blocks, stop=StopReason.MAX_TOKENS), GOOD])
    assert (await made(unplanned, model)).plan == PLAN.without_goals()
    *_, cut, told = model.requests[1].messages
    assert "was cut here" in cut.text or "maximum length while thinking" in cut.text
    assert not cut.tool_uses
    assert "call submit_plan now, with what you have decided so far" in told.text
    assert not find_violations(model.requests[1].messages)


def test_a_model_must_give_each_step_a_goal_which_histories_leave_out() -> None:
    for spec in (SUBMIT_PLAN, REVISE_PLAN):
        match spec.input_schema:
            case {"$defs": {"Step": {"required": list(required)}}}:
                assert required == ["id", "role", "title", "goal"]
            case _:
                raise AssertionError(spec.name)
    assert "goal" not in Step.model_json_schema()["required"]
