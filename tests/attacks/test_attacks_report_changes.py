"""What a report tells of an earlier one: claims are cut out of their text, and must do and say no more than it did."""

from pathlib import Path

from tests.attacks.test_attacks_terminal import find_active_markup
from tests.reports.test_publisher import PROGRESS
from tests.support.agent_environment import SECRET, SECRET_PLACEHOLDER, TASK, TASK_REQUEST, AgentEnvironment
from tests.support.agent_fixtures import open_agent_environment
from tests.support.scopes import SYSTEM_SCOPE
from waystation.agents.deliverables import ReportDraft
from waystation.tasks.task import ReportVersion, TaskPhase

EARLIER = f"""# Then

**Question.** Why did it silt up?

The key of the harbour was {SECRET} until then [harbour.md:1-1].

```
<img src=http://evil.example/gone.png> is what it showed [harbour.md:1-2].
```

## About this report

"""
NOW = """It says as follows.

```
<img src=http://evil.example/new.png> is what it shows now [harbour.md:2-2].
```

    ![pixel](http://evil.example/a.png) stands there, too [harbour.md:1-1]

And `code of many. <script>alert(1)</script> Words [harbour.md:1-2]` stand there [harbour.md:2-2]."""


async def reported(env: AgentEnvironment) -> None:
    """How the task ended, with a report that rules of before let the key into."""
    report = await env.store.put_text(EARLIER, env.ref.scope)
    version = ReportVersion(number=1, report=report, phase=TaskPhase.DONE, stored_at=None)
    await env.store.save_task_progress(TASK, PROGRESS.replace(report=report, reports=(version,)))


async def test_what_changed_since_an_earlier_report_is_as_inert_and_as_redacted_as_the_report(tmp_path: Path) -> None:
    async with open_agent_environment(tmp_path / "waystation.db") as env:
        await env.open_task()
        await reported(env)
        env.task_id = "task-9a8b7c6d5e4f3a2b"
        await env.open_task(asked=TASK_REQUEST.replace(since=TASK))
        await env.store.commit_deliverable(
            (await env.make_tool_context("writing")).fence, env.task_id, ReportDraft(title="N", summary=NOW)
        )
        outcome = await env.publisher.publish(env.ref, PROGRESS.replace(task_id=env.task_id))
        report = await env.store.get_text(outcome.report, SYSTEM_SCOPE)
    opening = report.partition("**Question.**")[0]
    assert "- New: " in opening
    assert "- Gone: " in opening
    assert find_active_markup(report) == []
    assert SECRET not in report
    assert SECRET_PLACEHOLDER in opening
