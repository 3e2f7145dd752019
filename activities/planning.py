"""Activities at a task's beginning: admit it, plan it."""

from temporalio import activity

from activities.failures import reported
from activities.heartbeats import beating
from waystation.agents.planner import PlanMade, Planner
from waystation.domain.amount import Limit
from waystation.domain.errors import WrongStore
from waystation.domain.pricing import PRICES, Price
from waystation.domain.privacy import Place
from waystation.domain.redaction import cut
from waystation.domain.session import Admitted, Equipment
from waystation.domain.task import TaskRef
from waystation.domain.value import Value
from waystation.ports import DocumentStore, Redactor, TaskStore

TITLE_CHARACTERS = 120


class PlanRequest(Value):
    """Which task to plan, with which model, for how much at most."""

    ref: TaskRef
    model: str
    limit: Limit
    prices: tuple[Price, ...] = PRICES


class PlanningActivities:
    """Admission and planning."""

    def __init__(
        self,
        planner: Planner,
        tasks: TaskStore,
        documents: DocumentStore,
        redactor: Redactor,
        equipment: Equipment,
    ) -> None:
        self._planner, self._tasks, self._documents, self._redactor = planner, tasks, documents, redactor
        self._equipment = equipment

    @activity.defn(name="AdmitTask")
    async def admit(self, ref: TaskRef) -> Admitted:
        """What the workflows may know of a task: its terms, and its question redacted and shortened."""
        with reported():
            store_id = await self._tasks.store_id()
            if store_id != ref.store_id:
                raise WrongStore(ref.store_id, store_id)
            row = await self._tasks.task(ref.task_id, ref.reader)
            title = row.title or await self._title(row.request.question, ref.tenant)
            await self._tasks.admit(ref.task_id, title)
            ended = row.progress if row.progress is not None and row.progress.phase.over else None
            return Admitted(
                ref=ref,
                terms=row.terms,
                title=title,
                documents=len(await self._documents.documents(ref.task_id, ref.reader)),
                finished=ended is not None,
                forked=row.request.forked_from is not None,
                budget=ended.budget if ended is not None else None,
                **self._equipment.model_dump(),
            )

    @activity.defn(name="PlanTask")
    async def plan(self, request: PlanRequest) -> PlanMade:
        """A plan that can be run, without its goals."""
        async with beating():
            with reported():
                return await self._planner.plan(request.ref, request.model, request.limit, request.prices)

    async def _title(self, question: str, tenant: str) -> str:
        (redacted,) = await self._redactor.redact([question], Place.TITLE, tenant)
        line = " ".join(redacted.text.split())
        return cut(line, TITLE_CHARACTERS, " …")
