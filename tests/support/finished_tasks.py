"""Finished tasks in a store without a server, for tests of commands."""

from tests.support.prices import PRICES
from waystation.config.resolver import build_task_config
from waystation.config.settings import Settings
from waystation.documents.documents import SourceDocument
from waystation.kernel.clock import utc_now
from waystation.kernel.refs import TaskRef
from waystation.kernel.usage import Usage
from waystation.runtime.sql_store import SqlStore
from waystation.tasks.task import StepProgress, TaskPhase, TaskRequest, TaskRow, make_task_id, session_hash, tenant_hash
from waystation.tasks.view import as_stored


def make_task_row(request: TaskRequest, settings: Settings, store_id: str = "store") -> TaskRow:
    """Make the row that is stored of a task when it is submitted."""
    ref = TaskRef(
        store_id=store_id,
        tenant=tenant_hash(request.tenant),
        session=session_hash(request.tenant, request.session),
        task_id=make_task_id(request),
    )
    terms = build_task_config(request, settings, PRICES, utc_now().date())
    return TaskRow(ref=ref, request=request, config=terms, submitted_at=utc_now())


async def store_finished_task(settings: Settings, request_id: str = "r1") -> str:
    """Store a task with a partial result in a new home folder's store, and return its id."""
    settings.home.mkdir(exist_ok=True)
    store = await SqlStore.open(settings.database_url, utc_now)
    asked = TaskRequest(question="Which?", session="default", request_id=request_id)
    row = make_task_row(asked, settings, await store.get_store_id())
    await store.register_task(row, (SourceDocument(name="a.md", text="# A\n"),))
    steps = (StepProgress(id="writing", role="writing", state="partial", legs=1, usage=Usage()),)
    report = await store.put_text("# Report", row.ref.scope)
    over = as_stored(row, TaskPhase.PARTIAL).replace(steps=steps, report=report)
    await store.save_task_progress(row.ref.task_id, over)
    await store.aclose()
    return row.ref.task_id
