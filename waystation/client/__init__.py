"""What programs and the command line ask for: one tenant's tasks, of one store and one Temporal server."""

from waystation.client.client import Client as Client
from waystation.config.settings import Settings


async def connect_client(settings: Settings) -> Client:
    """The tenant's client: over HTTP where the settings name a server, else of this machine's store. Raises BadInput as
    either's `connect` does.
    """
    if settings.server is None:
        return await Client.connect(settings)
    from waystation.client.remote import RemoteClient  # noqa: PLC0415  nobody else needs what speaks HTTP

    return await RemoteClient.connect(settings)
