"""Tasks that nobody put into one session share none: what a document of one said is not recalled in the other."""

import pytest
from pydantic import ValidationError

from waystation.tasks.task import ForkOrigin, TaskRequest, make_own_session_name, make_task_id, session_hash


def asked(request_id: str, **more: object) -> TaskRequest:
    return TaskRequest.model_validate({"question": "Why?", "request_id": request_id, **more})


def test_two_tasks_without_a_session_are_in_two() -> None:
    one, two = asked("one"), asked("two")
    assert one.session != two.session
    assert session_hash("local", one.session) != session_hash("local", two.session)


def test_the_same_request_finds_the_same_task_again() -> None:
    assert make_task_id(asked("one")) == make_task_id(asked("one"))
    assert asked("one").session == make_own_session_name("one")


def test_a_named_session_is_that_one_whatever_its_name() -> None:
    for name in ("default", "harbours", make_own_session_name("another")):
        assert asked("one", session=name).session == name


def test_a_request_keeps_its_session_when_it_is_stored_and_forked() -> None:
    kept = asked("one")
    assert TaskRequest.model_validate_json(kept.model_dump_json()) == kept
    step = ForkOrigin(task_id="task-1", step="writing")
    forked = TaskRequest.model_validate({**kept.model_dump(), "request_id": "fork", "forked_from": step})
    assert forked.session == kept.session


@pytest.mark.parametrize("name", ["", "x" * 201, None])
def test_a_session_without_a_name_is_refused(name: str | None) -> None:
    with pytest.raises(ValidationError):
        asked("one", session=name)


@pytest.mark.parametrize("request_id", ["\x1b]52;c;x\x07", "a" * 200, "\u202eevil", "own-000000000000"])
def test_its_own_session_has_a_plain_name_whatever_the_request_is_called(request_id: str) -> None:
    assert make_own_session_name(request_id).removeprefix("own-").isalnum()
    assert make_own_session_name(request_id).isascii()
