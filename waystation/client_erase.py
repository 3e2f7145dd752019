"""One person is erased: that no task has them that runs, what the workers carry out, and the receipt."""

from datetime import datetime

from temporalio.service import RPCError

from waystation.adapters.presidio.placeholders import fingerprint, placeholder
from waystation.adapters.temporal.persons import carry_out, delete_closed, running
from waystation.client import Client
from waystation.client_persons import Found, Search, reached
from waystation.domain.errors import BadInput, Unreachable
from waystation.domain.names import remembering_id
from waystation.domain.persons import WANTED, PersonOrder, Sought, Whereabouts, summed
from waystation.domain.redaction import Original
from waystation.domain.task import tenant_hash
from waystation.domain.value import Value
from waystation.settings import Settings

_ELSEWHERE = frozenset({Whereabouts.VAULT, Whereabouts.HISTORY, Whereabouts.REPORT_FILE})
"""Not in the store's texts: a task that runs does not write there."""


class Receipt(Value):
    """What was erased. It has no content, and may be kept."""

    id: str
    at: datetime
    known_as: tuple[str, ...]
    """SHA-256 of each placeholder that stood for the value."""
    found: dict[Whereabouts, int]
    left: dict[Whereabouts, int]
    originals: int
    """Entries that the vault has no more."""
    files: int
    """Reports in the home folder of this machine that were written anew."""
    histories_deleted: int
    histories_left: tuple[str, ...]
    """Ids of workflows whose histories still have the person."""


async def require_at_rest(client: Client, settings: Settings, found: Found) -> None:
    """Raise BadInput where a task has the person that is not over, or whose documents are being remembered; Unreachable
    without a server, which alone knows.
    """
    task_ids = sorted({trace.task_id for trace in found.traces if trace.place not in _ELSEWHERE})
    at_work = [one for one in task_ids if not (await client.progress(one)).progress.phase.over]
    if at_work:
        verbs = "has this person and runs" if len(at_work) == 1 else "have this person and run"
        raise BadInput(
            f"{', '.join(at_work[:5])} {verbs}: `waystation cancel {at_work[0]}` stops it, or wait until it has ended"
        )
    temporal = await reached(settings)
    try:
        remembered = [one for one in task_ids if await running(temporal, remembering_id(one))]
    except RPCError as error:
        raise _unanswered(error) from error
    if remembered:
        raise BadInput(
            f"the documents of {', '.join(remembered[:5])} are on their way into memory: try again when they are there"
        )


async def erase(search: Search, found: Found, *, histories: bool) -> Receipt:
    """Erase the person; closed histories that have them are deleted as a whole where that is wanted.

    Raises Unreachable without a server, BadInput, WrongKey.
    """
    temporal = await reached(search.settings)
    order = await _order(search)
    try:
        done = await carry_out(temporal, order)
        deleted = await delete_closed(temporal, found.histories) if histories else 0
    except RPCError as error:
        raise _unanswered(error) from error
    left = [one for one in found.histories if not (histories and one.closed)]
    return Receipt(
        id=done.id,
        at=done.at,
        known_as=found.known_as,
        found=summed(done.found),
        left=summed(done.left),
        originals=done.originals,
        files=_rewritten(search.settings, found, search.sought),
        histories_deleted=deleted,
        histories_left=tuple([one.workflow_id for one in left]),
    )


async def _order(search: Search) -> PersonOrder:
    """The order, with the value in the vault until it has been carried out."""
    tenant, value = tenant_hash(search.settings.tenant), search.sought.value
    wanted = placeholder(search.key, tenant, WANTED, value)
    original = Original(
        type=WANTED, placeholder=wanted, fingerprint=fingerprint(search.key, tenant, WANTED, value), text=value
    )
    await search.vault.keep(tenant, [original])
    return PersonOrder(
        store_id=await search.store.store_id(),
        tenant=tenant,
        wanted=wanted,
        placeholders=search.sought.placeholders,
    )


def _rewritten(settings: Settings, found: Found, sought: Sought) -> int:
    task_ids = [trace.task_id for trace in found.traces if trace.place is Whereabouts.REPORT_FILE]
    for task_id in task_ids:
        path = settings.reports_folder / f"{task_id}.md"
        path.write_text(sought.without(path.read_text(encoding="utf-8")), encoding="utf-8")
    return len(task_ids)


def _unanswered(error: RPCError) -> Unreachable:
    return Unreachable(
        f"the Temporal server does not answer ({error.status.name}): the order may be carried out all the same; giving "
        "it again is safe"
    )
