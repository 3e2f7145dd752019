"""Payloads and search attributes of histories, wherever they are in a message."""

from collections.abc import Iterator, Mapping
from typing import cast

from google.protobuf.message import Message
from temporalio.api.common.v1 import Payload, SearchAttributes


def iter_payloads(message: Message) -> Iterator[Payload]:
    """Yield every payload, except those of search attributes, which a server indexes and which are never encrypted."""
    if isinstance(message, Payload):
        yield message
    elif not isinstance(message, SearchAttributes):
        for _, value in message.ListFields():
            yield from _in(cast("object", value))


def _in(value: object) -> Iterator[Payload]:
    if isinstance(value, Message):
        yield from iter_payloads(value)
    elif isinstance(value, Mapping):
        for one in cast("Mapping[object, object]", value).values():
            yield from _in(one)
    elif not isinstance(value, str | bytes | int | float):
        for one in cast("list[object]", value):
            yield from _in(one)


def iter_search_attributes(message: Message) -> Iterator[tuple[str, bytes]]:
    """Yield every search attribute: name and JSON."""
    if isinstance(message, SearchAttributes):
        yield from ((name, payload.data) for name, payload in message.indexed_fields.items())
        return
    for _, value in message.ListFields():
        if isinstance(value, Message):
            yield from iter_search_attributes(value)
