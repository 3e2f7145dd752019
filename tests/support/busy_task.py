"""A running task whose agent has called tools, was given results and compacted its context, at known times."""

from datetime import datetime, timedelta

from tests.support.finished_tasks import make_task_row
from tests.support.store_values import NOON, make_charge, make_intent
from waystation.config.settings import Settings
from waystation.context.transcript import (
    Message,
    PinRecord,
    SummaryRecord,
    ToolResult,
    ToolUse,
    build_user_message,
)
from waystation.kernel.refs import RunRef
from waystation.planning.plan import build_standard_plan
from waystation.runtime.sql_store import SqlStore
from waystation.tasks.task import TaskRequest

AGENT, OTHER_AGENT = "research-1", "research-2"


class StepClock:
    """A clock that a test moves."""

    def __init__(self) -> None:
        self.now = NOON

    def __call__(self) -> datetime:
        """Return the time."""
        return self.now

    def after(self, seconds: float) -> None:
        """Move the clock."""
        self.now += timedelta(seconds=seconds)


def make_calls(message_id: str, **calls: str) -> Message:
    """Make a reply with these calls: names of tools by id."""
    blocks = tuple(ToolUse(id=call_id, name=tool, input={}) for call_id, tool in calls.items())
    return Message(id=message_id, role="assistant", blocks=blocks)


def make_results(message_id: str, *call_ids: str, failed: str = "") -> Message:
    """Make the results of these calls."""
    blocks = tuple(ToolResult(tool_use_id=one, content=f"<b>{one}</b>", is_error=one == failed) for one in call_ids)
    return Message(id=message_id, role="user", blocks=blocks)


async def store_busy_task(settings: Settings) -> str:
    """Store the task and return its id. Its first agent ends 100 seconds after the start, its second begins then."""
    settings.home.mkdir(exist_ok=True)
    clock = StepClock()
    store = await SqlStore.open(settings.database_url, clock)
    asked = TaskRequest(question="Which?", session="default", request_id="busy")
    row = make_task_row(asked, settings, await store.get_store_id())
    await store.register_task(row, ())
    await store.save_task_title(row.ref.task_id, "Which?")
    await store.save_plan(row.ref.task_id, build_standard_plan("Which?"))
    run = RunRef(**row.ref.model_dump(), step_id=AGENT, role="research")
    await store.open_run(run)
    fence = await store.acquire_fence(run.run_id)
    await store.commit_message(fence, 0, build_user_message("m1", "Read."))
    await store.record_and_count_intents(fence, make_intent("turn-1"))
    clock.after(10)
    await store.commit_reply(fence, 1, make_calls("m2", c1="read_document", c2="<i>made up</i>"), make_charge("turn-1"))
    clock.after(4)
    await store.commit_message(fence, 2, make_results("m3", "c1", "c2", failed="c2"))
    await store.record_and_count_intents(fence, make_intent("turn-2"))
    clock.after(16)
    await store.commit_reply(fence, 3, make_calls("m4", c3="read_document"), make_charge("turn-2"))
    clock.after(10)
    await store.commit_message(fence, 4, make_results("m5", "c3"))
    pin = PinRecord(id="pin-1", message_id="m1")
    await store.commit_compaction(fence, 5, pin, (), None)
    summary = SummaryRecord(
        id="summary-1", strategy="summarise", covered=("m2", "m3"), summary=build_user_message("s-summary-1", "Read.")
    )
    clock.after(10)
    await store.commit_compaction(fence, 6, summary.replace(after=5), (), None)
    await store.record_and_count_intents(fence, make_intent("turn-3"))
    clock.after(50)
    await store.commit_reply(fence, 7, make_calls("m6", c4="search_documents"), make_charge("turn-3"))
    other = RunRef(**row.ref.model_dump(), step_id=OTHER_AGENT, role="research")
    await store.open_run(other)
    second = await store.acquire_fence(other.run_id)
    await store.commit_message(second, 0, build_user_message("m1", "Read the rest."))
    await store.aclose()
    return row.ref.task_id
