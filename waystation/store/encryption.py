"""Column types that encrypt at rest: values are encrypted on write and decrypted on read by the engine's cipher.

Encrypted text cannot be compressed, neither by the database nor by the file system, so it is compressed before.

An encrypted value begins with a mark that no other value begins with, and is bound to its table, column and row: moved
to another row it cannot be decrypted. A query reads a value together with its row's key; a written value names its row
(`bind_to_row`). Plain values from before encryption was on are still read until the whole store is encrypted
(`EncryptionConfig.strict`). Empty values stay empty.
"""

import zlib
from base64 import b64decode, b64encode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from weakref import WeakKeyDictionary

from sqlalchemy import (
    Column,
    ColumnElement,
    Dialect,
    FromClause,
    LargeBinary,
    String,
    Table,
    Text,
    TypeDecorator,
    cast,
    func,
    literal,
    type_coerce,
)

from waystation.kernel.cipher import DAMAGED_DATA, Cipher
from waystation.kernel.errors import RetiredKey, StoreError, WrongKey

TEXT_MARK = "\x01"
"""JSON has no such character, and it is removed from what people write."""
BYTES_MARK = b"\xff"
"""No UTF-8 text has such a byte."""
ROW_KEY_SEPARATOR = "\x1f"
_PLAIN, _COMPRESSED = b"p", b"z"
"""First byte of what is encrypted: whether the rest is compressed."""
_MIN_COMPRESSED_BYTES = 200
"""Shorter texts become hardly shorter."""
_PROVEN = "its row was written with the key"


@dataclass(frozen=True)
class EncryptionConfig:
    """How the texts of a database are stored."""

    cipher: Cipher | None = None
    """None if there is no key; encrypted values then cannot be read."""
    encrypts: bool = False
    """Whether new values are encrypted; requires a cipher."""
    strict: bool = False
    """Whether plain values are rejected."""


UNENCRYPTED = EncryptionConfig()

_CONFIG_BY_DIALECT: WeakKeyDictionary[Dialect, EncryptionConfig] = WeakKeyDictionary()
"""A column's type only gets the dialect, of which each engine has its own."""


def set_encryption(dialect: Dialect, at_rest: EncryptionConfig) -> None:
    """Set how this engine reads and writes from now on."""
    _CONFIG_BY_DIALECT[dialect] = at_rest


def get_encryption(dialect: Dialect) -> EncryptionConfig:
    """Return how this engine reads and writes."""
    return _CONFIG_BY_DIALECT.get(dialect, UNENCRYPTED)


class RowBoundText(str):
    """A text to be written into a row, with the key of that row."""

    row: str
    """Values of the columns that the column's type names, in their order."""


def bind_to_row(text: str, *key: str | int) -> RowBoundText:
    """Bind a text to the row with this key."""
    on_its_way = RowBoundText(text)
    on_its_way.row = ROW_KEY_SEPARATOR.join(map(str, key))
    return on_its_way


def add_row_proof(table: Table, row: Mapping[str, str | int | datetime]) -> dict[str, object]:
    """Add the proof to a row of a table whose rows carry one."""
    kind = table.c.proof.type
    assert isinstance(kind, RowProofType)
    return {**row, "proof": bind_to_row("", *[str(row[name]) for name in kind.key])}


class EncryptedText(TypeDecorator[str]):
    """Text that may be encrypted; without NUL characters, which PostgreSQL rejects."""

    impl = Text
    cache_ok = True

    def __init__(self, place: str, *key: str, empty: bool = False) -> None:
        """Describe the column.

        Args:
            place: table and column, as in `messages.body`.
            key: the columns that identify the table's rows and never change, then others that only a holder of the key
                may change: when they change, this text is written again.
            empty: whether the value may be empty; an empty value is not encrypted.
        """
        super().__init__()
        self.place, self.key, self.empty = place, key, empty

    def process_bind_param(self, value: str | None, dialect: Dialect) -> str | None:
        """Encrypt the value if this engine encrypts.

        Raises:
            TypeError: the text is not bound to a row.
        """
        if not value and (self.empty or not isinstance(value, RowBoundText)):
            return value  # nothing is written, or a query asks which rows have a value
        at_rest = get_encryption(dialect)
        if not at_rest.encrypts or at_rest.cipher is None:
            require_encryption(at_rest)
            plain = value.replace("\x00", "\ufffd")
            return "\ufffd" + plain[1:] if plain.startswith(TEXT_MARK) else plain
        if not isinstance(value, RowBoundText):
            raise TypeError(f"a text for {self.place} is not bound to a row")
        plain = value.encode("utf-8", "surrogatepass")
        sealed = at_rest.cipher.encrypt(_compressed(plain), _context(self.place, value.row))
        return f"{TEXT_MARK}{b64encode(sealed).decode()}"

    def column_expression(self, column: ColumnElement[str]) -> ColumnElement[str]:
        """Select the value together with its row's key, and before both the length of the key."""
        assert isinstance(column, Column)
        row = build_row_key_expression(column.table, self.key)
        value = cast(func.length(row), String) + literal(":", String) + row + type_coerce(column, Text)
        return type_coerce(value, self)

    def process_result_value(self, value: str | None, dialect: Dialect) -> str | None:
        """Decrypt the value if it is encrypted.

        Raises:
            WrongKey: no available key decrypts it.
            RetiredKey: it was encrypted with a key that is no longer accepted.
            StoreError: it is plain although everything must be encrypted.
        """
        if value is None:
            return None
        length, _, rest = value.partition(":")
        row, kept = rest[: int(length)], rest[int(length) :]
        if not kept.startswith(TEXT_MARK):
            if kept or not self.empty:
                _require_loose(get_encryption(dialect), self.place)
            return kept
        sealed = b64decode(kept.removeprefix(TEXT_MARK))
        return _opened(dialect, sealed, _context(self.place, row)).decode("utf-8", "surrogatepass")


class EncryptedString(EncryptedText):
    """Like `EncryptedText`, for a VARCHAR column."""

    impl = String
    cache_ok = True


class RowProofType(EncryptedString):
    """Proof that the writer of the row's key columns had the encryption key, for rows that permit something.

    Reading it is the check. Empty if this engine does not encrypt.
    """

    cache_ok = True

    def process_bind_param(self, value: str | None, dialect: Dialect) -> str | None:
        """Return the proof of the row that the value is bound to, whatever the value; empty without encryption."""
        at_rest = get_encryption(dialect)
        if not at_rest.encrypts or at_rest.cipher is None:
            require_encryption(at_rest)
            return ""
        if not isinstance(value, RowBoundText):
            raise TypeError(f"a proof for {self.place} is not bound to a row")
        proof = RowBoundText(_PROVEN)
        proof.row = value.row
        return super().process_bind_param(proof, dialect)


class EncryptedBytes(TypeDecorator[bytes]):
    """UTF-8 bytes, which may contain NUL characters.

    Readers check them against their content hash, which binds them to the row.
    """

    impl = LargeBinary
    cache_ok = True

    def __init__(self, place: str) -> None:
        """`place` is table and column."""
        super().__init__()
        self.place = place

    def process_bind_param(self, value: bytes | None, dialect: Dialect) -> bytes | None:
        """Encrypt the value if this engine encrypts."""
        at_rest = get_encryption(dialect)
        if not value or not at_rest.encrypts or at_rest.cipher is None:
            require_encryption(at_rest)
            return value
        return BYTES_MARK + at_rest.cipher.encrypt(_compressed(value), self.place.encode())

    def process_result_value(self, value: bytes | None, dialect: Dialect) -> bytes | None:
        """Decrypt the value if it is encrypted. Raises as `EncryptedText` does."""
        if value is None or not value.startswith(BYTES_MARK):
            if value:
                _require_loose(get_encryption(dialect), self.place)
            return value
        return _opened(dialect, value[1:], self.place.encode())


def build_row_key_expression(table: FromClause, key: Sequence[str]) -> ColumnElement[str]:
    """Return a SQL expression of what identifies a row of the table."""
    first, *rest = [cast(table.c[name], String) for name in key]
    for part in rest:
        first = first + literal(ROW_KEY_SEPARATOR, String) + part
    return first


def require_encryption(at_rest: EncryptionConfig) -> None:
    """Check that this process encrypts if everything must be encrypted.

    Raises:
        StoreError: it would write plain values.
    """
    if at_rest.strict:
        raise StoreError(
            "every text in this store is encrypted, but this process would write plain text: set "
            "WAYSTATION_KEY to the key of the workers, and leave WAYSTATION_ENCRYPT_AT_REST on. To turn "
            "encryption off, set WAYSTATION_ENCRYPT_AT_REST=false and run `waystation store reseal`"
        )


def _context(place: str, row: str) -> bytes:
    return f"{place}\x00{row}".encode("utf-8", "surrogatepass")


def _require_loose(at_rest: EncryptionConfig, place: str) -> None:
    if at_rest.strict:
        raise StoreError(
            f"a value in {place} is not encrypted, although every value in this store must be: another program has "
            "written it. Restore the database from a backup, or accept the "
            "value as it is with `waystation store reseal --accept-refused`"
        )


def _opened(dialect: Dialect, sealed: bytes, context: bytes) -> bytes:
    cipher = get_encryption(dialect).cipher
    if cipher is None:
        raise _unreadable("it is encrypted, and the key is missing")
    try:
        kept = cipher.decrypt(sealed, context)
    except RetiredKey:
        raise RetiredKey(context.partition(b"\x00")[0].decode()) from None
    except WrongKey as error:
        raise _unreadable(str(error)) from None
    # Only a holder of the key can have written it, so it is not made to expand without end.
    return zlib.decompress(kept[1:]) if kept.startswith(_COMPRESSED) else kept[1:]


def _compressed(plain: bytes) -> bytes:
    """Return the text with the byte that says how it is kept: compressed if that makes it shorter."""
    packed = zlib.compress(plain) if len(plain) >= _MIN_COMPRESSED_BYTES else plain
    return _COMPRESSED + packed if len(packed) < len(plain) else _PLAIN + plain


def _unreadable(reason: str) -> WrongKey:
    step = (
        "restore the database from a backup"
        if reason.startswith(DAMAGED_DATA)
        else "set WAYSTATION_KEY to the key of the workers, or put their key file back into the home folder"
    )
    return WrongKey(f"this data in the store cannot be read ({reason}): {step}")
