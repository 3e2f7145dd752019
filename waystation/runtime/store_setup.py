"""The store of these settings, the key of this installation, and the ciphers of stored texts and Temporal payloads that
use it.
"""

from collections.abc import Collection, Mapping
from contextlib import aclosing, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from waystation.config.settings import Settings
from waystation.kernel.cipher import Cipher
from waystation.kernel.clock import utc_now
from waystation.kernel.errors import BadInput, StoreError, WrongKey
from waystation.kernel.files import create_private_folder, ensure_private_file
from waystation.kernel.ids import short_hash
from waystation.kernel.temporal_names import TOOL_SECRETS
from waystation.privacy.key_file import compute_key_check, parse_hex_key, resolve_key
from waystation.privacy.keys import AesGcmCipher, KeyPurpose, MultiKeyCipher
from waystation.runtime.reencryption import reencrypt_database
from waystation.runtime.sql_store import SqlStore, format_database_location, has_database
from waystation.store.encryption import EncryptionConfig
from waystation.store.engine import Database, parse_database_url, run_to_completion, translate_database_errors

if TYPE_CHECKING:
    from temporalio.converter import DataConverter

    from waystation.runtime.temporal.codec import EncryptionCodec


def load_or_create_installation_key(settings: Settings) -> bytes:
    """Return the configured key, or the one in the home folder, which is created if missing. Raises BadInput."""
    try:
        return resolve_key(settings.key.get_secret_value() if settings.key else None, settings.key_file)
    except ValueError as error:
        raise BadInput(f"{error}: restore the right file, or set WAYSTATION_KEY") from error


def load_key_if_exists(settings: Settings) -> bytes | None:
    """Return the key; None if there is none. None is created. Raises BadInput."""
    return load_or_create_installation_key(settings) if settings.key or settings.key_file.exists() else None


def load_previous_keys(settings: Settings) -> tuple[bytes, ...]:
    """Return the keys used earlier, the newest first. Raises BadInput."""
    if settings.previous_keys is None:
        return ()
    try:
        return tuple([parse_hex_key(one) for one in settings.previous_keys.get_secret_value().split(",")])
    except BadInput as error:
        raise BadInput(f"WAYSTATION_PREVIOUS_KEYS: {error}") from None


def load_oldest_key(settings: Settings) -> bytes:
    """Return the oldest known key: it makes all placeholders, so that a new key changes none. Raises BadInput."""
    return (load_or_create_installation_key(settings), *load_previous_keys(settings))[-1]


def build_cipher(settings: Settings, purpose: KeyPurpose) -> Cipher:
    """Build a cipher that encrypts with the key, which is created if missing, and also decrypts with previous keys.

    Raises BadInput.
    """
    return _cipher((load_or_create_installation_key(settings), *load_previous_keys(settings)), purpose)


def build_cipher_if_key_exists(settings: Settings, purpose: KeyPurpose) -> Cipher | None:
    """Build the cipher without creating a key; None if there is none. Raises BadInput."""
    key = load_key_if_exists(settings)
    keys = (*(() if key is None else (key,)), *load_previous_keys(settings))
    return _cipher(keys, purpose) if keys else None


def build_missing_key_error(settings: Settings, what: str) -> BadInput:
    """Build the error for a person who wants to read encrypted data without a key."""
    return BadInput(
        f"{what} is encrypted, and the key is missing: set WAYSTATION_KEY to the key of the workers, or "
        f"restore their key file as {settings.key_file}"
    )


def build_wrong_key_error(settings: Settings) -> BadInput:
    """Build the error for a person whose key does not decrypt the data."""
    given = "WAYSTATION_KEY" if settings.key else str(settings.key_file)
    return BadInput(
        f"the key in {given} is not the key that this data was encrypted with: set WAYSTATION_KEY to the key of "
        "the workers, or restore their key file. Older keys can be listed in WAYSTATION_PREVIOUS_KEYS"
    )


def build_placeholder_key_missing_error(settings: Settings) -> BadInput:
    """Build the error for a person who would create a new key although the store has one."""
    return BadInput(
        "the key of the store's placeholders is missing, and a new key would make other placeholders: set "
        f"WAYSTATION_KEY to the key of the workers, or restore their key file as {settings.key_file}. If the "
        "key is lost, `waystation store adopt-key` replaces it with a new one"
    )


def build_placeholder_key_mismatch_error(settings: Settings) -> BadInput:
    """Build the error for a person whose key does not match the store's placeholders."""
    given = "WAYSTATION_KEY" if settings.key else str(settings.key_file)
    return BadInput(
        f"the key in {given} is not the key of the store's placeholders: set WAYSTATION_KEY to the key of the "
        "workers, or restore their key file. If that key is lost, `waystation store adopt-key` replaces it "
        "with this one"
    )


def _cipher(keys: tuple[bytes, ...], purpose: KeyPurpose) -> Cipher:
    return MultiKeyCipher([AesGcmCipher(key, purpose) for key in keys])


async def open_store(settings: Settings) -> SqlStore:
    """Open the store; the caller closes it.

    Raises:
        BadInput: Texts would be encrypted with another key than the one of this store's workers, which could not read
            them; also as `SqlStore.open`.
        StoreUnavailable: The database does not answer.
        StoreError: Everything was encrypted when this machine last opened the store, and the database no longer says
            so, or the settings demand it and the store is not encrypted as a whole; also as `SqlStore.open`.
    """
    store = await _opened(settings)
    store_id = await store.get_store_id()
    if store.is_row_encrypted:
        _remember_sealed(settings, store_id)
    elif settings.encrypt_at_rest:
        # Said explicitly, and not only by a key: the one check that needs no file in the home folder.
        await store.aclose()
        raise StoreError(
            "WAYSTATION_ENCRYPT_AT_REST=true demands an encrypted store, but the database does not say that all texts "
            "of this one are encrypted. If encryption was just turned on, stop the workers and run "
            "`waystation store reseal`. If the store was encrypted before, another program has changed the database: "
            "restore it from a backup"
        )
    elif any(seen.exists() for seen in _seen_sealed(settings, store_id)):
        await store.aclose()
        raise StoreError(
            "this store was fully encrypted, but its database no longer says so: "
            "encryption was turned off from another machine, another database is in its place, or another "
            "program has changed it. Restore the database from a backup, or accept it as it is with "
            "`waystation store reseal`"
        )
    return store


def _seen_sealed(settings: Settings, store_id: str) -> tuple[Path, Path]:
    """Return the empty files by which this machine remembers that everything in the store is encrypted.

    The database says so in the clear, and an attacker who can write plain rows into it could remove that. One file is
    named after the database's location, which no database contains; the other, after the store's id, recognises it at
    another location.
    """
    url = parse_database_url(settings.database_url)
    place = (
        str(Path(format_database_location(url)).resolve())
        if url.get_backend_name() == "sqlite"
        else format_database_location(url)
    )
    return settings.home / f"sealed-{short_hash(place)}", settings.home / f"sealed-{short_hash(store_id)}"


def _remember_sealed(settings: Settings, store_id: str) -> None:
    with suppress(OSError):  # on a machine that cannot store files, the database is believed
        for seen in _seen_sealed(settings, store_id):
            ensure_private_file(create_private_folder(settings.home) / seen.name)


async def _opened(settings: Settings) -> SqlStore:
    seals = settings.encrypts_at_rest
    cipher = build_cipher(settings, "rest") if seals else build_cipher_if_key_exists(settings, "rest")
    store = await SqlStore.open(settings.database_url, utc_now, at_rest=EncryptionConfig(cipher, seals))
    if seals and await store.get_key_check() not in {None, compute_key_check(load_oldest_key(settings))}:
        await store.aclose()
        raise build_wrong_key_error(settings)
    return store


async def reencrypt_store(settings: Settings) -> int:
    """Rewrite every text of the store as these settings require: encrypted with the key, or plain.

    Returns the number of texts. Raises as `open_store` does, and WrongKey if a text cannot be read.
    """
    async with aclosing(
        await _opened(settings)
    ) as store:  # checks the schema version, and that the key is its workers'
        store_id = await store.get_store_id()
    seals = settings.encrypts_at_rest
    cipher = build_cipher(settings, "rest") if seals else build_cipher_if_key_exists(settings, "rest")
    with translate_database_errors():
        async with aclosing(Database(settings.database_url, None, EncryptionConfig(cipher, seals))) as database:
            count = await run_to_completion(reencrypt_database(database, utc_now, seals=seals))
            await run_to_completion(database.truncate_write_ahead_log())
    if seals:
        _remember_sealed(settings, store_id)
    else:
        for seen in _seen_sealed(settings, store_id):
            seen.unlink(missing_ok=True)
    return count


async def get_placeholder_key(store: SqlStore, settings: Settings) -> bytes:
    """Return the key of this store's placeholders. It is created only if no worker has one yet.

    Raises:
        BadInput: The store has another key: placeholders made with this one would match nothing there.
    """
    known = await store.get_key_check()
    if known is not None and load_key_if_exists(settings) is None:
        raise build_placeholder_key_missing_error(settings)
    key = load_oldest_key(settings)
    if known not in {None, compute_key_check(key)}:
        raise build_placeholder_key_mismatch_error(settings)
    return key


async def find_placeholder_key(settings: Settings) -> bytes:
    """Return the placeholder key for a command that needs no store: an existing store is asked, none is created.

    If it does not answer, an existing key is used as it is. Raises as `get_placeholder_key`, and StoreError.
    """
    if not has_database(settings.database_url):
        return load_oldest_key(settings)
    try:
        async with aclosing(await SqlStore.open(settings.database_url, utc_now)) as store:
            return await get_placeholder_key(store, settings)
    except StoreError:
        if load_key_if_exists(settings) is None:
            raise
        return load_oldest_key(settings)


def build_payload_codec(settings: Settings) -> "EncryptionCodec":
    """Build the codec: it decrypts with every known key, and encrypts with the first if that is enabled.

    Raises BadInput.
    """
    from waystation.runtime.temporal.codec import EncryptionCodec  # noqa: PLC0415

    own = load_or_create_installation_key(settings) if settings.encrypts_payloads else load_key_if_exists(settings)
    keys = (*(() if own is None else (own,)), *load_previous_keys(settings))
    sealers = {sealer.key_id: sealer for sealer in (AesGcmCipher(key, "payloads") for key in keys)}
    return EncryptionCodec(sealers, next(iter(sealers)) if settings.encrypts_payloads else None)


def build_client_data_converter(settings: Settings) -> "DataConverter":
    """Build the data converter of clients and workers. Raises BadInput."""
    from waystation.runtime.temporal.codec import build_data_converter  # noqa: PLC0415

    return build_data_converter(build_payload_codec(settings))


async def require_store_key(store: SqlStore, settings: Settings) -> None:
    """Refuse to encrypt without the key of this store's workers.

    They could not read what was sent, and a workflow that cannot read a message makes no progress.

    Raises:
        BadInput: The key is missing or another one.
    """
    if not settings.encrypts_payloads:
        return
    if await store.get_key_check() not in {None, compute_key_check(load_oldest_key(settings))}:
        raise build_wrong_key_error(settings)


async def load_tool_secrets(settings: Settings, store: SqlStore, names: Collection[str]) -> Mapping[str, str]:
    """Load these secrets of tool servers from the vault, by name. Raises BadInput if the key is missing."""
    if not names:
        return {}
    if (cipher := build_cipher_if_key_exists(settings, "vault")) is None:
        if await store.get_key_check() is None:
            return {}  # nothing has been encrypted yet
        raise build_missing_key_error(settings, "a secret of a tool server")
    try:
        return await store.build_vault(cipher).load_originals(TOOL_SECRETS, names)
    except WrongKey:
        raise build_wrong_key_error(settings) from None
