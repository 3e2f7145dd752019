"""A search in a child (`waystation.plugins.redaction.text_search`) that some texts take over. Quick to load."""

import os
import time
from collections.abc import Sequence

from waystation.plugins.redaction.stretches import Loading, SearchedStretch, request_of

HOLDS, DIES, LIES, BABBLES = "this text holds the interpreter", "this text kills", "this text lies", "this text babbles"
FOUND = "alice"


def prepare() -> None:
    """Nothing."""


def answer(request: bytes, _files: Sequence[int]) -> bytes:
    asked, text = request_of(request)
    if isinstance(asked, Loading) or text is None:
        return SearchedStretch().model_dump_json().encode()
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
    return SearchedStretch(finds=finds, chunks=1).model_dump_json().encode()
