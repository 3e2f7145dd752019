"""Bills: all charges of a task, and its calls that were never answered, in one look."""

from sqlalchemy import RowMapping, select
from sqlalchemy.ext.asyncio import AsyncConnection

from waystation.adapters.store.part import StorePart, owned, reading
from waystation.adapters.store.schema import charges, intents, runs
from waystation.domain.amount import Amount
from waystation.domain.bill import Bill, Paid, Unanswered, bill
from waystation.domain.budget import Usage
from waystation.domain.ownership import Reader
from waystation.domain.turn import Charge, Intent


class SqlBills(StorePart):
    """What tasks have cost."""

    @reading
    async def bill(self, connection: AsyncConnection, task_id: str, reader: Reader) -> Bill:
        """The task's bill so far; empty for a task that has called no model, and one that is not the reader's."""
        own = select(runs.c.run_id).where(runs.c.task_id == task_id, owned(runs, reader))
        paid = select(charges).where(charges.c.run_id.in_(own))
        open_calls = select(intents).where(intents.c.run_id.in_(own))
        return bill(
            [_paid(row) for row in (await connection.execute(paid.order_by(charges.c.ordinal))).mappings()],
            [_unanswered(row) for row in (await connection.execute(open_calls.order_by(intents.c.ordinal))).mappings()],
        )


def _paid(row: RowMapping) -> Paid:
    charge = Charge.model_validate({**row, "usage": Usage.model_validate(row)})
    return Paid(agent=_agent(row), charge=charge)


def _unanswered(row: RowMapping) -> Unanswered:
    worst_case = Amount(tokens=row["worst_case"], micro_usd=row["worst_case_micro_usd"])
    return Unanswered(agent=_agent(row), intent=Intent.model_validate({**row, "worst_case": worst_case}))


def _agent(row: RowMapping) -> str:
    return str(row["run_id"]).rpartition("/")[2]
