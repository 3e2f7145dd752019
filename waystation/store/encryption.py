"""Columns that are encrypted at rest: sealed when they are written, opened when they are read, by the engine's cipher.

A sealed value begins with a mark that no other value begins with, and is bound to its table, its column and its row:
moved to another row it does not open. A query reads a value together with the key of its row, whoever asks for it;
what is written says its row (`bound`). Plain values, from when encryption was not on, are read all the same until the
store is sealed as a whole (`EncryptionConfig.strict`). Empty values stay empty.
"""

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

from waystation.kernel.cipher import Cipher
from waystation.kernel.errors import StoreError, WrongKey

TEXT_MARK = "\x01"
"""JSON has no such character, and what people write loses it."""
BYTES_MARK = b"\xff"
"""No UTF-8 text has such a byte."""
ROW_KEY_SEPARATOR = "\x1f"
_PROVEN = "its row was written with the key"


@dataclass(frozen=True)
class EncryptionConfig:
    """How a database's texts are kept."""

    cipher: Cipher | None = None
    """None: there is no key, and what is sealed cannot be read."""
    seals: bool = False
    """Whether what is written from now on is sealed; that takes a cipher."""
    strict: bool = False
    """Whether values that are plain are refused."""


UNENCRYPTED = EncryptionConfig()

_OF_ENGINES: WeakKeyDictionary[Dialect, EncryptionConfig] = WeakKeyDictionary()
"""A column's type is told of nothing but the dialect, of which each engine has its own."""


def set_encryption(dialect: Dialect, at_rest: EncryptionConfig) -> None:
    """From here on this engine reads and writes so."""
    _OF_ENGINES[dialect] = at_rest


def get_encryption(dialect: Dialect) -> EncryptionConfig:
    """How this engine reads and writes."""
    return _OF_ENGINES.get(dialect, UNENCRYPTED)


class RowBoundText(str):
    """A text that is on its way into a row, with the key of that row."""

    row: str
    """The values of the columns that the column's type names, in their order."""


def bind_to_row(text: str, *key: str | int) -> RowBoundText:
    """The text for the row with this key."""
    on_its_way = RowBoundText(text)
    on_its_way.row = ROW_KEY_SEPARATOR.join(map(str, key))
    return on_its_way


def add_row_proof(table: Table, row: Mapping[str, str | int | datetime]) -> dict[str, object]:
    """A row on its way into a table whose rows are proven."""
    kind = table.c.proof.type
    assert isinstance(kind, RowProofType)
    return {**row, "proof": bind_to_row("", *[str(row[name]) for name in kind.key])}


class EncryptedText(TypeDecorator[str]):
    """Text; without NUL characters, which PostgreSQL refuses."""

    impl = Text
    cache_ok = True

    def __init__(self, place: str, *key: str, empty: bool = False) -> None:
        """`place` is table and column, as `messages.body`. `empty`: there may be nothing in it, which is not sealed.

        `key` names the columns that tell the table's rows apart and never change, then others that only who has the key
        may change: with them this text is written again.
        """
        super().__init__()
        self.place, self.key, self.empty = place, key, empty

    def process_bind_param(self, value: str | None, dialect: Dialect) -> str | None:
        """Sealed, where this engine seals. Raises TypeError for a text that does not say its row."""
        if not value and (self.empty or not isinstance(value, RowBoundText)):
            return value  # nothing is written, or a query asks where something is
        at_rest = get_encryption(dialect)
        if not at_rest.seals or at_rest.cipher is None:
            require_encryption(at_rest)
            plain = value.replace("\x00", "\ufffd")
            return "\ufffd" + plain[1:] if plain.startswith(TEXT_MARK) else plain
        if not isinstance(value, RowBoundText):
            raise TypeError(f"a text for {self.place} does not say for which row")
        sealed = at_rest.cipher.encrypt(value.encode("utf-8", "surrogatepass"), _context(self.place, value.row))
        return f"{TEXT_MARK}{b64encode(sealed).decode()}"

    def column_expression(self, column: ColumnElement[str]) -> ColumnElement[str]:
        """The value behind the key of its row, and before both how long the key is."""
        assert isinstance(column, Column)
        row = build_row_key_expression(column.table, self.key)
        value = cast(func.length(row), String) + literal(":", String) + row + type_coerce(column, Text)
        return type_coerce(value, self)

    def process_result_value(self, value: str | None, dialect: Dialect) -> str | None:
        """Opened, where it is sealed. Raises WrongKey, and StoreError for a plain one where all are sealed."""
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
    """The same for a column of the type VARCHAR."""

    impl = String
    cache_ok = True


class RowProofType(EncryptedString):
    """That whoever wrote the columns of its key had the key: for rows that permit something and say nothing.

    Reading it is the check. Empty where this engine does not seal.
    """

    cache_ok = True

    def process_bind_param(self, value: str | None, dialect: Dialect) -> str | None:
        """The proof of the row that the value says, whatever else it is; where this engine does not seal, none."""
        at_rest = get_encryption(dialect)
        if not at_rest.seals or at_rest.cipher is None:
            require_encryption(at_rest)
            return ""
        if not isinstance(value, RowBoundText):
            raise TypeError(f"a proof for {self.place} does not say for which row")
        proof = RowBoundText(_PROVEN)
        proof.row = value.row
        return super().process_bind_param(proof, dialect)


class EncryptedBytes(TypeDecorator[bytes]):
    """UTF-8, which may hold NUL characters. Readers hold it against its content hash, which binds it to its row."""

    impl = LargeBinary
    cache_ok = True

    def __init__(self, place: str) -> None:
        """`place` is table and column."""
        super().__init__()
        self.place = place

    def process_bind_param(self, value: bytes | None, dialect: Dialect) -> bytes | None:
        """Sealed, where this engine seals."""
        at_rest = get_encryption(dialect)
        if not value or not at_rest.seals or at_rest.cipher is None:
            require_encryption(at_rest)
            return value
        return BYTES_MARK + at_rest.cipher.encrypt(value, self.place.encode())

    def process_result_value(self, value: bytes | None, dialect: Dialect) -> bytes | None:
        """Opened, where it is sealed. Raises as `EncryptedText` does."""
        if value is None or not value.startswith(BYTES_MARK):
            if value:
                _require_loose(get_encryption(dialect), self.place)
            return value
        return _opened(dialect, value[1:], self.place.encode())


def build_row_key_expression(table: FromClause, key: Sequence[str]) -> ColumnElement[str]:
    """What tells a row of the table from others, as SQL."""
    first, *rest = [cast(table.c[name], String) for name in key]
    for part in rest:
        first = first + literal(ROW_KEY_SEPARATOR, String) + part
    return first


def require_encryption(at_rest: EncryptionConfig) -> None:
    """Raise StoreError where everything is encrypted, and this process would not do so."""
    if at_rest.strict:
        raise StoreError(
            "every text in this store is encrypted, and this process would write plain ones: set WAYSTATION_KEY to the "
            "key of the workers, and leave WAYSTATION_ENCRYPT_AT_REST on; `waystation store reseal` turns it off"
        )


def _context(place: str, row: str) -> bytes:
    return f"{place}\x00{row}".encode("utf-8", "surrogatepass")


def _require_loose(at_rest: EncryptionConfig, place: str) -> None:
    if at_rest.strict:
        raise StoreError(
            f"a value in {place} is not encrypted and bound to its row, though everything in this store is: something "
            "else than Waystation has written it. Restore the database from a backup; "
            "`waystation store reseal` takes it as it is"
        )


def _opened(dialect: Dialect, sealed: bytes, context: bytes) -> bytes:
    cipher = get_encryption(dialect).cipher
    if cipher is None:
        raise _unreadable("it is encrypted, and the key is not here")
    try:
        return cipher.decrypt(sealed, context)
    except WrongKey as error:
        raise _unreadable(str(error)) from None


def _unreadable(reason: str) -> WrongKey:
    return WrongKey(
        f"what the store has of this cannot be read ({reason}): set WAYSTATION_KEY to the key of the workers, or put "
        "their key file back into the home folder"
    )
