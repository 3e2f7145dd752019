"""What is said of a restored text, beside it: numbers only."""

from waystation.agents.restoring import Restored


def said_of(restored: Restored) -> str:
    """How many placeholders were replaced, and how many stayed."""
    said = f"{_placeholders(restored.replaced)} restored: what is printed now is private"
    if restored.unknown:
        said += f"; {_placeholders(restored.unknown)} stayed, whose originals are not kept (credentials never are)"
    return said


def _placeholders(count: int) -> str:
    return "1 placeholder" if count == 1 else f"{count} placeholders"
