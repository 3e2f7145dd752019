"""The context engine: decides what an agent's model is sent when the conversation no longer fits. Pure."""
