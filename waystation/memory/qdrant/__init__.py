"""Memory in Qdrant: the engine inside this process, or a server that several processes share."""
