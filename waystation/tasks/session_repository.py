"""SQL repository of sessions: the state that a terminated workflow would lose."""

from sqlalchemy import select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from waystation.store.encryption import bind_to_row
from waystation.store.engine import SqlRepository, insert_if_absent, write_transaction
from waystation.store.schema import sessions
from waystation.tasks.session import SessionKey, SessionState, StoredSession


class SqlSessionRepository(SqlRepository):
    """`SessionRepository` in SQL."""

    @write_transaction
    async def take_over_session(self, connection: AsyncConnection, key: SessionKey) -> StoredSession:
        """Start a new epoch of the session: `save_session` of an older epoch changes nothing from here on.

        Returns:
            The session as last saved, under its new epoch; an empty one if it is not in the store.
        """
        await lock_session(connection, key)
        this = (sessions.c.tenant == key.tenant, sessions.c.session == key.session)
        await connection.execute(update(sessions).where(*this).values(epoch=sessions.c.epoch + 1))
        row = (await connection.execute(select(sessions).where(*this))).one()
        return StoredSession(epoch=row.epoch, version=row.version, state=SessionState.model_validate_json(row.state))

    @write_transaction
    async def save_session(self, connection: AsyncConnection, key: SessionKey, stored: StoredSession) -> bool:
        """Save the state unless a newer one is stored.

        Returns:
            False if another workflow execution has taken the session over, or has saved a newer state.
        """
        state = bind_to_row(stored.state.model_dump_json(), key.tenant, key.session)
        saved = (
            update(sessions)
            .where(
                sessions.c.tenant == key.tenant,
                sessions.c.session == key.session,
                sessions.c.epoch == stored.epoch,
                sessions.c.version <= stored.version,
            )
            .values(version=stored.version, state=state)
        )
        return (await connection.execute(saved)).rowcount == 1


async def lock_session(connection: AsyncConnection, key: SessionKey) -> None:
    """Lock the session's row until the transaction ends, so that counts over its tasks stay valid.

    Inserts a missing row.

    On SQLite there is a single writer anyway.
    """
    empty = bind_to_row(SessionState().model_dump_json(), key.tenant, key.session)
    await insert_if_absent(connection, sessions, {**key.model_dump(), "epoch": 0, "version": 0, "state": empty})
    held = select(sessions.c.epoch).where(sessions.c.tenant == key.tenant, sessions.c.session == key.session)
    await connection.execute(held.with_for_update())
