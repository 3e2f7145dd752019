"""Creates the engine of PostgreSQL: with any team's URL, and through PgBouncer."""

from asyncpg import Connection as AsyncpgConnection
from sqlalchemy import event
from sqlalchemy.engine import URL
from sqlalchemy.engine.interfaces import DBAPIConnection
from sqlalchemy.exc import DisconnectionError
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine
from sqlalchemy.pool import ConnectionPoolEntry, PoolProxiedConnection

from waystation.kernel.errors import BadInput
from waystation.store.storable_text import replace_unstorable_text

POOL_SIZE = 10
"""Maximum connections of one process. All its agents share them: they wait for the model far longer than for this."""

CONNECT_TIMEOUT_S = 10
POOL_TIMEOUT_S = 30

PREPARED_STATEMENTS_PARAMETER = "prepared_statements"
"""Of the URL, `true` or `false`. Without it they are used, unless `pgbouncer=true` says that a pooler comes first."""
CLIENT_ONLY_PARAMETERS = {"connect_timeout", "pgbouncer", PREPARED_STATEMENTS_PARAMETER}
"""Parameters that we or other drivers read out of a URL. asyncpg would hand them to the server, which refuses them."""
MAX_PREPARED_STATEMENTS = 250
"""Of each connection: more than there are for agents at work."""


def create_postgresql_engine(url: URL, answer_timeout_s: float | None) -> AsyncEngine:
    """Nothing is opened yet. asyncpg itself reads the URL, and so understands `sslmode` and the like as libpq does."""
    kept_statements = MAX_PREPARED_STATEMENTS if allows_prepared_statements(url) else 0
    engine = create_async_engine(
        "postgresql+asyncpg://",
        connect_args={
            "dsn": _dsn(url),
            "timeout": CONNECT_TIMEOUT_S,
            "command_timeout": answer_timeout_s,
            # SQLAlchemy keeps them, but asyncpg gives them names only where it would keep some, too. 0: no names. In
            # PgBouncer's transaction mode the next transaction may have another connection, which knows none of them.
            "statement_cache_size": kept_statements,
            "prepared_statement_cache_size": kept_statements,
        },
        pool_size=POOL_SIZE,
        max_overflow=0,
        pool_timeout=POOL_TIMEOUT_S,
        # Parameters are conversation and document text: an error must never print them.
        hide_parameters=True,
    )
    event.listen(engine.sync_engine, "before_cursor_execute", replace_unstorable_text, retval=True)
    event.listen(engine.sync_engine, "checkout", _require_open)
    return engine


def allows_prepared_statements(url: URL) -> bool:
    """Whether each connection keeps the statements that it has prepared. Raises BadInput where the URL is unclear."""
    said = url.query.get(PREPARED_STATEMENTS_PARAMETER)
    if said is None:
        return str(url.query.get("pgbouncer", "false")).lower() not in {"true", "1"}
    if said not in {"true", "false"}:
        raise BadInput(
            f"{PREPARED_STATEMENTS_PARAMETER} in DATABASE_URL is neither true nor false: set it to one of them"
        )
    return said == "true"


def _require_open(connection: DBAPIConnection, _entry: ConnectionPoolEntry, _proxy: PoolProxiedConnection) -> None:
    """Have the pool replace a connection that is known to be closed. What is not known yet shows in its first use."""
    driver = connection.driver_connection
    if isinstance(driver, AsyncpgConnection) and driver.is_closed():
        raise DisconnectionError


def _dsn(url: URL) -> str:
    query = {name: value for name, value in url.query.items() if name not in CLIENT_ONLY_PARAMETERS}
    if "ssl" in query:  # as SQLAlchemy's users write it
        query["sslmode"] = query.pop("ssl")
    return url.set(drivername="postgresql", query=query).render_as_string(hide_password=False)
