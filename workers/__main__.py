"""`python -m waystation.workers`: what `waystation worker` does, without the rest of the command line."""

import argparse
import asyncio
import os
import sys

from pydantic import ValidationError

from waystation.config.settings import Settings
from waystation.kernel.errors import BadInput, StoreUnavailable, Unreachable, WaystationError
from waystation.security.untrusted import replace_control_characters
from waystation.workers.wiring import serve


def main() -> int:
    """Work until a signal stops it.

    Returns:
        Exit code. 1: the work failed; 2: invalid settings or options; 3: something required is missing.
    """
    # Also holds for other writers in this process, such as embedded memory: no one else may read the home folder.
    os.umask(0o077)
    parser = argparse.ArgumentParser(
        prog="python -m waystation.workers", description="Run the workers until SIGINT or SIGTERM."
    )
    parser.add_argument("--queues", help="serve only these queues, separated by commas: workflows, agents, context")
    given = parser.parse_args()
    try:
        settings = Settings() if given.queues is None else Settings(queues=given.queues)
        asyncio.run(serve(settings, _say))
    except ValidationError as error:
        _say("; ".join(f"{problem['loc'][0]}: {problem['msg']}" for problem in error.errors()))
        return 2
    except WaystationError as error:
        _say(str(error))
        return 2 if isinstance(error, BadInput) else 3 if isinstance(error, Unreachable | StoreUnavailable) else 1
    return 0


def _say(sentence: str) -> None:
    sys.stderr.write(f"{replace_control_characters(sentence)}\n")
    sys.stderr.flush()


if __name__ == "__main__":
    # The SDK's native runtime can crash while the interpreter shuts down; the exit code must be ours.
    os._exit(main())
