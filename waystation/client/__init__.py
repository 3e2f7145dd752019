"""What programs and the command line ask for: one tenant's tasks, of one store and one Temporal server."""

from waystation.client.client import Client as Client
