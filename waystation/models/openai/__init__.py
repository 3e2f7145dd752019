"""Models behind chat completions, OpenAI's protocol, which most model servers implement."""
