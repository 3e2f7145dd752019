"""One person is erased: carried out to its end although a database or a Qdrant server is away, and looked at again."""

from temporalio import workflow

from activities.persons import PersonActivities
from waystation.domain.names import ERASE_WORKFLOW
from waystation.domain.persons import Erasure, PersonOrder
from workflows.options import CONTEXT, named


@workflow.defn(name=ERASE_WORKFLOW)
class ErasePersonWorkflow:
    """One order. Its history has placeholders and numbers, and so is its receipt."""

    @workflow.run
    async def run(self, order: PersonOrder) -> Erasure:
        """The originals go last: until then the order can be carried out again."""
        found = await workflow.execute_activity_method(
            PersonActivities.find, order, **named(CONTEXT, "find one person in the store")
        )
        await workflow.execute_activity_method(
            PersonActivities.erase, order, **named(CONTEXT, "erase one person from the store")
        )
        await workflow.execute_activity_method(
            PersonActivities.rewrite_passages, **named(CONTEXT, "write changed passages over what memory has")
        )
        files = await workflow.execute_activity_method(
            PersonActivities.rewrite_reports, order, **named(CONTEXT, "write files of reports anew")
        )
        deleted = await _without_histories(order)
        left = await workflow.execute_activity_method(
            PersonActivities.find, order, **named(CONTEXT, "look for the person again")
        )
        originals = await workflow.execute_activity_method(
            PersonActivities.drop_originals, order, **named(CONTEXT, "take originals out of the vault")
        )
        return Erasure(
            order=order,
            id=workflow.info().run_id,
            at=workflow.now(),
            found=found.traces,
            left=left.traces,
            originals=originals,
            files=files,
            histories_deleted=deleted,
        )


async def _without_histories(order: PersonOrder) -> int:
    if not order.doomed:
        return 0
    return await workflow.execute_activity_method(
        PersonActivities.delete_histories, order, **named(CONTEXT, "delete closed workflow histories")
    )
