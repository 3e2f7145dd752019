"""What a request costs here: four characters a token, and a memory of prompt prefixes that stands for the cache."""

import hashlib
import json
from collections import OrderedDict
from collections.abc import Iterator

from waystation.adapters.offline.wire import CountRequest, Markable, WireBlock
from waystation.domain.budget import Usage

CHARACTERS_A_TOKEN = 4
LEAST_CACHED = 256
"""Tokens: a shorter prefix is never cached."""
KEPT_PREFIXES = 1_024


def tokens_of(characters: int) -> int:
    """Tokens of so many characters, rounded up."""
    return -(-characters // CHARACTERS_A_TOKEN)


def input_tokens(request: CountRequest) -> int:
    """The tokens of system prompt, tools and messages."""
    return tokens_of(sum(len(text) for text, _ in _parts(request)))


class PromptCache:
    """Remembers the prefixes that requests marked, the most recently used `KEPT_PREFIXES` of them. No expiry."""

    def __init__(self) -> None:
        self._known: OrderedDict[str, None] = OrderedDict()

    def charge(self, request: CountRequest) -> Usage:
        """The input of this request by kind, output 0; its marked prefixes are known from here on."""
        boundaries = _boundaries(request)
        total = boundaries[-1][1]
        marked = [(digest, tokens) for digest, tokens, mark in boundaries if mark and tokens >= LEAST_CACHED]
        end = marked[-1][1] if marked else 0
        read = max((tokens for digest, tokens, _ in boundaries if tokens <= end and digest in self._known), default=0)
        for digest, _ in marked:
            self._keep(digest)
        return Usage(input=total - end, cache_write=end - read, cache_read=read, output=0)

    def _keep(self, digest: str) -> None:
        self._known[digest] = None
        self._known.move_to_end(digest)
        while len(self._known) > KEPT_PREFIXES:
            self._known.popitem(last=False)


def _boundaries(request: CountRequest) -> list[tuple[str, int, bool]]:
    """After each part of the prompt: the digest and the tokens of everything so far, and whether it ends a stretch."""
    digest = hashlib.sha256()
    characters = 0
    boundaries: list[tuple[str, int, bool]] = []
    for text, marked in _parts(request):
        digest.update(f"{len(text)}:{text}".encode("utf-8", "surrogatepass"))
        characters += len(text)
        boundaries.append((digest.hexdigest(), tokens_of(characters), marked))
    if request.cache_control is not None:
        boundaries[-1] = (*boundaries[-1][:2], True)
    return boundaries


def _parts(request: CountRequest) -> Iterator[tuple[str, bool]]:
    """The prompt in the order in which it is cached; marks are no part of the text."""
    for tool in request.tools:
        yield _text(tool), tool.cache_control is not None
    for block in request.system:
        yield block.text, block.cache_control is not None
    for message in request.messages:
        for block in message.content:
            yield _block_text(block), block.cache_control is not None


def _block_text(block: WireBlock) -> str:
    return block.text if block.type == "text" else _text(block)


def _text(part: Markable) -> str:
    return json.dumps(part.model_dump(mode="json", exclude={"cache_control"}), ensure_ascii=False)
