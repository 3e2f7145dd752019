"""`waystation store`: operations on the database as a whole."""

import asyncio
from contextlib import aclosing
from typing import Annotated

import typer

from waystation.cli.console import OK, WORK_FAILED, ask_confirmation, print_json, print_text
from waystation.cli.options import JsonOption
from waystation.config.settings import Settings
from waystation.kernel.clock import utc_now
from waystation.privacy.key_file import compute_key_check
from waystation.runtime.sql_store import SqlStore, load_store_status, migrate
from waystation.runtime.store_setup import load_oldest_key, reencrypt_store

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


@store.command("reseal")
def reseal_store() -> None:
    """Write every text of the store anew: encrypted with the key of this machine, each to its own row; or plain, where
    encryption is off.

    From then on what is plain, or was moved to another row, is refused. Until then both are read. Stop the
    workers, or let them wait: it is one transaction.
    """
    settings = Settings()
    count = asyncio.run(reencrypt_store(settings))
    kept = "encrypted, each to its row" if settings.encrypts_at_rest else "plain"
    print_text(f"{count:,} texts are {kept} now")


@store.command("adopt-key")
def adopt_key(yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False) -> None:
    """Make the key of this machine the store's, because the one before is lost or was replaced.

    All work goes on. What the lost key encrypted (originals of placeholders; texts, where they are encrypted) stays
    unreadable without it; WAYSTATION_PREVIOUS_KEYS takes it, if it turns up. Placeholders of new text are others.
    """
    print_text(asyncio.run(_adopt_key(yes=yes)))


async def _adopt_key(*, yes: bool) -> str:
    settings = Settings()
    check = compute_key_check(load_oldest_key(settings))
    async with aclosing(await SqlStore.open(settings.database_url, utc_now)) as opened:
        if await opened.get_key_check() == check:
            return "the store has this key already: nothing to do"
        if not yes and not await ask_confirmation("Give the store another key than its workers have had? [y/N]"):
            return "the store keeps its key"
        await opened.adopt_key(check)
    return "the store has this key now: start its workers again, all with this key"


@store.command("status")
def show_status(as_json: JsonOption = False) -> None:
    """Show what the database is, and what this version of Waystation needs. Exit code 1 where it cannot be used yet."""
    status = asyncio.run(load_store_status(Settings().database_url))
    if as_json:
        print_json(status)
    else:
        print_text(f"{status.backend} at {status.place}")
        print_text(f"store {status.store_id or 'none yet'}")
        print_text(
            f"schema {status.schema_here or 'none yet'}; this version of Waystation works with {status.schema_needed}"
        )
        if status.encrypted or status.plain:
            print_text(f"{status.encrypted:,} texts encrypted, {status.plain:,} plain")
        print_text(status.finding)
    raise typer.Exit(OK if status.ready else WORK_FAILED)
