"""Loading modules while the garbage collector rests: it would look at all that stays, again and again."""

import gc
import sys
from collections.abc import Generator
from contextlib import contextmanager


@contextmanager
def pause_gc_for_imports() -> Generator[None]:
    """The collector leaves alone what is imported in this block, then and later: modules stay to the end."""
    known = len(sys.modules)
    gc.disable()
    try:
        yield
    finally:
        if len(sys.modules) > known:
            gc.freeze()
        gc.enable()
