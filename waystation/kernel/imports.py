"""Pauses the garbage collector during imports, since it would scan all the modules that stay, again and again."""

import gc
import sys
from collections.abc import Generator
from contextlib import contextmanager


@contextmanager
def pause_gc_for_imports() -> Generator[None]:
    """Pause the garbage collector in this block and freeze what was imported: modules stay until the process ends."""
    known = len(sys.modules)
    gc.disable()
    try:
        yield
    finally:
        if len(sys.modules) > known:
            gc.freeze()
        gc.enable()
