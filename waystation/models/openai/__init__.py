"""Models behind chat completions, the protocol of OpenAI that most servers of models speak."""
