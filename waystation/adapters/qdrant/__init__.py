"""Memory in Qdrant: the engine inside this process."""
