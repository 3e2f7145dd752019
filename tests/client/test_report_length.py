"""How a person asks for the length of a report: in a body of the API, with an option of the command."""

import pytest
from pydantic import ValidationError

from waystation.plugins.web.request_bodies import NewTask, build_task_request
from waystation.tasks.task import TaskRequest


def test_the_length_of_a_report_is_one_of_three_or_left_to_its_material() -> None:
    assert build_task_request("local", NewTask(question="Why?", length="long"), "s", "r").length == "long"
    assert build_task_request("local", NewTask(question="Why?"), "s", "r").length is None
    with pytest.raises(ValidationError, match="'short', 'medium' or 'long'"):
        NewTask.model_validate({"question": "Why?", "length": "800"})


def test_a_request_that_was_stored_without_a_length_has_none() -> None:
    asked = TaskRequest(question="Why?", request_id="r").model_dump(exclude={"length"})
    assert TaskRequest.model_validate(asked).length is None
