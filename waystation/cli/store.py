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
store = typer.Typer(name="store", help="Inspect and upgrade the store's database.", no_args_is_help=True)
app.add_typer(store)


@store.callback()
def _store() -> None:
    """Inspect and upgrade the store's database."""


@store.command("migrate")
def migrate_store(as_json: JsonOption = False) -> None:
    """Upgrade the database to this version's schema. It is safe to run repeatedly and concurrently.

    This is the only way to upgrade a PostgreSQL database. Running workers of an older version continue, but cannot
    start again.
    """
    done = asyncio.run(migrate(Settings().database_url, utc_now))
    if as_json:
        print_json(done)
    elif done.before == done.after:
        print_text(f"The schema is already {done.after}: nothing to do.")
    else:
        print_text(
            f"Upgraded from {f'schema {done.before}' if done.before else 'an empty database'} to schema {done.after}."
        )


@store.command("reseal")
def reseal_store() -> None:
    """Rewrite every text of the store: encrypted with this machine's key, or as plain text if encryption is off.

    Encrypted texts are bound to their rows. After this command, the store rejects plain texts, and texts that were
    moved to another row; until then, it reads them. Stop the workers first, or they wait: everything is one
    transaction.
    """
    settings = Settings()
    count = asyncio.run(reencrypt_store(settings))
    kept = "encrypted, each bound to its row" if settings.encrypts_at_rest else "plain"
    print_text(f"{count:,} texts are now {kept}.")


@store.command("adopt-key")
def adopt_key(yes: Annotated[bool, typer.Option("--yes", help="Do not ask for confirmation.")] = False) -> None:
    """Make this machine's key the key of the store, if the earlier key was lost or replaced.

    All work continues. Data that the lost key encrypted (the originals of placeholders, and texts if they are
    encrypted) stays unreadable without it; if you find the key, add it to WAYSTATION_PREVIOUS_KEYS. New texts get other
    placeholders.
    """
    print_text(asyncio.run(_adopt_key(yes=yes)))


async def _adopt_key(*, yes: bool) -> str:
    settings = Settings()
    check = compute_key_check(load_oldest_key(settings))
    async with aclosing(await SqlStore.open(settings.database_url, utc_now)) as opened:
        if await opened.get_key_check() == check:
            return "The store already has this key: nothing to do."
        if not yes and not await ask_confirmation(
            "Make the key of this machine the key of the store? Data that only the earlier key can decrypt "
            "stays unreadable. [y/N]"
        ):
            return "Nothing was changed: the store keeps its earlier key."
        await opened.adopt_key(check)
    return "The store now has this key. Restart all workers with this key."


@store.command("status")
def show_status(as_json: JsonOption = False) -> None:
    """Show the state of the database. Exits with 1 if this version of Waystation cannot use it yet."""
    status = asyncio.run(load_store_status(Settings().database_url))
    if as_json:
        print_json(status)
    else:
        print_text(f"{status.backend} at {status.place}")
        print_text(f"store {status.store_id or 'none yet'}")
        print_text(
            f"schema {status.schema_here or 'none yet'}; this version of Waystation needs {status.schema_needed}"
        )
        if status.encrypted or status.plain:
            print_text(f"{status.encrypted:,} texts encrypted, {status.plain:,} plain")
        print_text(status.finding)
    raise typer.Exit(OK if status.ready else WORK_FAILED)
