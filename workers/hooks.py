"""What this process calls before and after compactions: the commands and addresses that are set, or nothing."""

import shlex
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, aclosing, asynccontextmanager

from pydantic import SecretStr

from waystation.adapters.command.hook import CommandHook
from waystation.adapters.webhook.hook import PostedHook
from waystation.agents.hooks import CompactionHooks
from waystation.domain.errors import BadInput
from waystation.ports import CompactionHook
from waystation.settings import Settings, config_file_given, variable_given
from waystation.written import is_address

BEFORE, AFTER = "compaction_before", "compaction_after"


@asynccontextmanager
async def opened_hooks(settings: Settings) -> AsyncGenerator[CompactionHooks]:
    """The hooks, as long as the block lasts. Raises BadInput where a program is not there, and names the setting."""
    async with AsyncExitStack() as stack:
        yield CompactionHooks(
            before=await _hook(BEFORE, settings.compaction_before, stack),
            after=await _hook(AFTER, settings.compaction_after, stack),
            blocks=settings.compaction_hook_blocks,
        )


async def _hook(setting: str, written: str | None, stack: AsyncExitStack) -> CompactionHook | None:
    if written is None:
        return None
    if is_address(written):
        return await stack.enter_async_context(aclosing(PostedHook(setting, SecretStr(written))))
    try:
        return CommandHook(setting, shlex.split(written))
    except BadInput as refused:
        place = variable_given(setting) or f"{setting} in {config_file_given()}"
        raise BadInput(f"{place}: {refused}") from None
