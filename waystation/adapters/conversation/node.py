"""A JSON value that knows its place, so that every complaint names it: `messages[3].content[0].tool_use_id: …`."""

from dataclasses import dataclass

from pydantic import JsonValue

from waystation.adapters.conversation.json_text import dotted
from waystation.domain.errors import BadInput


@dataclass(frozen=True)
class Node:
    """A value and its path. Whatever is asked of it and does not hold raises BadInput, without its content."""

    value: JsonValue
    path: str = ""

    @property
    def object(self) -> dict[str, JsonValue]:
        """As an object."""
        if not isinstance(self.value, dict):
            raise self.fault(f"must be an object, and is {_kind(self.value)}")
        return self.value

    @property
    def items(self) -> "list[Node]":
        """The items of an array."""
        if not isinstance(self.value, list):
            raise self.fault(f"must be an array, and is {_kind(self.value)}")
        return [Node(item, f"{self.path}[{index}]") for index, item in enumerate(self.value)]

    @property
    def text_or_items(self) -> "str | list[Node]":
        """As a string, or the items of an array."""
        if not isinstance(self.value, str | list):
            raise self.fault(f"must be a string or an array, and is {_kind(self.value)}")
        return self.value if isinstance(self.value, str) else self.items

    @property
    def text(self) -> str:
        """As a string."""
        if not isinstance(self.value, str):
            raise self.fault(f"must be a string, and is {_kind(self.value)}")
        return self.value

    @property
    def name(self) -> str:
        """As a string that is not empty."""
        if not self.text:
            raise self.fault("must not be empty")
        return self.text

    def find(self, key: str) -> "Node | None":
        """A value of the object; None where it has none, or null."""
        found = self.object.get(key)
        return None if found is None else Node(found, dotted(self.path, key))

    def at(self, key: str) -> "Node":
        """A value that the object must have."""
        found = self.find(key)
        if found is None:
            raise BadInput(f"{dotted(self.path, key)}: is missing")
        return found

    def flag(self, key: str) -> bool:
        """A boolean of the object; false where it has none."""
        found = self.find(key)
        if found is None:
            return False
        if not isinstance(found.value, bool):
            raise found.fault(f"must be true or false, and is {_kind(found.value)}")
        return found.value

    def fault(self, what: str) -> BadInput:
        """What is wrong here, as one line."""
        return BadInput(f"{self.path or 'the request'}: {what}")


def _kind(value: JsonValue) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "a boolean"
        case int() | float():
            return "a number"
        case str():
            return "a string"
        case list():
            return "an array"
        case dict():
            return "an object"
