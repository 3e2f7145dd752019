"""The built-in offline model: no LLM, extractive, small, behind the same Messages protocol as every other model."""
