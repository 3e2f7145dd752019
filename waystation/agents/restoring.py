"""Placeholders in a text become again what they stand for."""

from waystation.domain.redaction import PLACEHOLDER
from waystation.domain.value import Value
from waystation.ports import Vault


class Restored(Value):
    """A text with its placeholders replaced by their originals."""

    text: str
    replaced: int
    """Placeholders, one that comes twice counted twice."""
    unknown: int
    """Placeholders that stayed, because the vault has no original: credentials, and what was forgotten."""


async def restored(text: str, vault: Vault, tenant: str) -> Restored:
    """The text as its owner may read it; `tenant` is the tenant's hash. Raises StoreError, WrongKey."""
    found = PLACEHOLDER.findall(text)
    originals = await vault.originals(tenant, frozenset(found))
    unknown = sum(placeholder not in originals for placeholder in found)
    return Restored(
        text=PLACEHOLDER.sub(lambda placeholder: originals.get(placeholder[0], placeholder[0]), text),
        replaced=len(found) - unknown,
        unknown=unknown,
    )
