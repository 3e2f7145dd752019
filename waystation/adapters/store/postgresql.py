"""PostgreSQL: how it is reached, whatever a team's URL says, and through PgBouncer too."""

from sqlalchemy.engine import URL
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

POOL_SIZE = 10
"""Connections of one process at most. All its agents share them: they wait for the model far longer than for this."""

CONNECT_TIMEOUT_S = 10
POOL_TIMEOUT_S = 30

NOT_FOR_THE_SERVER = {"connect_timeout", "pgbouncer"}
"""Parameters that other drivers read out of a URL. asyncpg would hand them to the server, which refuses them."""


def postgresql_engine(url: URL, answer_timeout_s: float | None) -> AsyncEngine:
    """Nothing is opened yet. asyncpg itself reads the URL, and so understands `sslmode` and the like as libpq does."""
    return create_async_engine(
        "postgresql+asyncpg://",
        connect_args={
            "dsn": _dsn(url),
            "timeout": CONNECT_TIMEOUT_S,
            "command_timeout": answer_timeout_s,
            # Unnamed statements: in PgBouncer's transaction mode the next transaction has another connection, which
            # knows none of the names.
            "statement_cache_size": 0,
            "prepared_statement_cache_size": 0,
        },
        pool_size=POOL_SIZE,
        max_overflow=0,
        pool_timeout=POOL_TIMEOUT_S,
        pool_pre_ping=True,
        # Parameters are conversation and document text: an error must never print them.
        hide_parameters=True,
    )


def _dsn(url: URL) -> str:
    query = {name: value for name, value in url.query.items() if name not in NOT_FOR_THE_SERVER}
    if "ssl" in query:  # as SQLAlchemy's users write it
        query["sslmode"] = query.pop("ssl")
    return url.set(drivername="postgresql", query=query).render_as_string(hide_password=False)
