"""The store of these settings, the key of this installation, and the ciphers of stored texts and Temporal payloads that
use it.
"""

from collections.abc import Collection, Mapping, Sequence
from contextlib import aclosing, suppress
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from waystation.config.settings import Settings
from waystation.kernel.cipher import Cipher
from waystation.kernel.clock import utc_now
from waystation.kernel.errors import BadInput, StoreError, WrongKey
from waystation.kernel.files import create_private_folder, ensure_private_file
from waystation.kernel.ids import short_hash
from waystation.kernel.temporal_names import TOOL_SECRETS
from waystation.privacy.key_file import compute_key_check, parse_hex_key, resolve_key
from waystation.privacy.keys import AesGcmCipher, KeyPurpose, MultiKeyCipher
from waystation.privacy.vault_repository import SqlVault
from waystation.runtime.reencryption import PresentKey, ResealReport, reencrypt_database
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
    if settings.placeholder_key is not None:
        try:
            return parse_hex_key(settings.placeholder_key.get_secret_value())
        except BadInput as error:
            raise BadInput(f"WAYSTATION_PLACEHOLDER_KEY: {error}") from None
    return (load_or_create_installation_key(settings), *load_previous_keys(settings))[-1]


def load_known_keys(settings: Settings) -> tuple[bytes, ...]:
    """Return the key, if there is one, and the previous keys, the newest first. Raises BadInput."""
    key = load_key_if_exists(settings)
    return (*(() if key is None else (key,)), *load_previous_keys(settings))


class RowKeySelection(NamedTuple):
    """The keys of a machine, by whether rows of the store are accepted that were written with them. Newest first."""

    accepted: tuple[bytes, ...]
    retired: tuple[bytes, ...]

    def build_cipher(self, purpose: KeyPurpose) -> Cipher:
        """Build a cipher that encrypts with the present key, and refuses what a retired one encrypted."""
        sealers, retired = [[AesGcmCipher(key, purpose) for key in keys] for keys in self]
        return MultiKeyCipher(sealers, retired)


def split_row_keys(keys: Sequence[bytes], row_key_check: str | None) -> RowKeySelection | None:
    """Split a machine's keys, the newest first, by the key under which the store was last rewritten.

    That key and newer ones are accepted: a newer one is in use while the store was not rewritten with it yet. If it was
    never rewritten, all are accepted. None: the machine does not have the key, so all of its keys are outdated.
    """
    if row_key_check is None:
        return RowKeySelection(tuple(keys), ())
    checks = [compute_key_check(key) for key in keys]
    if row_key_check not in checks:
        return None
    end = checks.index(row_key_check) + 1
    return RowKeySelection(tuple(keys[:end]), tuple(keys[end:]))


def build_cipher(settings: Settings, purpose: KeyPurpose) -> Cipher:
    """Build a cipher that encrypts with the key, which is created if missing, and also decrypts with previous keys.

    For a store that is open, `build_store_vault` refuses retired keys. Raises BadInput.
    """
    load_or_create_installation_key(settings)
    return RowKeySelection(load_known_keys(settings), ()).build_cipher(purpose)


def build_store_vault(store: SqlStore, settings: Settings) -> SqlVault:
    """Build the vault of this store. The key is created if missing. Raises BadInput."""
    load_or_create_installation_key(settings)
    vault = build_vault_if_key_exists(store, settings)
    assert vault is not None
    return vault


def build_vault_if_key_exists(store: SqlStore, settings: Settings) -> SqlVault | None:
    """Build the vault of this store without creating a key; None if there is none.

    Raises:
        BadInput: A key is not one, or the store was rewritten with a newer key than this machine has.
    """
    if not (keys := load_known_keys(settings)):
        return None
    if (row_keys := split_row_keys(keys, store.row_key_check)) is None:
        raise build_outdated_key_error(settings)
    return store.build_vault(row_keys.build_cipher("vault"))


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
    if settings.placeholder_key is not None:
        return BadInput(
            "the key in WAYSTATION_PLACEHOLDER_KEY is not the key of the store's placeholders: set this "
            "variable to the oldest key, as on the workers. Do not change it when you replace WAYSTATION_KEY"
        )
    given = "WAYSTATION_KEY" if settings.key else str(settings.key_file)
    return BadInput(
        f"the key in {given} is not the key of the store's placeholders: set WAYSTATION_KEY to the key of the "
        "workers, or restore their key file. If the key of the placeholders is lost, `waystation store adopt-key` "
        f"replaces it with the key in {given}"
    )


def build_outdated_key_error(settings: Settings) -> BadInput:
    """Build the error for a person whose machine does not have the key with which the store was rewritten."""
    given = "WAYSTATION_KEY" if settings.key else str(settings.key_file)
    return BadInput(
        f"this store was rewritten with a newer key than the one in {given}: set WAYSTATION_KEY to the key of the "
        "workers, and put the older key at the beginning of WAYSTATION_PREVIOUS_KEYS. If the newer key is lost, "
        "`waystation store adopt-key` replaces it with the older one"
    )


async def open_store(settings: Settings) -> SqlStore:
    """Open the store; the caller closes it.

    Raises:
        BadInput: Texts would be encrypted with another key than the one of this store's workers, which could not read
            them; also as `SqlStore.open`.
        StoreUnavailable: The database does not answer.
        StoreError: Everything was encrypted, or rewritten with a newer key, when this machine last opened the store,
            and the database no longer says so; or the settings demand it and the store is not encrypted as a whole;
            also as `SqlStore.open`.
    """
    store = await _opened(settings)
    try:
        _require_demanded_encryption(store, settings)
        await _compare_with_memory(store, settings)
    except BaseException:
        await store.aclose()
        raise
    return store


def _require_demanded_encryption(store: SqlStore, settings: Settings) -> None:
    """Refuse a store with plain texts if WAYSTATION_ENCRYPT_AT_REST is true, and not only implied by a key.

    The one check that needs no file in the home folder.
    """
    if not store.is_row_encrypted and settings.encrypt_at_rest:
        raise StoreError(
            "WAYSTATION_ENCRYPT_AT_REST=true requires an encrypted store, but the database does not say that all of "
            "its texts are encrypted. If encryption was just turned on, stop the workers and run "
            "`waystation store reseal`. If the store was encrypted before, another program has changed the database: "
            "restore it from a backup"
        )


async def _compare_with_memory(store: SqlStore, settings: Settings) -> None:
    """Refuse a database that says less than it did when this machine last opened it, and remember what it says."""
    store_id = await store.get_store_id()
    if not store.is_row_encrypted and any(seen.exists() for seen in _seen_sealed(settings, store_id)):
        raise StoreError(
            "this store was fully encrypted, but its database no longer says so: "
            "encryption was turned off from another machine, another database is in its place, or another "
            "program has changed it. Restore the database from a backup, or accept it with "
            "`waystation store reseal --accept-refused`. If you turned encryption off, first set "
            "WAYSTATION_ENCRYPT_AT_REST=false on this machine, too: otherwise, the command may encrypt the store again"
        )
    checks = [compute_key_check(key) for key in load_known_keys(settings)]
    if checks and (seen := _seen_row_keys(settings, store_id)):
        newest = next((place for place, check in enumerate(checks) if check in seen), 0)
        if store.row_key_check is None or store.row_key_check in checks[newest + 1 :]:
            raise StoreError(
                "this store was rewritten with a newer key, but its database no longer says so: another database "
                "or an older backup is in its place, or another program has changed it. Restore a newer "
                "backup, or accept it with `waystation store reseal --accept-refused`"
            )
    # Only the check of a key that is here is remembered: the database could name anything, and it becomes a file name.
    known = store.row_key_check if store.row_key_check in checks else None
    _remember(settings, store_id, sealed=store.is_row_encrypted, row_key_check=known)


def _seen_sealed(settings: Settings, store_id: str) -> tuple[Path, Path]:
    """Return the empty files by which this machine remembers that everything in the store is encrypted.

    The database says so in the clear, and an attacker who can write plain rows into it could remove that. One file is
    named after the database's location, which no database contains; the other, after the store's id, recognises it at
    another location.
    """
    here, store = _hash_store_names(settings, store_id)
    return settings.home / f"sealed-{here}", settings.home / f"sealed-{store}"


def _seen_row_keys(settings: Settings, store_id: str) -> dict[str, list[Path]]:
    """Return the empty files by which this machine remembers under which keys the store was rewritten, by their checks.

    They are named like those of `_seen_sealed`, for the same reason: an attacker with a previous key and write access
    to the database could otherwise make it accept rows under that key again.
    """
    seen = dict[str, list[Path]]()
    for name in _hash_store_names(settings, store_id):
        for file in settings.home.glob(f"resealed-{name}-*"):
            seen.setdefault(file.name.rpartition("-")[2], []).append(file)
    return seen


def _hash_store_names(settings: Settings, store_id: str) -> tuple[str, str]:
    """Return hashes of the database's location and of the store's id."""
    url = parse_database_url(settings.database_url)
    place = (
        str(Path(format_database_location(url)).resolve())
        if url.get_backend_name() == "sqlite"
        else format_database_location(url)
    )
    return short_hash(place), short_hash(store_id)


def _remember(settings: Settings, store_id: str, *, sealed: bool, row_key_check: str | None) -> None:
    seen = list(_seen_sealed(settings, store_id)) if sealed else []
    if row_key_check is not None:
        names = _hash_store_names(settings, store_id)
        seen += [settings.home / f"resealed-{name}-{row_key_check}" for name in names]
    with suppress(OSError):  # on a machine that cannot store files, the database is believed
        for file in seen:
            ensure_private_file(create_private_folder(settings.home) / file.name)


async def _opened(settings: Settings) -> SqlStore:
    seals = settings.encrypts_at_rest
    if seals:
        load_or_create_installation_key(settings)
    keys = load_known_keys(settings)
    store = await SqlStore.open(settings.database_url, utc_now, at_rest=EncryptionConfig(_rest_cipher(keys), seals))
    if seals and await store.get_key_check() not in {None, compute_key_check(load_oldest_key(settings))}:
        await store.aclose()
        raise build_wrong_key_error(settings)
    row_keys = split_row_keys(keys, store.row_key_check)
    if seals and row_keys is None:
        await store.aclose()
        raise build_outdated_key_error(settings)
    store.database.replace_cipher(row_keys.build_cipher("rest") if keys and row_keys is not None else None)
    return store


def _rest_cipher(keys: tuple[bytes, ...]) -> Cipher | None:
    return RowKeySelection(keys, ()).build_cipher("rest") if keys else None


async def reencrypt_store(settings: Settings, *, accepts_refused: bool = False) -> ResealReport:
    """Rewrite everything in the store as these settings require: encrypted with the present key, or plain.

    The vault is always encrypted. From then on, rows under previous keys are refused.

    Args:
        settings: The settings, with the present key and the previous ones.
        accepts_refused: Whether to rewrite also what is refused now, since someone else may have written it: a store
            that says less than this machine remembers, plain rows where everything is encrypted, and rows under retired
            keys.

    Raises as `open_store` does, and WrongKey if a text cannot be read.
    """
    # Opening it checks the schema version, and that the key is its workers'.
    async with aclosing(await _opened(settings)) as store:
        if not accepts_refused:
            await _compare_with_memory(store, settings)
        store_id, row_key_check = await store.get_store_id(), store.row_key_check
        refuses_plain = store.is_row_encrypted and not accepts_refused
    seals, keys = settings.encrypts_at_rest, load_known_keys(settings)
    if keys and split_row_keys(keys, row_key_check) is None:
        raise build_outdated_key_error(settings)
    at_rest, key = EncryptionConfig(), None
    if row_keys := split_row_keys(keys, None if accepts_refused else row_key_check) if keys else None:
        # Encryption is turned off in a store that refuses plain rows: then they must be written.
        at_rest = EncryptionConfig(row_keys.build_cipher("rest"), seals, strict=seals and refuses_plain)
        row_key_check = compute_key_check(keys[0])
        key = PresentKey(row_keys.build_cipher("vault"), row_key_check)
    with translate_database_errors():
        async with aclosing(Database(settings.database_url, None, at_rest)) as database:
            report = await run_to_completion(reencrypt_database(database, utc_now, seals=seals, key=key))
            await run_to_completion(database.truncate_write_ahead_log())
    outdated = [] if seals else [*_seen_sealed(settings, store_id)]
    if row_key_check is None:
        outdated += [file for files in _seen_row_keys(settings, store_id).values() for file in files]
    for seen in outdated:
        seen.unlink(missing_ok=True)
    _remember(settings, store_id, sealed=seals, row_key_check=row_key_check)
    return report


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
    if split_row_keys(load_known_keys(settings), store.row_key_check) is None:
        raise build_outdated_key_error(settings)


async def load_tool_secrets(settings: Settings, store: SqlStore, names: Collection[str]) -> Mapping[str, str]:
    """Load these secrets of tool servers from the vault, by name. Raises BadInput if the key is missing."""
    if not names:
        return {}
    if (vault := build_vault_if_key_exists(store, settings)) is None:
        if await store.get_key_check() is None:
            return {}  # nothing has been encrypted yet
        raise build_missing_key_error(settings, "a secret of a tool server")
    try:
        return await vault.load_originals(TOOL_SECRETS, names)
    except WrongKey:
        raise build_wrong_key_error(settings) from None
