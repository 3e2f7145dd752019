"""What agent runs cost: charges that count once for their key, and the intents that wait for one."""

from sqlalchemy import BigInteger, ColumnElement, ScalarSelect, cast, delete, func, insert, select
from sqlalchemy.ext.asyncio import AsyncConnection

from waystation.adapters.store.engine import add_once
from waystation.adapters.store.schema import charges, intents
from waystation.domain.budget import RunTotals, Usage
from waystation.domain.turn import Charge, Intent


async def add_intent(connection: AsyncConnection, run_id: str, intent: Intent) -> None:
    """One row more for the intent's key."""
    worst_case = {"worst_case": intent.worst_case.tokens, "worst_case_micro_usd": intent.worst_case.micro_usd}
    row = {"run_id": run_id, **intent.model_dump(exclude={"worst_case"}), **worst_case}
    await connection.execute(insert(intents).values(row))


async def drop_newest_intent(connection: AsyncConnection, run_id: str, key: str) -> None:
    """Take the newest intent of the key back, if there is one."""
    newest = select(func.max(intents.c.ordinal)).where(intents.c.run_id == run_id, intents.c.key == key)
    await connection.execute(delete(intents).where(intents.c.ordinal == newest.scalar_subquery()))


async def add_charge(connection: AsyncConnection, run_id: str, charge: Charge) -> bool:
    """Count the charge and close one intent of its key. False: the key was charged before, and nothing changed."""
    row = {"run_id": run_id, **charge.model_dump(exclude={"usage"}), **charge.usage.model_dump()}
    if not await add_once(connection, charges, row):
        return False
    await drop_newest_intent(connection, run_id, charge.key)
    return True


async def totals(connection: AsyncConnection, run_id: str) -> RunTotals:
    """All charges and open intents of the run, added up."""
    mine = charges.c.run_id == run_id
    summed = select(
        *(_sum(charges.c[kind]).label(kind) for kind in Usage.model_fields),
        _sum(charges.c.cost_micro_usd).label("cost"),
        func.count().label("charges"),
        func.count(charges.c.cost_micro_usd).label("priced"),
        func.count().filter(charges.c.kind == "turn").label("turns"),
        _open(intents.c.worst_case, run_id).label("possibly_billed"),
        _open(intents.c.worst_case_micro_usd, run_id).label("possibly_billed_micro_usd"),
        _last_prompt(run_id).label("last_prompt"),
    ).where(mine)
    row = (await connection.execute(summed)).one()
    return RunTotals(
        usage=Usage.model_validate({kind: getattr(row, kind) for kind in Usage.model_fields}),
        turns=row.turns,
        possibly_billed=row.possibly_billed,
        possibly_billed_micro_usd=row.possibly_billed_micro_usd,
        last_prompt=row.last_prompt or 0,
        cost_micro_usd=row.cost if row.priced == row.charges else None,
    )


async def spent(connection: AsyncConnection, run_id: str) -> RunTotals:
    """The totals without the newest intent, as long as its key has no charge: its answer may still come. An older one
    will have none any more.
    """
    known = await totals(connection, run_id)
    newest = select(intents).where(intents.c.run_id == run_id).order_by(intents.c.ordinal.desc()).limit(1)
    open_call = (await connection.execute(newest)).one_or_none()
    if open_call is None:
        return known
    charged = select(charges.c.ordinal).where(charges.c.run_id == run_id, charges.c.key == open_call.key)
    if (await connection.execute(charged)).first() is not None:
        return known
    return known.model_copy(
        update={
            "possibly_billed": known.possibly_billed - open_call.worst_case,
            "possibly_billed_micro_usd": known.possibly_billed_micro_usd - open_call.worst_case_micro_usd,
        }
    )


def _open(worst_case: ColumnElement[int], run_id: str) -> ScalarSelect[int]:
    return select(_sum(worst_case)).where(intents.c.run_id == run_id).scalar_subquery()


def _sum(column: ColumnElement[int]) -> ColumnElement[int]:
    # PostgreSQL adds 64-bit integers up to a decimal number.
    return cast(func.coalesce(func.sum(column), 0), BigInteger)


def _last_prompt(run_id: str) -> ScalarSelect[int]:
    turns = charges.alias()
    prompt = turns.c.input + turns.c.cache_write + turns.c.cache_read
    newest = select(prompt).where(turns.c.run_id == run_id, turns.c.kind == "turn").order_by(turns.c.ordinal.desc())
    return newest.limit(1).scalar_subquery()
