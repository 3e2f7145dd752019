"""Checkouts of the project that a benchmark compares, each with its own code in processes of its own."""

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
SETTINGS = ("WAYSTATION_", "TEMPORAL_", "ANTHROPIC_", "QDRANT_", "DATABASE_URL", "OTEL_")
"""Nobody's settings but the run's own: it must reach neither a person's provider nor their store."""


@dataclass(frozen=True)
class Checkout:
    """A checkout of the project, and how its commands are called."""

    name: str
    root: Path = ROOT

    def environment(self, home: Path, settings: Mapping[str, str]) -> dict[str, str]:
        """Of every command, also for the processes that it starts: defaults, but for these settings."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith(SETTINGS)}
        return {**kept, **settings, "WAYSTATION_HOME": str(home), "PYTHONPATH": str(self.root)}

    @property
    def command(self) -> tuple[str, ...]:
        """From its root, this is the code that lies there, whatever is installed."""
        own = self.root / ".venv" / "bin" / "python"
        return (str(own) if own.exists() else sys.executable, "-m", "waystation.cli.main")
