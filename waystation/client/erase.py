"""One person is erased: that no task has them that runs, what the workers carry out, and the receipt."""

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from datetime import datetime

from temporalio.service import RPCError

from waystation.adapters.presidio.placeholders import fingerprint
from waystation.adapters.temporal.persons import carry_out, last_erasure, running
from waystation.client import Client
from waystation.client.persons import Found, Search, reached
from waystation.domain.errors import BadInput, Unreachable
from waystation.domain.names import remembering_id
from waystation.domain.persons import WANTED, Erasure, PersonOrder, Whereabouts, fingerprints, summed
from waystation.domain.redaction import Original
from waystation.domain.task import tenant_hash
from waystation.domain.value import Value
from waystation.report_files import rewritten_reports
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
    """Reports that were written anew, by the workers and on this machine."""
    histories_deleted: int
    histories_left: tuple[str, ...]
    """Ids of workflows whose histories still have the person."""

    @classmethod
    def of(cls, done: Erasure) -> "Receipt":
        """What the order did; on this machine there may have been more files."""
        left = [one.workflow_id for one in done.order.histories if one not in done.order.doomed]
        return cls(
            id=done.id,
            at=done.at,
            known_as=fingerprints(done.order.placeholders),
            found=summed(done.found),
            left=summed(done.left),
            originals=done.originals,
            files=done.files,
            histories_deleted=done.histories_deleted,
            histories_left=tuple(left),
        )


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
    async with _answering():
        remembered = [one for one in task_ids if await running(temporal, remembering_id(one))]
    if remembered:
        raise BadInput(
            f"the documents of {', '.join(remembered[:5])} are on their way into memory: try again when they are there"
        )


async def erase(
    search: Search, found: Found, *, histories: bool, tell: Callable[[str], None] = lambda _: None
) -> Receipt:
    """Erase the person; closed histories that have them are deleted as a whole where that is wanted.

    `tell` gets a few words whenever another step is under way. Raises Unreachable without a server, BadInput, WrongKey.
    """
    temporal = await reached(search.settings)
    order = await order_for(search, found, histories=histories)
    async with _answering():
        receipt = Receipt.of(await carry_out(temporal, order, tell))
    # The workers have done those of their home folder, which may be another one.
    in_files = [trace.task_id for trace in found.traces if trace.place is Whereabouts.REPORT_FILE]
    own_files = rewritten_reports(search.settings, in_files, search.sought)
    return receipt.model_copy(update={"files": receipt.files + own_files})


async def last_receipt(search: Search) -> Receipt | None:
    """What the last order for this value did; one that is under way is waited for. None: Temporal keeps none.

    Raises Unreachable without a server.
    """
    temporal = await reached(search.settings)
    async with _answering():
        done = await last_erasure(temporal, search.order_id)
    return None if done is None else Receipt.of(done)


async def under_way(search: Search) -> bool:
    """Whether an order for this value is being carried out. Raises Unreachable without a server."""
    temporal = await reached(search.settings)
    async with _answering():
        return await running(temporal, search.order_id)


async def order_for(search: Search, found: Found, *, histories: bool) -> PersonOrder:
    """The order, with the value in the vault until it has been carried out."""
    tenant, value = tenant_hash(search.settings.tenant), search.sought.value
    original = Original(
        type=WANTED, placeholder=search.wanted, fingerprint=fingerprint(search.key, tenant, WANTED, value), text=value
    )
    await search.vault.keep(tenant, [original])
    return PersonOrder(
        store_id=await search.store.store_id(),
        tenant=tenant,
        wanted=search.wanted,
        placeholders=search.sought.placeholders,
        histories=found.histories,
        delete_histories=histories,
    )


@asynccontextmanager
async def _answering() -> AsyncGenerator[None]:
    """Turns Temporal's errors into Unreachable."""
    try:
        yield
    except RPCError as error:
        raise Unreachable(
            f"the Temporal server does not answer ({error.status.name}): the order may be carried out all the same; "
            "giving it again is safe"
        ) from error
