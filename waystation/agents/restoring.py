"""Placeholders in a text become again what they stand for."""

from collections.abc import Mapping, Set
from types import MappingProxyType

from waystation.domain.redaction import PLACEHOLDER
from waystation.domain.value import Value
from waystation.ports import Vault

GRANTED: Mapping[str, Set[str]] = MappingProxyType(
    {
        "query_table": {"tables"},
        "read_document": {"name"},
        "read_skill": {"name"},
        "search_documents": {"query"},
        "take_note": {"document"},
    }
)
"""The tools that may be given what placeholders stand for, by name, and the arguments in which they are: names of
documents, and what documents are searched for. No tool of others is among them.
"""


class Restored(Value):
    """A text with its placeholders replaced by their originals."""

    text: str
    replaced: int
    """Placeholders, one that comes twice counted twice."""
    unknown: int
    """Placeholders that stayed, because the vault has no original: credentials, and what was forgotten."""


async def restored(text: str, vault: Vault, tenant: str, session: str | None = None) -> Restored:
    """The text as its owner may read it; `tenant` is the tenant's hash. Raises StoreError, WrongKey.

    With the hash of a session: as a tool of the session may use it, with what was met there and nothing else.
    """
    found = PLACEHOLDER.findall(text)
    originals = await vault.originals(tenant, frozenset(found), session)
    unknown = sum(placeholder not in originals for placeholder in found)
    return Restored(
        text=PLACEHOLDER.sub(lambda placeholder: originals.get(placeholder[0], placeholder[0]), text),
        replaced=len(found) - unknown,
        unknown=unknown,
    )
