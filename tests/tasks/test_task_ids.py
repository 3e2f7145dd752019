"""Ids of tasks and sessions: made of who asks, so that nobody else's request is ever taken for the same one."""

from itertools import product

import pytest

from waystation.tasks.task import TaskRequest, make_session_workflow_id, make_task_id

TENANTS, SESSIONS, REQUESTS = ("pilots", "others"), ("autumn", "winter"), ("first", "second")


def task_id(tenant: str, session: str, request_id: str) -> str:
    return make_task_id(TaskRequest(question="What?", tenant=tenant, session=session, request_id=request_id))


def test_a_task_is_another_one_in_another_tenant_another_session_and_for_another_request() -> None:
    named = list(product(TENANTS, SESSIONS, REQUESTS))
    assert len({task_id(*names) for names in named}) == len(named)
    assert [task_id(*names) for names in named] == [task_id(*names) for names in named]


def test_a_session_is_another_one_in_another_tenant() -> None:
    named = list(product(TENANTS, SESSIONS))
    assert len({make_session_workflow_id(*names) for names in named}) == len(named)


@pytest.mark.parametrize(("one", "other"), [(("ab", "c", "d"), ("a", "bc", "d")), (("a", "bc", "d"), ("a", "b", "cd"))])
def test_where_one_name_ends_and_the_next_begins_makes_a_difference(
    one: tuple[str, str, str], other: tuple[str, str, str]
) -> None:
    assert task_id(*one) != task_id(*other)
