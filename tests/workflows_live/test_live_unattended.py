"""Requests for money that nobody looks at, and a provider that wants money itself."""

from datetime import timedelta
from pathlib import Path

from temporalio.client import Client

from tests.crew import SHARE, Call, Crew, tight
from tests.running import Counter, at_work, until
from waystation.agents.decisions import IN_ADVANCE, TopUpPolicy, UnattendedPolicy
from waystation.kernel.amount import Amount
from waystation.kernel.errors import SpendingLimitReached
from waystation.privacy.ports import Redactor
from waystation.tasks import approvals
from waystation.tasks.task import TaskPhase, TaskTerms
from workflows.task import TaskWorkflow


def ahead(decided: UnattendedPolicy) -> TaskTerms:
    return tight().replace(unattended=decided)


async def paused(counter: Counter) -> bool:
    progress = await counter.task().query(TaskWorkflow.progress)
    return progress.phase is TaskPhase.PAUSED


async def test_raises_that_were_authorised_in_advance_are_used_before_anybody_is_asked(
    server: Client, tmp_path: Path, redactor: Redactor
) -> None:
    top_up = TopUpPolicy(amount=Amount(tokens=1_000), times=1)  # it leaves too little for another agent's call
    async with at_work(server, tmp_path, redactor, Crew()) as counter:
        await counter.submit(under=ahead(UnattendedPolicy(top_up=top_up)))
        await until(lambda: paused(counter))
        progress = await counter.task().query(TaskWorkflow.progress)
        given, *waiting = progress.approvals
        assert (given.decision, given.by, given.granted) == ("approved", IN_ADVANCE, top_up.amount)
        assert [asked.decision for asked in waiting] == ["pending"] * len(waiting)
        assert waiting
        await counter.task().cancel()


async def test_at_the_deadline_the_agents_deliver_what_they_have(
    server: Client, tmp_path: Path, redactor: Redactor
) -> None:
    decided = UnattendedPolicy(answer_within=timedelta(seconds=1))
    async with at_work(server, tmp_path, redactor, Crew()) as counter:
        await counter.submit(under=ahead(decided))
        progress = await counter.task().result()
    assert progress.phase is TaskPhase.PARTIAL
    assert {asked.decision for asked in progress.approvals} == {"expired"}
    reasons = {step.reason for step in progress.steps if step.state == "partial"}
    assert "nobody answered its request for money until its deadline" in reasons


async def test_an_overdue_request_that_shall_wait_still_takes_its_answer(
    server: Client, tmp_path: Path, redactor: Redactor
) -> None:
    decided = UnattendedPolicy(answer_within=timedelta(milliseconds=200), then="wait")
    async with at_work(server, tmp_path, redactor, Crew()) as counter:
        await counter.submit(under=ahead(decided))

        async def overdue() -> bool:
            return any("is overdue" in note for note in (await counter.task().query(TaskWorkflow.progress)).notes)

        await until(overdue)

        async def over() -> bool:
            progress = await counter.task().query(TaskWorkflow.progress)
            for asked in progress.approvals:
                if asked.decision == "pending":
                    answer = {"request_id": asked.request_id, "tokens": 10 * SHARE}
                    await counter.task().signal(approvals.APPROVE_BUDGET, answer)
            return progress.phase.over

        await until(over)
        progress = await counter.task().result()
    assert progress.phase is TaskPhase.DONE
    assert any("is overdue: nobody answered until its deadline" in note for note in progress.notes)


async def test_a_spending_limit_at_the_provider_pauses_and_an_approval_goes_on_behind_the_last_turn(
    server: Client, tmp_path: Path, redactor: Redactor
) -> None:
    refused = [Call("harbours", 3)]

    async def out_of_money(call: Call) -> None:
        if call in refused:
            refused.remove(call)
            raise SpendingLimitReached("the provider's account has no credit")

    crew = Crew(before=out_of_money)
    async with at_work(server, tmp_path, redactor, crew) as counter:
        await counter.submit()

        async def asked() -> bool:
            return bool((await counter.task().query(TaskWorkflow.progress)).approvals)

        await until(asked)
        (request,) = (await counter.task().query(TaskWorkflow.progress)).approvals
        assert (request.agent, request.asked) == ("harbours", Amount())
        assert request.reason == "the provider's account has no credit"
        await counter.task().signal(approvals.APPROVE_BUDGET, {})
        progress = await counter.task().result()
    assert progress.phase is TaskPhase.DONE
    assert crew.calls.count(Call("harbours", 3)) == 2
    assert crew.calls.count(Call("harbours", 2)) == 1
    assert progress.totals.possibly_billed == 0
