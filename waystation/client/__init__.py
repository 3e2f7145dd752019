"""The client of programs and of the command line: one tenant's tasks, of one store and one Temporal server."""

from waystation.client.client import Client as Client
from waystation.client.owner import OwnerClient as OwnerClient
from waystation.config.settings import Settings


async def connect_client(settings: Settings) -> Client:
    """Return the client of the tenant's people: over HTTP if the settings name a server, else for this machine's
    store.

    Raises:
        BadInput: As the `connect` method of either client.
    """
    if settings.server is None:
        return await OwnerClient.connect(settings)
    from waystation.client.remote import RemoteClient  # noqa: PLC0415  nobody else needs what speaks HTTP

    return await RemoteClient.connect(settings)
