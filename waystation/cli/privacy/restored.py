"""`waystation privacy redact --restore`: a text with what its placeholders stand for, for its owner."""

import asyncio

from waystation.cli.console import print_exactly, print_json, say
from waystation.cli.render_restored import said_of
from waystation.client.restore import restored_for_tenant
from waystation.settings import Settings


def print_restored(text: str, *, as_json: bool) -> None:
    """Print it, and say beside it how many placeholders stayed. Raises BadInput where the key does not open them."""
    found = asyncio.run(restored_for_tenant(Settings(), text))
    say(said_of(found))
    if as_json:
        print_json(found)
    else:
        print_exactly(found.text)
