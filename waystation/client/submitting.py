"""How the client hands a task in: under which terms, to which session, and what it tells of that."""

from datetime import timedelta

from waystation.adapters.clock import utc_now
from waystation.adapters.prices.file import load_prices
from waystation.adapters.store import SqlStore
from waystation.adapters.temporal.tasks import TemporalTasks
from waystation.agents.earlier import EarlierTasks
from waystation.agents.procedures import given_procedures
from waystation.domain.errors import BadInput
from waystation.domain.remembering import beyond
from waystation.domain.session import SessionStart
from waystation.domain.task import (
    TaskRef,
    TaskRequest,
    TaskRow,
    session_hash,
    session_workflow_id,
    task_id_of,
    tenant_hash,
)
from waystation.patterns import proven
from waystation.seen import Submitted
from waystation.settings import Settings
from waystation.terms import adjustments, task_terms, warnings_about

CONTROL = proven(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")
START_TIMEOUT = timedelta(seconds=20)


async def session_start(store: SqlStore, tenant: str, session: str) -> SessionStart:
    """What a session is started with."""
    return SessionStart(
        store_id=await store.store_id(), tenant=tenant_hash(tenant), session=session_hash(tenant, session)
    )


async def new_row(settings: Settings, store: SqlStore, request: TaskRequest) -> TaskRow:
    """The task as it is to be stored. Raises BadInput for terms that cannot work, and names that lists cannot show."""
    for what, name in (("a session", request.session), ("a tenant", request.tenant)):
        if CONTROL.search(name):
            raise BadInput(f"the name of {what} is one line without control characters; {name!r} is not")
    start, now = await session_start(store, request.tenant, request.session), utc_now()
    ref = TaskRef(store_id=start.store_id, tenant=start.tenant, session=start.session, task_id=task_id_of(request))
    # The same request again works under the same terms, whatever the session has finished meanwhile.
    known = next((row for row in await store.tasks(ref.reader.recalling("session")) if row.ref == ref), None)
    earlier = await EarlierTasks(store, store).most_tokens(ref, now if known is None else known.submitted_at)
    terms = task_terms(request, settings, load_prices(settings.prices), now.date(), earlier)
    return TaskRow(ref=ref, request=request, terms=terms, submitted_at=now)


async def handed_in(
    settings: Settings, store: SqlStore, temporal: TemporalTasks, row: TaskRow, patience: timedelta = START_TIMEOUT
) -> Submitted:
    """Hand a stored task to its session. Raises BadInput where that refuses it, Unreachable."""
    left_out = beyond(await store.documents(row.ref.task_id, row.ref.reader), row.terms.remembered_characters)
    request, task_id = row.request, row.ref.task_id
    start = SessionStart(**row.ref.model_dump(exclude={"task_id"}))
    await temporal.admit(start, session_workflow_id(request.tenant, request.session), row.ref, patience)
    return Submitted(
        task_id=task_id,
        workflow_id=task_id,
        run_id=await temporal.run_id(task_id),
        ui_url=temporal.link(task_id),
        warnings=(
            *adjustments(request, settings),
            *warnings_about(row.terms),
            *([left_out.sentence] if left_out is not None else []),
        ),
        procedures=await given_procedures(row, store),
    )
