"""A stored report with valid citations, one that failed the check, marked sentences, and malicious text."""

import asyncio
from contextlib import aclosing
from datetime import UTC, datetime

from tests.support.finished_tasks import store_finished_task
from tests.support.scopes import SYSTEM_SCOPE
from waystation.config.settings import Settings
from waystation.kernel.clock import utc_now
from waystation.reports.blocks import ExportedReport, ReportMetadata, parse_stored_report
from waystation.reports.markdown import build_report_export
from waystation.runtime.sql_store import SqlStore
from waystation.tasks.task import TaskPhase

HOSTILE_MARKDOWN = (
    '#read("/etc/passwd") #panic("x") $ x^2 $ @ref <label> // no comment \\u{1F600} <script>alert(1)</script>\n'
    "[click](javascript:alert(1)) ![seen](https://evil.example/x.png) <javascript:alert(2)> <https://ok.example/?a&b=2>"
)
CODE = 'print("#let x = 1", "</pre><b>")'
STORED_REPORT = f"""\
> **No LLM wrote this.** The built-in offline model.

# Häfen & <b>Silt</b>: 港口 مرفأ 🚢

**Question.** Why did it silt up?

Silt *closed* **it** [docs/a/__init__.py:2-3]⁽¹⁾, `kept[1:2-3]` [docs/b/__init__.py:8-8].

{HOSTILE_MARKDOWN}

## Sources

An agent's own section, which stays.

1. It says "silted up in ten years" [survey.pdf:12-15], "مرفأ قديم جدا" [survey.pdf:12-15].
   - nested [docs/a/__init__.py:2-3]°
2. "港口已经关闭了很久很久" [港口.md:1-1]

| year | ships |
|---|---|
| 1811 | 12 [gone.md:1-9] |

```python
{CODE}
```

---

## Sources

- docs/a/__init__.py: lines 2–3
- docs/b/__init__.py: line 8
- survey.pdf: page 2 of attachment a (1).pdf (lines 12–15, 40), page 3 (line 51)
- 港口.md: line 1

## Failed citations

1 of 5 citations failed the check:

- [gone.md:1-9]: there is no such document

## Cited sentences

Code compared the figures, dates, names and wording of 7 cited sentences with the cited lines: 4 are supported, \
2 are not (marked in the text), 1 could not be decided (marked °).
Whether the report answers the question was not judged.

- ⁽¹⁾ "closed" <b>stands</b> nowhere in "lines" 2-3 of docs/a/__init__.py

## About this report

- Task `task-0123456789abcdef`, model `claude-sonnet-5-5`, 14 model turns

## Not used

Files and parts of files that were submitted, but left out:

- picture.bin: it is no text
"""
STORED_AT = datetime(2026, 11, 23, 7, 0, 0, 1, tzinfo=UTC)


def make_export_report(markdown: str = STORED_REPORT) -> ExportedReport:
    imprint = ReportMetadata(
        task_id="task-0123456789abcdef", phase=TaskPhase.DONE, version=2, stored_at=STORED_AT, model="claude-sonnet-5-5"
    )
    return build_report_export(parse_stored_report(markdown), imprint)


def store_report_task(settings: Settings) -> str:
    """Store a task that has ended with this report, and return its id."""
    return asyncio.run(_kept(settings))


async def _kept(settings: Settings) -> str:
    task_id = await store_finished_task(settings)
    async with aclosing(await SqlStore.open(settings.database_url, utc_now)) as store:
        row = await store.get_task(task_id, SYSTEM_SCOPE)
        assert row.progress is not None
        blob = await store.put_text(STORED_REPORT, row.ref.scope)
        await store.save_task_progress(task_id, row.progress.replace(report=blob))
    return task_id
