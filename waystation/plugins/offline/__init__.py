"""The built-in offline model: no LLM, extractive and small, behind the same Messages protocol as every other model."""
