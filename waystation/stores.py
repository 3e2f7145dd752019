"""The store of these settings: which database, and with which key its texts are encrypted."""

from contextlib import aclosing, suppress
from pathlib import Path

from waystation.adapters.clock import utc_now
from waystation.adapters.presidio.key import key_check
from waystation.adapters.store import AtRest, SqlStore
from waystation.adapters.store.administration import is_there, place_of
from waystation.adapters.store.engine import Database, parsed_url, to_its_end
from waystation.adapters.store.errors import translated
from waystation.adapters.store.resealing import reseal
from waystation.domain.errors import StoreError
from waystation.domain.task import short_hash
from waystation.keyring import first_key, foreign_key, lost_key, other_key, own_cipher, present_cipher, present_key
from waystation.private_files import private_file, private_folder
from waystation.settings import Settings


async def opened_store(settings: Settings) -> SqlStore:
    """Open it; whoever asks closes it.

    Raises as `SqlStore.open` does; and BadInput where texts are to be encrypted with another key than the workers of
    this store have, since nobody could read what was written then; StoreError where everything in it was encrypted
    when this machine last saw it, and the database does not say so any more.
    """
    store = await _opened(settings)
    if store.sealed:
        _remember_sealed(settings)
    elif _seen_sealed(settings).exists():
        await store.aclose()
        raise StoreError(
            "everything in the store at this place was encrypted, and the database does not say so any more: it "
            "comes from an earlier release, encryption was turned off from another machine, or something else than "
            "Waystation has changed it. Restore the database from a backup; `waystation store reseal` takes it as it is"
        )
    return store


def _seen_sealed(settings: Settings) -> Path:
    """An empty file by which this machine knows that everything in the store is encrypted.

    The database says it in the clear, and whoever can write plain rows into it could take that away. So the file is
    called after the place where the database is: everything in the database is theirs to change, its id included.
    """
    url = parsed_url(settings.database_url)
    place = str(Path(str(url.database)).resolve()) if url.get_backend_name() == "sqlite" else place_of(url)
    return settings.home / f"sealed-{short_hash(place)}"


def _remember_sealed(settings: Settings) -> None:
    with suppress(OSError):  # on a machine that keeps nothing the database is believed
        private_file(private_folder(settings.home) / _seen_sealed(settings).name)


async def _opened(settings: Settings) -> SqlStore:
    seals = settings.encrypts_at_rest
    cipher = own_cipher(settings, "rest") if seals else present_cipher(settings, "rest")
    store = await SqlStore.open(settings.database_url, utc_now, at_rest=AtRest(cipher, seals))
    if seals and await store.key_check() not in {None, key_check(first_key(settings))}:
        await store.aclose()
        raise other_key(settings)
    return store


async def resealed(settings: Settings) -> int:
    """Write every text of the store as these settings have it: sealed with the key, or plain; how many there were.

    Raises as `opened_store` does, and WrongKey where a text cannot be read.
    """
    await (await _opened(settings)).aclose()  # it is this version's, and the key is its workers'
    seals = settings.encrypts_at_rest
    cipher = own_cipher(settings, "rest") if seals else present_cipher(settings, "rest")
    with translated():
        async with aclosing(Database(settings.database_url, None, AtRest(cipher, seals))) as database:
            count = await to_its_end(reseal(database, utc_now, seals=seals))
            await to_its_end(database.empty_log())
    if seals:
        _remember_sealed(settings)
    else:
        _seen_sealed(settings).unlink(missing_ok=True)
    return count


async def key_of(store: SqlStore, settings: Settings) -> bytes:
    """The key of this store's placeholders. It is made only where no worker has one yet.

    Raises BadInput where the store knows another one: placeholders that are made with it would match nothing there.
    """
    known = await store.key_check()
    if known is not None and present_key(settings) is None:
        raise lost_key(settings)
    key = first_key(settings)
    if known not in {None, key_check(key)}:
        raise foreign_key(settings)
    return key


async def placeholder_key(settings: Settings) -> bytes:
    """The same for a command that needs no store: one that is there is asked, and none is made.

    Where it does not answer, a key that is here is taken as it is. Raises as `key_of`, and StoreError.
    """
    if not is_there(settings.database_url):
        return first_key(settings)
    try:
        async with aclosing(await SqlStore.open(settings.database_url, utc_now)) as store:
            return await key_of(store, settings)
    except StoreError:
        if present_key(settings) is None:
            raise
        return first_key(settings)
