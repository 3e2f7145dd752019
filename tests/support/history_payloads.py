"""Histories as a server has them: every payload in a message, wherever it stands."""

from collections.abc import Iterator, Mapping
from typing import cast

from google.protobuf.message import Message
from temporalio.api.common.v1 import Payload, SearchAttributes


def iter_payloads(message: Message) -> Iterator[Payload]:
    """Every payload in it, but for those of search attributes, which a server indexes and nobody encrypts."""
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
    """Every search attribute in it: name and JSON."""
    if isinstance(message, SearchAttributes):
        yield from ((name, payload.data) for name, payload in message.indexed_fields.items())
        return
    for _, value in message.ListFields():
        if isinstance(value, Message):
            yield from iter_search_attributes(value)
