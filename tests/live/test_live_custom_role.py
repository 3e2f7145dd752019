"""A role is one row and one prompt: nothing else here knows this one, which is that of the tutorial."""

import re
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType

import pytest
from temporalio.client import Client

from tests.support.task_model import SCRIPTED_CALLS, SCRIPTED_PLAN, ScriptedTaskModel, make_task_config
from tests.support.temporal_platform import run_platform
from waystation.agents import roles as prompts
from waystation.config.settings import Settings
from waystation.kernel import roles
from waystation.kernel.roles import RoleSpec
from waystation.models.ports import ModelRequest, ModelResponse
from waystation.planning.plan import Plan, Step, find_plan_errors
from waystation.privacy.ports import Redactor
from waystation.tasks.task import TaskPhase

TUTORIAL = (Path(__file__).parents[2] / "docs" / "tutorial.md").read_text(encoding="utf-8")
ENTRY = re.compile(r'^```python\n"checking": (RoleSpec\(.*?^\)),$', re.MULTILINE | re.DOTALL)
PROMPT_FILE = re.compile(r"checking\.md`:\n\n```markdown\n(.*?)\n```", re.DOTALL)
CHECKING: RoleSpec = eval(ENTRY.findall(TUTORIAL)[0], {"RoleSpec": RoleSpec})
(PROMPT,) = PROMPT_FILE.findall(TUTORIAL)


def plan() -> Plan:
    checking = Step(id="check", role="checking", title="Check", goal="Check it.", needs=("harbours",))
    writing = Step(id="write", role="writing", title="Write", goal="Write it down.", needs=("check",))
    return Plan(steps=(SCRIPTED_PLAN.steps[0], checking, writing))


@dataclass
class Listening(ScriptedTaskModel):
    """Remembers what it was asked."""

    asked: list[ModelRequest] = field(default_factory=list[ModelRequest])

    async def complete(self, request: ModelRequest) -> ModelResponse:
        self.asked.append(request)
        return await super().complete(request)


@pytest.fixture(autouse=True)
def _one_row_and_one_prompt(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(roles, "ROLES", MappingProxyType({**roles.ROLES, "checking": CHECKING}))
    known = prompts.load_prompt
    monkeypatch.setattr(prompts, "load_prompt", lambda name: PROMPT if name == "checking" else known(name))  # pyright: ignore[reportUnknownLambdaType, reportUnknownArgumentType]
    monkeypatch.setitem(SCRIPTED_CALLS, "submit_plan", [("submit_plan", plan().model_dump(mode="json"))])


async def test_a_fourth_role_is_planned_works_with_its_own_tools_and_prompt_and_is_read(
    server: Client, tmp_path: Path, redactor: Redactor
) -> None:
    crew = Listening()
    async with run_platform(server, tmp_path, redactor, crew) as counter:
        await counter.submit(under=make_task_config())
        progress = await counter.get_task_handle().result()
    assert progress.phase is TaskPhase.DONE
    planning, *_ = crew.asked
    (checking,) = [one for one in crew.asked if one.system == PROMPT]
    assert f"checking {CHECKING.purpose}" in planning.system
    assert [tool.name for tool in checking.tools] == ["read_findings", "read_document", "submit_analysis"]
    assert CHECKING.form in checking.messages[0].text
    assert [step.role for step in progress.steps] == ["research", "checking", "writing"]


def test_a_fourth_role_has_settings_of_its_own_and_its_name_is_refused_where_there_is_no_row(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    given = {"checking": {"model": "a-model", "effort": "low"}}
    settings = Settings.model_validate({"roles": given, "anthropic_api_key": "k"})
    assert settings.get_model_options("checking") == ("a-model", "low", None)
    assert find_plan_errors(plan()) == ()
    monkeypatch.setattr(roles, "ROLES", {name: row for name, row in roles.ROLES.items() if name != "checking"})
    with pytest.raises(ValueError, match="'research', 'analysis' or 'writing'"):
        Settings.model_validate({"roles": given})
