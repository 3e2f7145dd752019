"""How this process reads and writes what Temporal keeps, by the settings."""

from temporalio.converter import DataConverter

from waystation.adapters.keys import Sealer
from waystation.adapters.presidio.key import key_check
from waystation.adapters.store import SqlStore
from waystation.adapters.temporal.codec import PayloadEncryption, converter_with
from waystation.keyring import first_key, other_key, own_key, present_key, previous_keys
from waystation.settings import Settings


def payload_codec(settings: Settings) -> PayloadEncryption:
    """Decrypts with every key that is there, and encrypts with the first of them where that is set. Raises BadInput."""
    own = own_key(settings) if settings.encrypts_payloads else present_key(settings)
    keys = (*(() if own is None else (own,)), *previous_keys(settings))
    sealers = {sealer.key_id: sealer for sealer in (Sealer(key, "payloads") for key in keys)}
    return PayloadEncryption(sealers, next(iter(sealers)) if settings.encrypts_payloads else None)


def data_converter(settings: Settings) -> DataConverter:
    """For clients and workers. Raises BadInput."""
    return converter_with(payload_codec(settings))


async def require_key_of(store: SqlStore, settings: Settings) -> None:
    """Refuse to encrypt where the key of this store's workers is not here: they could not read what was sent, and a
    workflow that cannot read a message stands still. Raises BadInput.
    """
    if not settings.encrypts_payloads:
        return
    if await store.key_check() not in {None, key_check(first_key(settings))}:
        raise other_key(settings)
