"""Writes the pages: `make reference`."""

from collections.abc import Callable, Mapping
from pathlib import Path

from benchmarks.reference.commands import render_commands_page
from benchmarks.reference.http_api import render_http_api_page
from benchmarks.reference.python_api import render_python_api_page
from benchmarks.reference.settings import render_settings_page
from benchmarks.reference.temporal import render_temporal_page

FOLDER = Path(__file__).parents[2] / "docs" / "reference"
PAGES: Mapping[str, Callable[[], str]] = {
    "cli.md": render_commands_page,
    "settings.md": render_settings_page,
    "http-api.md": render_http_api_page,
    "python-api.md": render_python_api_page,
    "temporal.md": render_temporal_page,
}
"""Each page by the name of its file."""


def main() -> None:
    """Write every page."""
    for name, render in PAGES.items():
        (FOLDER / name).write_text(render(), encoding="utf-8")


if __name__ == "__main__":
    main()
