"""What we use of PyYAML, which has no types of its own."""

from collections.abc import Iterator

from _typeshed import SupportsRead

class Mark:
    line: int

class YAMLError(Exception): ...

class MarkedYAMLError(YAMLError):
    problem: str | None
    problem_mark: Mark | None

class Node:
    value: object
    start_mark: Mark

class ScalarNode(Node):
    value: str

class SequenceNode(Node):
    value: list[Node]

class MappingNode(Node):
    value: list[tuple[Node, Node]]

class Event: ...
class AliasEvent(Event): ...

class BaseLoader:
    def __init__(self, stream: str) -> None: ...
    def construct_document(self, node: Node) -> object: ...

class SafeLoader(BaseLoader): ...

def parse(stream: str, Loader: type[BaseLoader]) -> Iterator[Event]: ...
def compose(stream: str, Loader: type[BaseLoader] = ...) -> Node | None: ...
def safe_load(stream: str | bytes | SupportsRead[str]) -> object: ...
def safe_dump(data: object, *, sort_keys: bool = ..., allow_unicode: bool = ..., width: int = ...) -> str: ...
