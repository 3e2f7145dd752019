"""The embedder that the settings want, for workers and commands alike."""

from collections.abc import AsyncGenerator
from contextlib import aclosing, asynccontextmanager

from waystation.adapters.embeddings.absent import NoEmbedder
from waystation.adapters.embeddings.choice import best_embedder
from waystation.adapters.embeddings.endpoint import Vendor, endpoint_of
from waystation.adapters.embeddings.fast import FastEmbedder
from waystation.adapters.embeddings.http import HttpEmbedder
from waystation.ports import Embedder
from waystation.settings import Settings


@asynccontextmanager
async def opened_embedder(settings: Settings) -> AsyncGenerator[Embedder]:
    """The embedder, closed at the end. Nothing is loaded or asked before the first text. Raises BadInput."""
    match settings.embedder:
        case "static":
            yield best_embedder()
        case "none":
            yield NoEmbedder()
        case "fastembed":
            folder = settings.embedder_folder
            yield FastEmbedder.of(settings.embedder_model, folder.expanduser() if folder else None)
        case "voyage" | "openai" as vendor:
            async with aclosing(_over_http(settings, vendor)) as embedder:
                yield embedder


def _over_http(settings: Settings, vendor: Vendor) -> HttpEmbedder:
    own_key = settings.voyage_api_key if vendor == "voyage" else None
    return HttpEmbedder(
        endpoint_of(
            vendor,
            settings.embedder_url,
            settings.embedder_model,
            settings.embedder_dimension,
            settings.embedder_key or own_key,
        )
    )
