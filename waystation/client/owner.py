"""The client of people: they see questions with the names that they wrote, and calls of tools with the values that they
send, where other readers see placeholders.
"""

from collections.abc import Sequence

from waystation.client.client import Client
from waystation.kernel.errors import WaystationError
from waystation.privacy.policy import PLACEHOLDER_PATTERN, restore_originals
from waystation.runtime.store_setup import build_vault_if_key_exists
from waystation.tasks.task import tenant_hash


class OwnerClient(Client):
    """A client whose titles show the words of the question, and whose requests show what calls of tools send.

    Anyone who may read a tenant's documents may read these originals, too. Credentials stay replaced, since the vault
    does not have them. What goes to Temporal, to notifications and to models is built without this client.
    """

    async def restore_placeholders(self, texts: Sequence[str]) -> Sequence[str]:
        """See base class. Texts stay as they are if the vault cannot be read."""
        found = frozenset(PLACEHOLDER_PATTERN.findall("\n".join(texts)))
        if not found:
            return texts
        try:
            if (vault := build_vault_if_key_exists(self._store, self._settings)) is None:
                return texts
            originals = await vault.load_originals(tenant_hash(self._settings.tenant), found)
        except WaystationError:
            return texts
        on_one_line = {placeholder: " ".join(original.split()) for placeholder, original in originals.items()}
        return [restore_originals(text, on_one_line).text for text in texts]
