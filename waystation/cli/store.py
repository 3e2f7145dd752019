"""`waystation store`: the database as a whole, for whoever operates it."""

import asyncio

import typer

from waystation.adapters.clock import utc_now
from waystation.adapters.store import migrate, store_status
from waystation.cli.console import print_json, print_text
from waystation.cli.failures import OK, WORK_FAILED
from waystation.cli.options import JsonOption
from waystation.settings import Settings

app = typer.Typer()
store = typer.Typer(name="store", help="Look at the store's database, and upgrade it.", no_args_is_help=True)
app.add_typer(store)


@store.callback()
def _store() -> None:
    """Look at the store's database, and upgrade it."""


@store.command("migrate")
def migrate_store(as_json: JsonOption = False) -> None:
    """Bring the database to this version's schema. May be run again, and by several at once.

    A PostgreSQL database is never upgraded otherwise. Workers of an older version that run meanwhile go on; they do not
    start again.
    """
    done = asyncio.run(migrate(Settings().database_url, utc_now))
    if as_json:
        print_json(done)
    elif done.before == done.after:
        print_text(f"schema {done.after} already: nothing to do")
    else:
        print_text(f"from {f'schema {done.before}' if done.before else 'an empty database'} to schema {done.after}")


@store.command("status")
def show_status(as_json: JsonOption = False) -> None:
    """Show what the database is, and what this version of Waystation needs. Exit code 1 where it cannot be used yet."""
    status = asyncio.run(store_status(Settings().database_url))
    if as_json:
        print_json(status)
    else:
        print_text(f"{status.backend} at {status.place}")
        print_text(f"store {status.store_id or 'none yet'}")
        print_text(
            f"schema {status.schema_here or 'none yet'}; this version of Waystation works with {status.schema_needed}"
        )
        print_text(status.finding)
    raise typer.Exit(OK if status.ready else WORK_FAILED)
