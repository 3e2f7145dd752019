"""How a person asks for the length of a report: in a body of the API, with an option of the command; an assistant."""

import inspect

import pytest
from pydantic import ValidationError

from waystation import AsyncWaystation
from waystation.cli.submit import submit
from waystation.plugins.web.assistant_gateway import SubmitResearchRequest
from waystation.plugins.web.mcp import submit_research
from waystation.plugins.web.request_bodies import NewTask, build_task_request
from waystation.tasks.task import Preset, TaskRequest


def test_the_length_of_a_report_is_one_of_three_or_left_to_its_material() -> None:
    assert build_task_request("local", NewTask(question="Why?", length="long"), "s", "r").length == "long"
    assert build_task_request("local", NewTask(question="Why?"), "s", "r").length is None
    with pytest.raises(ValidationError, match="'short', 'medium' or 'long'"):
        NewTask.model_validate({"question": "Why?", "length": "800"})


def test_a_request_that_was_stored_without_a_length_has_none() -> None:
    asked = TaskRequest(question="Why?", request_id="r").model_dump(exclude={"length"})
    assert TaskRequest.model_validate(asked).length is None


def test_commands_python_the_api_and_assistants_ask_for_the_same_of_a_report() -> None:
    takes = [inspect.signature(one).parameters.keys() for one in (submit, AsyncWaystation.submit, submit_research)] + [
        NewTask.model_fields.keys(),
        SubmitResearchRequest.model_fields.keys(),
    ]
    assert [{"question", "instructions", "accept", "length", "budget", "servers"} - one for one in takes] == [set()] * 5
    of_people = [takes[0], takes[1], takes[3]]
    assert [{"preset", "mode", "review_plan"} - one for one in of_people] == [set()] * 3


def test_a_preset_in_a_body_is_the_preset_of_the_task() -> None:
    new = NewTask.model_validate({"question": "Why?", "preset": "web"})
    assert build_task_request("local", new, "s", "r").preset is Preset.WEB
