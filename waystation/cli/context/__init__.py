"""`waystation context`: the context engine on a request body of the Messages API from a file; no server needed."""

import typer

from waystation.cli.context import check, compact, mask, tokens

app = typer.Typer()
context = typer.Typer(
    name="context",
    help="Compact, mask, check and measure a conversation in a file; no server needed.",
    no_args_is_help=True,
)
app.add_typer(context)
for part in (compact, mask, check, tokens):
    context.add_typer(part.app)


@context.callback()
def _context() -> None:
    """Compact, mask, check and measure a conversation in a file; no server needed.

    FILE is a request body of the Messages API, {"model": …, "system": …, "tools": […], "messages": […]}, or an array of
    messages; - reads it from stdin. It is never changed. Messages are named by their index in it.
    """
