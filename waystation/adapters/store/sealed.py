"""Columns that are encrypted at rest: sealed when they are written, opened when they are read, by the engine's cipher.

Rows that were written before stay as they are and are read all the same: a sealed value begins with a mark that no
other value begins with. Each value is bound to its column. Empty values stay empty.
"""

from base64 import b64decode, b64encode
from dataclasses import dataclass
from weakref import WeakKeyDictionary

from sqlalchemy import Dialect, LargeBinary, String, Text, TypeDecorator

from waystation.domain.errors import WrongKey
from waystation.ports import Cipher

TEXT_MARK = "\x01"
"""JSON has no such character, and what people write loses it."""
BYTES_MARK = b"\xff"
"""No UTF-8 text has such a byte."""


@dataclass(frozen=True)
class AtRest:
    """How a database's texts are kept."""

    cipher: Cipher | None = None
    """None: there is no key, and what is sealed cannot be read."""
    seals: bool = False
    """Whether what is written from now on is sealed; that takes a cipher."""


PLAIN = AtRest()

_OF_ENGINES: WeakKeyDictionary[Dialect, AtRest] = WeakKeyDictionary()
"""A column's type is told of nothing but the dialect, of which each engine has its own."""


def keep_with(dialect: Dialect, at_rest: AtRest) -> None:
    """From here on this engine reads and writes so."""
    _OF_ENGINES[dialect] = at_rest


class SealedText(TypeDecorator[str]):
    """Text; without NUL characters, which PostgreSQL refuses."""

    impl = Text
    cache_ok = True

    def __init__(self, place: str) -> None:
        """`place` is table and column, as `messages.body`."""
        super().__init__()
        self.place = place

    def process_bind_param(self, value: str | None, dialect: Dialect) -> str | None:
        """Sealed, where this engine seals."""
        if not value:
            return value
        sealed = _sealed(dialect, value.encode("utf-8", "surrogatepass"), self.place)
        if sealed is None:
            plain = value.replace("\x00", "\ufffd")
            return "\ufffd" + plain[1:] if plain.startswith(TEXT_MARK) else plain
        return TEXT_MARK + b64encode(sealed).decode()

    def process_result_value(self, value: str | None, dialect: Dialect) -> str | None:
        """Opened, where it is sealed. Raises WrongKey."""
        if value is None or not value.startswith(TEXT_MARK):
            return value
        return _opened(dialect, b64decode(value[1:]), self.place).decode("utf-8", "surrogatepass")


class SealedString(SealedText):
    """The same for a column of the type VARCHAR."""

    impl = String
    cache_ok = True


class SealedBytes(TypeDecorator[bytes]):
    """UTF-8, which may hold NUL characters."""

    impl = LargeBinary
    cache_ok = True

    def __init__(self, place: str) -> None:
        """`place` is table and column."""
        super().__init__()
        self.place = place

    def process_bind_param(self, value: bytes | None, dialect: Dialect) -> bytes | None:
        """Sealed, where this engine seals."""
        sealed = _sealed(dialect, value, self.place) if value else None
        return value if sealed is None else BYTES_MARK + sealed

    def process_result_value(self, value: bytes | None, dialect: Dialect) -> bytes | None:
        """Opened, where it is sealed. Raises WrongKey."""
        if value is None or not value.startswith(BYTES_MARK):
            return value
        return _opened(dialect, value[1:], self.place)


def _sealed(dialect: Dialect, plain: bytes, place: str) -> bytes | None:
    at_rest = _OF_ENGINES.get(dialect, PLAIN)
    return at_rest.cipher.seal(plain, place.encode()) if at_rest.seals and at_rest.cipher is not None else None


def _opened(dialect: Dialect, sealed: bytes, place: str) -> bytes:
    cipher = _OF_ENGINES.get(dialect, PLAIN).cipher
    if cipher is None:
        raise _unreadable("it is encrypted, and the key is not here")
    try:
        return cipher.unseal(sealed, place.encode())
    except WrongKey as error:
        raise _unreadable(str(error)) from None


def _unreadable(reason: str) -> WrongKey:
    return WrongKey(
        f"what the store has of this cannot be read ({reason}): set WAYSTATION_KEY to the key of the workers, or put "
        "their key file back into the home folder"
    )
