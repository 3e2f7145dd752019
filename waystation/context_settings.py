"""Settings of compaction: the strategy, profiles by model, hooks."""

from typing import Annotated

from pydantic import Field
from pydantic_settings import BaseSettings, NoDecode

from waystation.domain.compaction.policy import Strategy
from waystation.domain.profiles import Profile
from waystation.written import WrittenHook, WrittenTable


class ContextSettings(BaseSettings):
    """Read together with all others: see `waystation.settings.Settings`."""

    strategy: Strategy = Field(
        default="ends",
        description="How a compaction chooses what a summary is to stand for: window, snapshot, replace or ends.",
    )
    keep_last: int | None = Field(
        default=None,
        ge=0,
        le=1_000,
        description="At most so many of the last messages outlive a compaction under replace (by default none) and "
        "ends (by default 3, or what the model's profile says).",
    )
    auto_compact: bool = Field(
        default=True,
        description="Write summaries when a context is full. Off: old results are masked, and then the oldest half is "
        "hidden.",
    )
    profiles: Annotated[dict[str, Profile], NoDecode, WrittenTable] = Field(
        default={},
        description="By a part of a model's name: threshold (percent, 5 to 100, -1 for the default), keep (last "
        "messages under ends) and condense_model (its name, or itself). In the config file: [profiles.sonnet].",
    )
    compaction_before: WrittenHook = Field(
        default=None,
        repr=False,
        description="Called before each compaction that a worker makes: a command line, run without a shell, or an "
        "http or https address (docs/context.md).",
    )
    compaction_after: WrittenHook = Field(
        default=None, repr=False, description="The same, when a compaction has ended, however it did."
    )
    compaction_hook_blocks: bool = Field(
        default=False, description="Make no compaction where the hook before it fails; otherwise that is only told."
    )
