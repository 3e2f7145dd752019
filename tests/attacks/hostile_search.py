"""A search in a child (`waystation.plugins.redaction.search_child`) that some texts take over. Quick to load."""

import os
import time
from collections.abc import Sequence

from waystation.plugins.redaction.search_protocol import ChunkSearchResult, LoadRulesRequest, decode_search_request

HOLDS, DIES, LIES, BABBLES = "this text holds the interpreter", "this text kills", "this text lies", "this text babbles"
FOUND = "alice"


def prepare() -> None:
    """Nothing."""


def answer(request: bytes, _files: Sequence[int]) -> bytes:
    asked, text = decode_search_request(request)
    if isinstance(asked, LoadRulesRequest) or text is None:
        return ChunkSearchResult().model_dump_json().encode()
    if HOLDS in text:
        sum(range(10**15))  # no signal and no thread is heard before it ends
    if DIES in text:
        os.abort()
    if BABBLES in text:
        return b"x" * 10_000_000
    at = text.find(FOUND)
    end = len(text) + 5 if LIES in text else at + len(FOUND)
    time.sleep(0)
    finds = (("PERSON", at, end, 1.0),) if at >= 0 else ()
    return ChunkSearchResult(finds=finds, chunks=1).model_dump_json().encode()
