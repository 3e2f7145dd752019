"""Measures secrets by the examples of third-party rules: those of gitleaks, `--gitleaks FOLDER`.

The folder is that of its Go module, which is not part of the project (`go mod download -json
github.com/zricethezav/gitleaks/v8@v8.30.0` prints it as `Dir`). If the package detect-secrets is installed (`uv run
--with detect-secrets==1.5.0`), its plugins are the baseline.
"""

import argparse
import importlib.util
import tempfile
from collections.abc import Sequence
from pathlib import Path

from benchmarks.budgets.tables import print_table
from benchmarks.privacy.finders import WaystationFinder
from benchmarks.privacy.gitleaks import RuleExample, load_examples
from waystation.privacy.policy import TextDestination

_SHOWN = 160


class DetectSecretsScanner:
    """All plugins of detect-secrets with their defaults and filters, as it scans files."""

    name = "detect-secrets"

    def has_secret(self, texts: Sequence[str]) -> list[bool]:
        """For each text, as a file of its own, whether there is a secret in it."""
        from detect_secrets import SecretsCollection  # pyright: ignore # noqa: PLC0415 - not a dependency
        from detect_secrets.settings import default_settings  # pyright: ignore # noqa: PLC0415

        with tempfile.TemporaryDirectory() as folder, default_settings():  # pyright: ignore
            found = list[bool]()
            for number, text in enumerate(texts):
                file = Path(folder) / f"{number}.txt"
                file.write_text(text, encoding="utf-8")
                secrets = SecretsCollection()  # pyright: ignore
                secrets.scan_file(str(file))  # pyright: ignore
                found.append(bool(secrets))  # pyright: ignore
            return found


class WaystationScanner:
    """What we replace as a secret in a tool's result."""

    name = "waystation"

    def has_secret(self, texts: Sequence[str]) -> list[bool]:
        """For each text, whether there is a secret in it."""
        return [
            any(find.type == "SECRET" for find in finds)
            for finds in WaystationFinder(TextDestination.TOOL_RESULT).find(texts)
        ]


def prove(arguments: Sequence[str]) -> None:
    """Print the table, and with `--missed` what was missed and wrongly replaced."""
    parser = argparse.ArgumentParser("benchmarks.privacy foreign")
    parser.add_argument("--gitleaks", type=Path, required=True)
    parser.add_argument("--missed", action="store_true")
    options = parser.parse_args(arguments)
    try:
        examples = list(dict.fromkeys(load_examples(options.gitleaks)))
    except FileNotFoundError as error:
        parser.error(str(error))
    rows = list[tuple[object, ...]]()
    for finder in (
        WaystationScanner(),
        *([DetectSecretsScanner()] if importlib.util.find_spec("detect_secrets") else []),
    ):
        found = finder.has_secret([example.text for example in examples])
        missed = [e for e, is_found in zip(examples, found, strict=True) if e.is_secret and not is_found]
        wrong = [e for e, is_found in zip(examples, found, strict=True) if is_found and not e.is_secret]
        there = sum(example.is_secret for example in examples)
        recall = f"{1 - len(missed) / max(1, there):.3f}"
        rows.append((finder.name, there, recall, len(examples) - there, len(wrong)))
        if options.missed:
            _list(f"{finder.name}: missed", missed)
            _list(f"{finder.name}: found where nothing is", wrong)
    head = ("detector", "with a secret", "found in", "without one", "found in")
    print_table("Written examples of the rules of gitleaks", head, rows)


def _list(title: str, examples: Sequence[RuleExample]) -> None:
    print(f"\n{title}:")
    for example in examples:
        print(f"- {example.rule}: {example.text[:_SHOWN]!r}")
