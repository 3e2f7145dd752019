import pytest

from tests.support.scopes import SYSTEM_SCOPE
from tests.support.store_values import make_task_request, make_task_row
from waystation.erasure.erasure import ForgetOrder
from waystation.kernel.errors import UnknownTask
from waystation.planning.plan import PlanVersion, build_standard_plan
from waystation.runtime.sql_store import SqlStore

SECOND = PlanVersion(number=2, plan=build_standard_plan("second"), made_by="revision-1", reason="Fog.")
THIRD = PlanVersion(number=3, plan=build_standard_plan("third"), made_by="revision-2")


async def test_every_plan_is_kept_and_the_newest_holds(store: SqlStore) -> None:
    task = make_task_row(make_task_request())
    await store.register_task(task, [])
    task_id = task.ref.task_id
    assert await store.list_plan_versions(task_id, SYSTEM_SCOPE) == ()
    await store.save_plan(task_id, build_standard_plan("first"))
    for version in (SECOND, THIRD, SECOND.replace(reason="Late.")):
        await store.save_plan_version(task_id, version)
    first = PlanVersion(number=1, plan=build_standard_plan("first"), made_by="plan")
    assert await store.list_plan_versions(task_id, SYSTEM_SCOPE) == (first, SECOND, THIRD)
    assert await store.get_newest_plan(task_id, SYSTEM_SCOPE) == THIRD.plan


async def test_a_revision_of_an_unknown_task_is_refused(store: SqlStore) -> None:
    with pytest.raises(UnknownTask):
        await store.save_plan_version("task-0", SECOND)


async def test_plans_are_forgotten_with_their_task(store: SqlStore) -> None:
    task = make_task_row(make_task_request())
    await store.register_task(task, [])
    await store.save_plan(task.ref.task_id, build_standard_plan("first"))
    await store.save_plan_version(task.ref.task_id, SECOND)
    order = ForgetOrder(
        store_id=await store.get_store_id(), tenant=task.ref.tenant, task_ids=(task.ref.task_id,), everything=True
    )
    await store.forget_tasks(order)
    assert await store.list_plan_versions(task.ref.task_id, SYSTEM_SCOPE) == ()
    async with store.database.read() as connection:
        left = await connection.exec_driver_sql("SELECT count(*) FROM plan_revisions")
        assert left.scalar_one() == 0
