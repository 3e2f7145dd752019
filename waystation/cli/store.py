"""`waystation store`: operations on the database as a whole."""

import asyncio
from contextlib import aclosing
from typing import Annotated

import typer

from waystation.cli.console import OK, WORK_FAILED, ask_confirmation, print_json, print_text
from waystation.cli.options import JsonOption
from waystation.config.settings import Settings
from waystation.kernel.clock import utc_now
from waystation.kernel.text import format_count
from waystation.privacy.key_file import compute_key_check
from waystation.runtime.reencryption import ResealReport
from waystation.runtime.sql_store import SqlStore, load_store_status, migrate
from waystation.runtime.store_setup import load_known_keys, load_oldest_key, reencrypt_store, split_row_keys

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
        print_text(f"The database already has schema {done.after}: nothing to do.")
    else:
        print_text(
            f"Upgraded from {f'schema {done.before}' if done.before else 'an empty database'} to schema {done.after}."
        )


@store.command("reseal")
def reseal_store(
    accept_refused: Annotated[
        bool,
        typer.Option(
            "--accept-refused",
            help="Also rewrite what the store refuses to read: plain-text rows of an encrypted store, rows encrypted "
            "with keys that an earlier `reseal` retired, and a database without the record that it is encrypted, or of "
            "the key that the last `reseal` used.",
        ),
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Rewrite everything in the store with this machine's key. Stop the workers first.

    If encryption is off, texts become plain text; the vault is always encrypted. Encrypted values are bound to their
    rows. After this command, the store rejects unencrypted texts, values that were moved to another row, and values
    under previous keys; until then, it reads unencrypted texts and values under previous keys. Everything is one
    transaction: if the command is interrupted, nothing has changed, and you can run it again.
    """
    settings = Settings()
    report = asyncio.run(reencrypt_store(settings, accepts_refused=accept_refused))
    if as_json:
        print_json(report)
    else:
        print_text(format_reseal_report(report, encrypts=settings.encrypts_at_rest))


def format_reseal_report(report: ResealReport, *, encrypts: bool) -> str:
    """Format how many rows of which kind were rewritten."""
    vault = report.vault
    lines = [
        f"{format_count(report.texts, 'text')} rewritten"
        + (": encrypted with the present key, each bound to its row." if encrypts else " as plain text."),
        f"{format_count(report.owner_proofs, 'proof')} of ownership (of tasks, agent runs and texts) rewritten.",
        f"Vault, rewritten with the present key: {format_count(vault.originals, 'original')}, "
        f"{format_count(vault.secrets, 'secret')} of tool servers, and {format_count(vault.session_proofs, 'proof')} "
        "that a value occurred in a session.",
    ]
    if vault.unreadable:
        lines.append(
            f"Vault: {format_count(vault.unreadable, 'value')} not rewritten, because no key on this machine can "
            f"decrypt {'it' if vault.unreadable == 1 else 'them'}."
        )
    return "\n".join(lines)


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
    check, keys = compute_key_check(load_oldest_key(settings)), load_known_keys(settings)
    async with aclosing(await SqlStore.open(settings.database_url, utc_now)) as opened:
        # The key under which everything was last rewritten may be lost, too.
        has_row_key = split_row_keys(keys, opened.row_key_check) is not None
        if await opened.get_key_check() == check and has_row_key:
            return "The store already has this machine's key: nothing to do."
        if not yes and not await ask_confirmation(
            "Make the key of this machine the key of the store? Data that only the earlier key can decrypt "
            "stays unreadable. [y/N]"
        ):
            return "Nothing was changed: the store keeps its earlier key."
        await opened.adopt_key(check, None if has_row_key else compute_key_check(keys[0]))
    return "The store now has this machine's key. Restart all workers with this key."


@store.command("status")
def show_status(as_json: JsonOption = False) -> None:
    """Show the state of the database. Exits with 1 if this version of Waystation cannot use it yet."""
    status = asyncio.run(load_store_status(Settings().database_url))
    if as_json:
        print_json(status)
    else:
        print_text(f"{status.backend} at {status.place}")
        print_text(f"store {status.store_id}" if status.store_id else "no store yet")
        schema = f"schema {status.schema_here}" if status.schema_here else "no schema yet"
        print_text(f"{schema}; this version of Waystation needs schema {status.schema_needed}")
        if status.encrypted or status.plain:
            print_text(f"{status.encrypted:,} texts encrypted, {status.plain:,} plain")
        print_text(status.finding)
    raise typer.Exit(OK if status.ready else WORK_FAILED)
