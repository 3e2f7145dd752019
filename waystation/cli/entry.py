"""The entry point `waystation`: imports the command line where Ctrl-C ends it without a traceback."""

import os
from typing import NoReturn

INTERRUPTED_EXIT_CODE = 130
"""As a shell reports a program that Ctrl-C ended: 128 and the number of the signal."""


def main() -> NoReturn:
    """Run the command line and end the process."""
    try:
        # Importing takes a fifth of a second, in which people press Ctrl-C, too.
        from waystation.cli.main import main as run_command_line  # noqa: PLC0415

        run_command_line()
    except KeyboardInterrupt:
        os._exit(INTERRUPTED_EXIT_CODE)
