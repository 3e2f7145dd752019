"""`waystation context check`: what the Messages API would not accept of a conversation."""

import typer
from pydantic import JsonValue

from waystation.adapters.conversation.faults import faults
from waystation.cli.console import print_text
from waystation.cli.context.files import read_bytes
from waystation.cli.context.options import FileArgument
from waystation.cli.context.result import print_object
from waystation.cli.failures import OK, WORK_FAILED
from waystation.cli.options import JsonOption
from waystation.domain.errors import BadInput

app = typer.Typer()


@app.command()
def check(file: FileArgument, as_json: JsonOption = False) -> None:
    """Print everything in the conversation that the Messages API does not accept, each with its place.

    Exit code 0 for a legal one, 1 for one with faults, 2 for a file that cannot be read.
    """
    try:
        found = faults(read_bytes(file))
    except BadInput as error:
        raise BadInput(f"{file}: {error}") from None
    if as_json:
        listed: list[JsonValue] = [{"path": fault.path, "index": fault.index, "fault": fault.rule} for fault in found]
        print_object({"legal": not found, "violations": listed})
    else:
        for fault in found:
            print_text(f"{fault.path}: {fault.rule}")
        if not found:
            print_text("legal")
    raise typer.Exit(WORK_FAILED if found else OK)
