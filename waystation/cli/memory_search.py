"""`waystation memory search`: what agents would recall, for whoever operates memory."""

import asyncio
from contextlib import AsyncExitStack, aclosing
from datetime import datetime
from typing import Annotated, get_args

import typer

from waystation.adapters.clock import utc_now
from waystation.agents.recollection import RECALLED_TOKENS, Recollection, as_passages
from waystation.cli.console import print_json, print_text, say
from waystation.cli.moments import moment
from waystation.cli.options import JsonOption
from waystation.client.looks import resolved
from waystation.domain.errors import BadInput
from waystation.domain.excerpts import Excerpt
from waystation.domain.memory import Kind, MemoryQuery
from waystation.domain.task import session_hash, tenant_hash
from waystation.domain.value import Value
from waystation.settings import Settings
from waystation.stores import key_of, opened_store

KINDS: tuple[Kind, ...] = get_args(Kind)


class FoundJson(Value):
    """One stretch of what was found, best first. Lines are those of a document, messages those of a conversation."""

    passages: tuple[str, ...]
    kind: Kind
    score: float
    task_id: str
    agent: str
    first_message: str
    last_message: str
    document: str
    first_line: int
    last_line: int
    created: datetime
    text: str

    @classmethod
    def of(cls, excerpt: Excerpt) -> "FoundJson":
        """The excerpt, flat."""
        first, last = excerpt.passages[0], excerpt.passages[-1]
        return cls(
            passages=tuple(passage.short_id for passage in excerpt.passages),
            score=excerpt.score,
            agent=first.step_id,
            last_message=last.last_message,
            last_line=last.last_line,
            created=last.created,
            text=excerpt.text,
            **first.model_dump(include={"kind", "task_id", "first_message", "document", "first_line"}),
        )


def search(
    query: Annotated[str, typer.Argument(help="What to look for; redacted before anything searches for it.")],
    session: Annotated[str | None, typer.Option("--session", help="Of this session alone.")] = None,
    task: Annotated[str | None, typer.Option("--task", metavar="TASK", help="Of this task alone.")] = None,
    agent: Annotated[str | None, typer.Option("--agent", help="Of this agent alone, like research-1.")] = None,
    kind: Annotated[str | None, typer.Option("--kind", help="conversation or document; by default both.")] = None,
    since: Annotated[str | None, typer.Option(metavar="DATE", help="Hidden or remembered then or later.")] = None,
    until: Annotated[str | None, typer.Option(metavar="DATE", help="Hidden or remembered before.")] = None,
    tokens: Annotated[int, typer.Option("--tokens", min=1, help="At most so many tokens.")] = RECALLED_TOKENS,
    as_json: JsonOption = False,
) -> None:
    """Show what agents would recall: passages of conversations that compactions hid, and of documents.

    Where workers have embedded memory open, they are asked.
    """
    settings, now = Settings(), utc_now().astimezone()
    if kind is not None and kind not in KINDS:
        raise BadInput(f"there is no kind {kind!r}: it is {' or '.join(KINDS)}")
    for option, given in (("--session", session), ("--task", task), ("--agent", agent)):
        if given is not None and not given.strip():
            raise BadInput(f"{option} is empty: say which one, or leave it out to search all")
    if not query.strip():
        raise BadInput("there is nothing to look for: give a few words")
    wanted = MemoryQuery(
        tenant=tenant_hash(settings.tenant),
        session=None if session is None else session_hash(settings.tenant, session),
        agents=() if agent is None else (agent,),
        kinds=tuple(known for known in KINDS if known == kind),
        since=moment(since, "--since", now),
        until=moment(until, "--until", now),
        text=query,
        dense=None,
    )
    found = asyncio.run(_found(settings, wanted, task, tokens))
    if as_json:
        print_json(tuple(map(FoundJson.of, found)))
    elif found:
        print_text(as_passages(found))
    else:
        say("nothing like that is remembered")


async def _found(settings: Settings, wanted: MemoryQuery, task: str | None, tokens: int) -> tuple[Excerpt, ...]:
    # Qdrant, the embedder and Presidio take seconds to load.
    from waystation.embedders import opened_embedder  # noqa: PLC0415
    from waystation.redactors import redactor_of  # noqa: PLC0415
    from workers.looking import memory_to_search  # noqa: PLC0415
    from workers.memory import memory_is_there  # noqa: PLC0415

    async with AsyncExitStack() as stack:
        store = await stack.enter_async_context(aclosing(await opened_store(settings)))
        if task is not None:
            wanted = wanted.model_copy(update={"tasks": (await resolved(store, wanted.reader, task),)})
        if not await memory_is_there(settings):
            return ()
        embedder = await stack.enter_async_context(opened_embedder(settings))
        memory = await stack.enter_async_context(memory_to_search(settings, store, embedder))
        redactor = redactor_of(settings, await key_of(store, settings))
        stack.callback(redactor.close)
        return await Recollection(memory, embedder, redactor).search(wanted, tokens)
