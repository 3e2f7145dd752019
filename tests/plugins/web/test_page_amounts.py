"""Amounts that the pages suggest, and what they say of earlier tasks and of a running one."""

from tests.support.view_values import (
    PAUSED_PROGRESS_IN_DOLLARS,
    PAUSED_VIEW,
    PENDING_APPROVAL,
    PENDING_APPROVAL_FORECAST,
)
from waystation.kernel.amount import Amount, Limit
from waystation.plugins.web.amounts import (
    build_amount_choices,
    describe_earlier_spending,
    describe_next_call,
    describe_task_budget,
    format_written_amount,
)
from waystation.plugins.web.task_page import describe_progress
from waystation.plugins.web.upload_checks import classify_reason
from waystation.tasks.details import parse_grant
from waystation.tasks.task import ApprovalRequest, TaskPhase
from waystation.tasks.view import ApprovalView, TaskBudgetView, TaskView, list_pending_approvals


def choose(request: ApprovalRequest) -> dict[str, str]:
    return {one.words: one.value for one in build_amount_choices(ApprovalView.from_request(request))}


def make_finished(tokens: int, cost_usd: float | None = None) -> TaskView:
    budget = TaskBudgetView(limit=Limit(tokens=600_000), spent=Amount(tokens=tokens), reserved=Amount())
    return PAUSED_VIEW.replace(phase=TaskPhase.DONE, budget=budget, cost_usd=cost_usd)


def test_a_person_chooses_between_what_was_asked_for_the_minimum_and_what_finishing_may_take() -> None:
    forecast = PENDING_APPROVAL_FORECAST.replace(cost_to_finish=Amount(tokens=61_400), headroom=Limit(tokens=90_000))
    assert choose(PENDING_APPROVAL.replace(forecast=forecast, needed=Amount(tokens=4_000))) == {
        "30,000 tokens, as requested": "",
        "4,000 tokens, the minimum": "4000",
        "about 61,000 tokens, to finish the task": "61000",
    }


def test_a_minimum_of_few_tokens_is_a_choice_that_is_not_questioned_for_its_unit() -> None:
    choices = choose(PENDING_APPROVAL)
    assert list(choices) == ["30,000 tokens, as requested", "900 tokens, the minimum"]
    assert parse_grant(choices["900 tokens, the minimum"]) == PENDING_APPROVAL.needed


def test_what_finishes_the_task_is_suggested_if_it_is_known() -> None:
    def suggested(request: ApprovalRequest) -> list[str]:
        return [one.words for one in build_amount_choices(ApprovalView.from_request(request)) if one.is_suggested]

    forecast = PENDING_APPROVAL_FORECAST.replace(cost_to_finish=Amount(tokens=61_400))
    assert suggested(PENDING_APPROVAL.replace(forecast=forecast)) == ["about 61,000 tokens, to finish the task"]
    assert suggested(PENDING_APPROVAL) == ["30,000 tokens, as requested"]


def test_a_paused_budget_is_explained_by_figures_that_add_up() -> None:
    (one,) = list_pending_approvals(PAUSED_VIEW)
    assert describe_task_budget(one) == (
        "200,000 tokens: 41,200 tokens spent, 60,000 tokens kept for 2 later steps, "
        "98,300 tokens kept for other agents and reviews, 500 tokens left for research-1"
    )
    assert describe_next_call(one.approval) == (
        "may cost up to 1,400 tokens, with its whole input and a short reply: 900 tokens more than research-1 has "
        "left, so it is not made"
    )
    (priced,) = list_pending_approvals(TaskView.from_progress(PAUSED_PROGRESS_IN_DOLLARS))
    assert describe_next_call(priced.approval).startswith("may cost up to $0.062345, ")
    assert describe_task_budget(priced) == (
        "$2.00: $0.70 spent, $1.00 kept for 2 later steps, $0.25 kept for other agents and reviews, "
        "$0.05 left for research-1"
    )
    halted = one.replace(approval=one.approval.replace(reason="the key is not known"))
    assert (describe_task_budget(halted), describe_next_call(halted.approval)) == ("", "")
    assert describe_task_budget(one.replace(task_budget=None)) == ""


def test_an_amount_over_the_ceiling_or_under_the_requested_one_is_not_suggested_for_finishing() -> None:
    for to_finish, headroom in ((61_400, 50_000), (29_999, 90_000)):
        forecast = PENDING_APPROVAL_FORECAST.replace(
            cost_to_finish=Amount(tokens=to_finish), headroom=Limit(tokens=headroom)
        )
        assert not any("to finish" in words for words in choose(PENDING_APPROVAL.replace(forecast=forecast)))


def test_a_suggested_amount_can_be_read_back() -> None:
    for amount in (
        Amount(tokens=61_000),
        Amount(tokens=1_999),
        Amount(tokens=1),
        Amount(micro_usd=1_250_000),
        Amount(tokens=5_000, micro_usd=1_234_500_000),
    ):
        assert parse_grant(format_written_amount(amount)) == amount


def test_earlier_tasks_say_what_they_spent_if_there_are_enough() -> None:
    assert describe_earlier_spending([make_finished(41_000), PAUSED_VIEW]) == ""
    assert describe_earlier_spending([make_finished(41_000), make_finished(90_000), make_finished(20_000)]) == (
        "Your last 3 finished tasks spent 20k to 90k tokens each, half of the tasks under 41k tokens."
    )
    priced = [make_finished(41_000, 0.5), make_finished(90_000, 1.25)]
    assert " tokens each ($0.50 to $1.25), half of the tasks under " in describe_earlier_spending(priced)


def test_a_running_task_says_how_far_it_is() -> None:
    working = PAUSED_VIEW.replace(steps=(PAUSED_VIEW.steps[0].replace(state="working", title="Ports"),))
    assert describe_progress(working) == "0 of 1 step finished; now research-1 (Ports)."
    assert describe_progress(working.replace(steps=())) == "The plan is being made."
    assert describe_progress(make_finished(1)) == ""


def test_the_common_obstacles_of_files_are_told_apart() -> None:
    assert [
        classify_reason(reason)
        for reason in (
            "protected by a password; save the file without one",
            "no page has text; the PDF may be a scan (no text was recognised)",
            "a picture (no text was recognised)",
            "120.0 MB; the maximum for this kind of file is 100 MB. Split the file",
            "binary, not text",
        )
    ] == ["locked", "scanned", "scanned", "too large", "unreadable"]
