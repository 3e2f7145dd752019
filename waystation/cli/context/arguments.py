"""Arguments of the `context` commands: files (errors name them), options, and the policy by which a conversation in a
file is compacted.
"""

import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import typer

from waystation.cli.options import parse_tokens
from waystation.config.presets import (
    INHERITED,
    MAX_THRESHOLD,
    MIN_THRESHOLD,
    ConfigLayer,
    build_profile_layer,
    find_compaction_profile,
)
from waystation.config.resolver import OUTPUT_RESERVE
from waystation.config.settings import Settings
from waystation.context.policy import CompactionPolicy, StrategyName
from waystation.context.tokens import TokenEstimator, estimate_fixed_tokens
from waystation.kernel.errors import BadInput
from waystation.kernel.patterns import compile_bounded
from waystation.models.profiles import DEFAULT_SUMMARY_MODEL, OFFLINE_MODEL, ModelProfile, get_model_profile
from waystation.plugins.request_files.request_body import RequestBody, read_request_body

_STDIN = Path("-")


def read_bytes(path: Path) -> bytes:
    """Read the file, or stdin. Raises BadInput."""
    try:
        return sys.stdin.buffer.read() if path == _STDIN else path.read_bytes()
    except OSError as error:
        raise BadInput(f"{path} cannot be read: {error.strerror or type(error).__name__}") from error


def read_request_file(path: Path) -> RequestBody:
    """Read the request body in the file. Raises BadInput that names file and location."""
    raw = read_bytes(path)
    try:
        return read_request_body(raw)
    except BadInput as error:
        raise BadInput(f"{path}: {error}") from None


def read_text(path: Path, option: str) -> str:
    """Read the text of a file that an option names. Raises BadInput."""
    try:
        return read_bytes(path).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise BadInput(f"{option} {path} is not UTF-8 text: save it as plain text in UTF-8") from error


FileArgument = Annotated[
    Path, typer.Argument(metavar="FILE", help="JSON request body of the Messages API; - reads stdin.")
]
WindowOption = Annotated[
    str | None,
    typer.Option("--window", metavar="TOKENS", help="Context window, like 50k; default: the model's window."),
]
MaxOutputOption = Annotated[
    str | None,
    typer.Option("--max-output", metavar="TOKENS", help="Maximum length of a reply; default: the model's maximum."),
]
ThresholdOption = Annotated[
    str | None,
    typer.Option(
        "--threshold",
        metavar="PERCENT",
        help="Percentage of the window at which to compact: 5 to 100; -1 for the default.",
    ),
]
StrategyOption = Annotated[
    StrategyName | None,
    typer.Option(
        "--strategy",
        metavar="NAME",
        help="Strategy, which decides what a compaction keeps: ends (default), window, snapshot or replace.",
    ),
]
InstructionsOption = Annotated[
    str, typer.Option("--instructions", metavar="TEXT", help="Instructions for the summary.")
]
PinOption = Annotated[
    list[int] | None,
    typer.Option(
        "--pin", metavar="INDEX", help="Index of a message to exclude from compaction, counted from 0; repeatable."
    ),
]
SummaryOption = Annotated[
    Path | None,
    typer.Option("--summary-file", metavar="FILE", help="Use the text in this file as the summary; call no model."),
]
OriginalsOption = Annotated[
    Path | None,
    typer.Option(
        "--originals",
        metavar="FOLDER",
        help="Folder for the full text of results that are too large; the output has previews instead.",
    ),
]
FilesOption = Annotated[
    Path | None,
    typer.Option(
        "--files",
        metavar="FOLDER",
        help="Folder with the conversation's files; the strategy `replace` marks files that have changed since they "
        "were read.",
    ),
]
RereadableOption = Annotated[
    list[str] | None,
    typer.Option(
        "--rereadable",
        metavar="NAME",
        help="Tool that can be called again, so its old results are masked before a summary is made. The option can be "
        "repeated.",
    ),
]
ReadingOption = Annotated[
    list[str] | None,
    typer.Option(
        "--rereadable",
        metavar="NAME",
        help="Tool that can be called again, so its old results may be replaced. The option can be repeated. Default: "
        "tools with names that begin with read, get, list, search, find, view, fetch, query and similar words.",
    ),
]
ForceOption = Annotated[bool, typer.Option("--force", help="Summarise even if the context is not full.")]


READING = frozenset(
    {"read", "get", "list", "search", "find", "view", "fetch", "query", "grep", "glob", "ls", "cat", "show", "open"}
    | {"look", "lookup", "recall", "browse", "describe", "inspect", "retrieve", "scan"}
)
"""First words of the names of tools that can be called again without harm."""
FILE_ARGUMENTS = ("path", "file_path", "filename", "file")
"""Names of tool arguments that name a file, the likeliest first."""
_WORDS = compile_bounded(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|\d+")
_PREFIXES = frozenset({"web", "file", "fs"})
"""Prefixes before the first word: web_search, file_read."""


@dataclass
class CompactionOptions:
    """The options as they were typed."""

    window: str | None = None
    max_output: str | None = None
    threshold: str | None = None
    strategy: StrategyName = "ends"
    instructions: str = ""
    notes: list[str] = field(default_factory=list[str])
    """Options that could not be applied as requested."""

    def build_policy(self, body: RequestBody, settings: Settings) -> CompactionPolicy:
        """Build the policy. Raises BadInput for invalid numbers."""
        window, profile = self._window(body, settings), get_profile_layer(body, settings, self.strategy)
        given = settings.trigger_percent if "trigger_percent" in settings.model_fields_set else None
        percent = self._percent(given or profile.trigger_percent or settings.trigger_percent)
        trigger = int(window * percent / 100)
        return CompactionPolicy(
            strategy=self.strategy,
            instructions=self.instructions,
            window=window,
            trigger=trigger,
            target=trigger // 2,
            primers=settings.primers,
            recents=settings.recents,
            keep_last=profile.keep_last if settings.keep_last is None else settings.keep_last,
            can_recall=False,
        )

    def _window(self, body: RequestBody, settings: Settings) -> int:
        facts = get_model_profile(body.model or "")
        if not facts.is_known:
            who = f"The model {body.model} is unknown" if body.model else "The request names no model"
            self.notes.append(f"{who}: assuming a window of {facts.window:,} tokens.")
        usable = facts.window - min(self._max_output(facts), OUTPUT_RESERVE) - facts.window // 10
        wished = _tokens(self.window, "--window")
        if wished is None:
            return min(usable, settings.window_cap)
        if wished > usable or wished < 1:
            taken = usable if wished > usable else min(usable, settings.window_cap)
            self.notes.append(
                f"--window {wished:,} is not available, because the model's input may have 1 to {usable:,} tokens: "
                f"using {taken:,}."
            )
            return taken
        return wished

    def _max_output(self, facts: ModelProfile) -> int:
        wished = _tokens(self.max_output, "--max-output")
        if wished is None or 1 <= wished <= facts.max_output:
            return wished or facts.max_output
        self.notes.append(
            f"--max-output {wished:,} is not available, because the model's replies may have 1 to {facts.max_output:,} "
            f"tokens: using {facts.max_output:,}."
        )
        return facts.max_output

    def _percent(self, default: int) -> float:
        if self.threshold is None:
            return default
        try:
            percent = float(self.threshold.removesuffix("%"))
        except ValueError:
            percent = 0.0
        if MIN_THRESHOLD <= percent <= MAX_THRESHOLD:
            return percent
        if percent != INHERITED:
            self.notes.append(
                f"--threshold {self.threshold!r} is invalid, because the threshold must be {MIN_THRESHOLD} to "
                f"{MAX_THRESHOLD}, or {INHERITED} for the default. Using the default, {default}."
            )
        return default


def get_profile_layer(body: RequestBody, settings: Settings, strategy: StrategyName) -> ConfigLayer:
    """Return the configuration layer of the model's profile; empty without one."""
    found = find_compaction_profile(body.model or "", settings.profiles)
    return build_profile_layer(found[1], body.model or "", keeps_ends=strategy == "ends") if found else ConfigLayer()


def build_token_estimator(body: RequestBody) -> TokenEstimator:
    """Build the estimator for requests with this body's system prompt and tools."""
    return TokenEstimator(fixed_tokens=estimate_fixed_tokens(body.system, body.tools_json))


def select_summary_model(body: RequestBody, settings: Settings) -> str:
    """Return the model that writes the summaries."""
    if settings.uses_offline_model:
        return OFFLINE_MODEL
    by_profile = get_profile_layer(body, settings, settings.strategy).condense_model
    return (
        settings.condense_model
        if "condense_model" in settings.model_fields_set
        else by_profile or DEFAULT_SUMMARY_MODEL
    )


def find_repeatable_tools(body: RequestBody) -> frozenset[str]:
    """Return the tools whose calls can be repeated, judged by their names."""
    used = {call.name for message in body.transcript.messages for call in message.tool_uses}
    return frozenset(name for name in used if _only_reads(name))


def find_file_reading_tools(body: RequestBody) -> dict[str, str]:
    """Return the tools that appear to read files, each with the argument that names the file."""
    tools = find_repeatable_tools(body)
    called = (call for message in body.transcript.messages for call in message.tool_uses if call.name in tools)
    return {call.name: name for call in called for name in reversed(FILE_ARGUMENTS) if name in call.input}


def _only_reads(tool: str) -> bool:
    # The part before a double underscore is the tool's server: mcp__github__get_issue.
    words = [word.lower() for word in _WORDS.findall(tool.rpartition("__")[2])]
    while words and words[0] in _PREFIXES:
        words.pop(0)
    return bool(words) and words[0] in READING


def _tokens(typed: str | None, option: str) -> int | None:
    if typed is None:
        return None
    if typed.strip().startswith("-"):
        return 0
    return parse_tokens(typed, option, lowest=0)
