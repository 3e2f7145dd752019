"""Texts as their owner may read them: whose they are, and with which key."""

from contextlib import aclosing

from waystation.adapters.store import SqlStore
from waystation.agents.restoring import Restored, restored
from waystation.client.looks import own_task
from waystation.domain.errors import WrongKey
from waystation.domain.task import reader_of, tenant_hash
from waystation.keyring import no_key, other_key, present_cipher
from waystation.settings import Settings
from waystation.stores import opened_store


async def restored_for_owner(settings: Settings, task_id: str, text: str) -> Restored:
    """A text of this task, with what its placeholders stand for.

    Raises:
        UnknownTask: the tenant of the settings has no such task.
        BadInput: the key is not here, or is another one.
    """
    async with aclosing(await opened_store(settings)) as store:
        await own_task(store, reader_of(settings.tenant), task_id)
        return await _restored(settings, store, text)


async def restored_for_tenant(settings: Settings, text: str) -> Restored:
    """Any text, with what the placeholders of the settings' tenant stand for. Raises BadInput for the key."""
    async with aclosing(await opened_store(settings)) as store:
        return await _restored(settings, store, text)


async def _restored(settings: Settings, store: SqlStore, text: str) -> Restored:
    cipher = present_cipher(settings, "vault")
    if cipher is None:
        raise no_key(settings, "what placeholders stand for")
    try:
        return await restored(text, store.vault(cipher), tenant_hash(settings.tenant))
    except WrongKey:
        raise other_key(settings) from None
