"""Which embedder this installation has."""

from importlib.util import find_spec

from waystation.adapters.embeddings.absent import NoEmbedder
from waystation.adapters.embeddings.static import WordLlamaEmbedder


def best_embedder() -> WordLlamaEmbedder | NoEmbedder:
    """The bundled static model, or none where its package has no wheel for the platform."""
    return WordLlamaEmbedder() if find_spec("wordllama") else NoEmbedder()
