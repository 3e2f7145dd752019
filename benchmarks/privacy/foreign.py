"""Secrets by the examples of somebody else's rules: `--examples FILE`, JSON lines of `text`, `secret` and `is_secret`.

Whoever runs it makes the file from the rules' own tests; it is not part of the project. Where the package
detect-secrets is installed (`uv run --with detect-secrets`), its plugins are the baseline.
"""

import argparse
import importlib.util
from collections.abc import Iterator, Sequence
from pathlib import Path

from pydantic import BaseModel

from benchmarks.budgets.tables import show
from benchmarks.privacy.finders import Find, Ours
from waystation.domain.privacy import Place

_SHOWN = 40
_MOST_SHOWN = 160


class Example(BaseModel):
    """A text. `secret`: what is one in it, empty where nothing is."""

    text: str
    secret: str = ""
    is_secret: bool
    rule: str = ""


class DetectSecrets:
    """All plugins of detect-secrets with their defaults and filters, line by line as it scans files."""

    name = "detect-secrets"

    def find(self, texts: Sequence[str]) -> list[list[Find]]:
        from detect_secrets.core.scan import scan_line  # pyright: ignore # noqa: PLC0415 - not a dependency
        from detect_secrets.settings import default_settings  # pyright: ignore # noqa: PLC0415

        with default_settings():  # pyright: ignore
            return [[find for line in text.splitlines() for find in _found(text, scan_line(line))] for text in texts]  # pyright: ignore


def _found(text: str, secrets: "Iterator[object]") -> Iterator[Find]:
    for secret in secrets:
        value = str(getattr(secret, "secret_value", "") or "")
        start = text.find(value)
        if value and start >= 0:
            yield Find("SECRET", start, start + len(value))


def prove(arguments: Sequence[str]) -> None:
    """Print the table, and with `--missed` what was missed and wrongly replaced."""
    parser = argparse.ArgumentParser("benchmarks.privacy foreign")
    parser.add_argument("--examples", type=Path, required=True)
    parser.add_argument("--missed", action="store_true")
    options = parser.parse_args(arguments)
    with options.examples.open(encoding="utf-8") as lines:
        examples = list(dict.fromkeys(line for line in lines if line.strip()))
    read = [Example.model_validate_json(line) for line in examples]
    finders = [Ours(Place.TOOL_RESULT), *([DetectSecrets()] if importlib.util.find_spec("detect_secrets") else [])]
    rows = list[tuple[object, ...]]()
    for finder in finders:
        found = finder.find([example.text for example in read])
        missed = [e for e, finds in zip(read, found, strict=True) if e.is_secret and not _covered(e, finds)]
        wrong = [e for e, finds in zip(read, found, strict=True) if not e.is_secret and _secrets(finds)]
        there = sum(example.is_secret for example in read)
        rows.append((finder.name, there, f"{1 - len(missed) / max(1, there):.3f}", len(read) - there, len(wrong)))
        if options.missed:
            _list(f"{finder.name}: missed", missed)
            _list(f"{finder.name}: wrongly replaced", wrong)
    head = ("who", "secrets", "recall", "texts without one", "of them wrongly replaced in")
    show(f"Somebody else's examples: {options.examples.name}", head, rows)


def _secrets(finds: Sequence[Find]) -> list[Find]:
    return [find for find in finds if find.type == "SECRET"]


def _covered(example: Example, finds: Sequence[Find]) -> bool:
    """Whether every place of the secret is within finds that follow each other without a gap."""
    position = example.text.find(example.secret)
    end = position + len(example.secret)
    for find in sorted(finds, key=lambda find: find.start):
        if find.start <= position:
            position = max(position, find.end)
    return position >= end


def _list(title: str, examples: Sequence[Example]) -> None:
    print(f"\n{title}:")
    for example in examples:
        print(f"- {example.rule}: {example.text[:_MOST_SHOWN]!r} {example.secret[:_SHOWN]!r}")
