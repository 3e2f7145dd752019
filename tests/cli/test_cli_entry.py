"""Ctrl-C while the command line is being imported."""

import subprocess
import sys
import tomllib
from pathlib import Path

INTERRUPTED_IMPORT = """
import sys

class Interruption:
    def find_spec(self, name, path=None, target=None):
        if name == "typer":
            raise KeyboardInterrupt

sys.meta_path.insert(0, Interruption())
from waystation.cli.entry import main
main()
"""


def test_an_interrupt_during_the_imports_ends_a_command_without_a_traceback() -> None:
    done = subprocess.run(
        [sys.executable, "-c", INTERRUPTED_IMPORT], capture_output=True, text=True, check=False, timeout=60
    )
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


def test_the_installed_command_starts_there() -> None:
    root = Path(__file__).parents[2]
    scripts = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]["scripts"]
    assert scripts == {"waystation": "waystation.cli.entry:main"}
