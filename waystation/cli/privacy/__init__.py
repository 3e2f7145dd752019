"""`waystation privacy`: what is replaced in a text, by the rules that workers have."""

import typer

from waystation.cli.privacy import redact

app = typer.Typer()
privacy = typer.Typer(name="privacy", help="Replace what is private in a text. No server needed.", no_args_is_help=True)
app.add_typer(privacy)
for part in (redact,):
    privacy.add_typer(part.app)


@privacy.callback()
def _privacy() -> None:
    """Replace what is private in a text. No server needed."""
