"""The store of these settings: which database, and with which key its texts are encrypted."""

from waystation.adapters.clock import utc_now
from waystation.adapters.presidio.key import key_check
from waystation.adapters.store import AtRest, SqlStore
from waystation.keyring import first_key, other_key, own_cipher, present_cipher
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
