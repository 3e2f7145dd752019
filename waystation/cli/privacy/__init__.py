"""`waystation privacy`: what is replaced in a text, and where one person is."""

import typer

from waystation.cli.privacy import erase, find, redact

app = typer.Typer()
privacy = typer.Typer(
    name="privacy", help="Replace what is private in a text; find or erase one person.", no_args_is_help=True
)
app.add_typer(privacy)
for part in (redact, find, erase):
    privacy.add_typer(part.app)


@privacy.callback()
def _privacy() -> None:
    """Replace what is private in a text; find or erase one person."""
