"""What a report tells of an earlier one: claims are cut out of their text, and must do and say no more than it did."""

from pathlib import Path

from tests.agents.conftest import opened
from tests.agents.office import ASKED, SECRET, SECRET_PLACEHOLDER, TASK, Office
from tests.agents.test_publisher import PROGRESS
from tests.attacks.test_attacks_terminal import active
from tests.readers import ANYONE
from waystation.agents.deliverables import ReportDraft
from waystation.tasks.task import ReportVersion, TaskPhase

EARLIER = f"""# Then

**Question.** Why did it silt up?

The key of the harbour was {SECRET} until then [harbour.md:1-1].

```
<img src=http://evil.example/gone.png> is what it showed [harbour.md:1-2].
```

## How this report came about

"""
NOW = """It says as follows.

```
<img src=http://evil.example/new.png> is what it shows now [harbour.md:2-2].
```

    ![pixel](http://evil.example/a.png) stands there, too [harbour.md:1-1]

And `code of many. <script>alert(1)</script> Words [harbour.md:1-2]` stand there [harbour.md:2-2]."""


async def reported(office: Office) -> None:
    """How the task ended, with a report that rules of before let the key into."""
    report = await office.store.put_text(EARLIER, office.ref.reader)
    version = ReportVersion(number=1, report=report, phase=TaskPhase.DONE, stored_at=None)
    await office.store.finish(TASK, PROGRESS.replace(report=report, reports=(version,)))


async def test_what_changed_since_an_earlier_report_is_as_inert_and_as_redacted_as_the_report(tmp_path: Path) -> None:
    async with opened(tmp_path / "waystation.db") as office:
        await office.open_task()
        await reported(office)
        office.task_id = "task-9a8b7c6d5e4f3a2b"
        await office.open_task(asked=ASKED.replace(since=TASK))
        await office.store.hand_in(
            (await office.site("writing")).fence, office.task_id, ReportDraft(title="N", summary=NOW)
        )
        outcome = await office.publisher.publish(office.ref, PROGRESS.replace(task_id=office.task_id))
        report = await office.store.get_text(outcome.report, ANYONE)
    opening = report.partition("**Question.**")[0]
    assert "- New: " in opening
    assert "- Gone: " in opening
    assert active(report) == []
    assert SECRET not in report
    assert SECRET_PLACEHOLDER in opening
