"""`waystation context mask`: old results of tools that can be called again become placeholders."""

import typer

from waystation.agents.conversation import Conversation
from waystation.cli.context.files import read_body
from waystation.cli.context.options import FileArgument, ReadingOption
from waystation.cli.context.result import Result, print_result
from waystation.cli.context.terms import Asked, measure_of, reading_tools
from waystation.cli.options import JsonOption
from waystation.settings import Settings

app = typer.Typer()


@app.command()
def mask(file: FileArgument, rereadable: ReadingOption = None, as_json: JsonOption = False) -> None:
    """Print the conversation with placeholders for old results over 1,000 tokens; the last 3 of them stay.

    However full it is, and however little is saved. FILE itself stays as it is; what is masked once stays the same.
    """
    body, asked = read_body(file), Asked()
    policy = asked.policy(body, Settings())
    conversation = Conversation(
        transcript=body.transcript,
        measure=measure_of(body),
        policy=policy,
        rereadable=frozenset(rereadable) if rereadable else reading_tools(body),
        readers={},
        notes=asked.notes,
    )
    before = conversation.tokens
    conversation.mask_now()
    print_result(Result(body, conversation, before), as_json=as_json)
