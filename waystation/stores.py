"""The store of these settings: which database, and with which key its texts are encrypted."""

from contextlib import aclosing

from waystation.adapters.clock import utc_now
from waystation.adapters.presidio.key import key_check
from waystation.adapters.store import AtRest, SqlStore
from waystation.adapters.store.administration import is_there
from waystation.domain.errors import StoreError
from waystation.keyring import first_key, foreign_key, lost_key, other_key, own_cipher, present_cipher, present_key
from waystation.settings import Settings


async def opened_store(settings: Settings) -> SqlStore:
    """Open it; whoever asks closes it.

    Raises as `SqlStore.open` does; and BadInput where texts are to be encrypted with another key than the workers of
    this store have, since nobody could read what was written then.
    """
    seals = settings.encrypts_at_rest
    cipher = own_cipher(settings, "rest") if seals else present_cipher(settings, "rest")
    store = await SqlStore.open(settings.database_url, utc_now, at_rest=AtRest(cipher, seals))
    if seals and await store.key_check() not in {None, key_check(first_key(settings))}:
        await store.aclose()
        raise other_key(settings)
    return store


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
