"""The key of this installation, as commands and workers find it, and what each of them seals with it."""

from waystation.adapters.keys import Purpose, Sealer, Sealers
from waystation.adapters.presidio.key import find_key, key_from_hex
from waystation.domain.errors import BadInput
from waystation.ports import Cipher
from waystation.settings import Settings


def own_key(settings: Settings) -> bytes:
    """The key that is set, else the one in the home folder, made there where it is missing. Raises BadInput."""
    try:
        return find_key(settings.key.get_secret_value() if settings.key else None, settings.key_file)
    except ValueError as error:
        raise BadInput(f"{error}: put the right file back, or set WAYSTATION_KEY") from error


def present_key(settings: Settings) -> bytes | None:
    """The same, and None where there is none. No key is made. Raises BadInput."""
    return own_key(settings) if settings.key or settings.key_file.exists() else None


def previous_keys(settings: Settings) -> tuple[bytes, ...]:
    """Keys that were used before, the newest first. Raises BadInput."""
    if settings.previous_keys is None:
        return ()
    try:
        return tuple([key_from_hex(one) for one in settings.previous_keys.get_secret_value().split(",")])
    except BadInput as error:
        raise BadInput(f"WAYSTATION_PREVIOUS_KEYS: {error}") from None


def first_key(settings: Settings) -> bytes:
    """The oldest key that is known: placeholders are made with it, so that a new key changes none. Raises BadInput."""
    return (own_key(settings), *previous_keys(settings))[-1]


def own_cipher(settings: Settings, purpose: Purpose) -> Cipher:
    """Seals with the key, which is made where it is missing, and opens what previous keys have sealed, too.

    Raises BadInput.
    """
    return _cipher((own_key(settings), *previous_keys(settings)), purpose)


def present_cipher(settings: Settings, purpose: Purpose) -> Cipher | None:
    """The same without making a key; None where there is none. Raises BadInput."""
    key = present_key(settings)
    keys = (*(() if key is None else (key,)), *previous_keys(settings))
    return _cipher(keys, purpose) if keys else None


def no_key(settings: Settings, what: str) -> BadInput:
    """What to tell a person who wants to read something encrypted without a key."""
    return BadInput(
        f"{what} is encrypted, and the key is not here: set WAYSTATION_KEY to the key of the workers, or put their key "
        f"file back as {settings.key_file}"
    )


def other_key(settings: Settings) -> BadInput:
    """What to tell a person whose key does not open what is there."""
    given = "WAYSTATION_KEY" if settings.key else str(settings.key_file)
    return BadInput(
        f"the key in {given} is not the one with which this was encrypted: set WAYSTATION_KEY to the key of the "
        "workers, or put their key file back; WAYSTATION_PREVIOUS_KEYS may name older ones"
    )


def lost_key(settings: Settings) -> BadInput:
    """What to tell a person who would make a new key beside a store that has one."""
    return BadInput(
        "the store's placeholders are made with a key that is not here, and a new key would make others: set "
        f"WAYSTATION_KEY to the key of the workers, or put their key file back as {settings.key_file}; where it is "
        "lost, `waystation store adopt-key` makes a new one the store's"
    )


def foreign_key(settings: Settings) -> BadInput:
    """What to tell a person whose key is not the one of the store's placeholders."""
    given = "WAYSTATION_KEY" if settings.key else str(settings.key_file)
    return BadInput(
        f"the key in {given} is not the one that the store's placeholders are made with: set WAYSTATION_KEY to the key "
        "of the workers, or put their key file back; where it is lost, `waystation store adopt-key` makes this one the "
        "store's"
    )


def _cipher(keys: tuple[bytes, ...], purpose: Purpose) -> Cipher:
    return Sealers([Sealer(key, purpose) for key in keys])
