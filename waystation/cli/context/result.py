"""What was done to a conversation in a file: as JSON with stable keys, and as a short text."""

import json
import sys
from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass
from functools import cached_property

from pydantic import JsonValue

from waystation.adapters.conversation.request_body import RequestBody, place
from waystation.adapters.conversation.writing import written_messages
from waystation.agents.conversation import Attempt, Conversation
from waystation.cli.console import print_text
from waystation.cli.render import counted
from waystation.domain.compaction import ledger
from waystation.domain.compaction.history import pinned_ids, stand_in
from waystation.domain.compaction.legality import violations
from waystation.domain.compaction.view import masked_calls, view
from waystation.domain.messages import Message
from waystation.domain.plain import plain_json
from waystation.domain.transcript import Compaction, Masked, Summarised

SHOWN_FAULTS = 20


@dataclass(frozen=True)
class Result:
    """A conversation in which room was made, beside the file that it comes from."""

    body: RequestBody
    conversation: Conversation
    tokens_before: int

    def json(self) -> dict[str, JsonValue]:
        """Everything, under stable keys; indices are those of the file's messages.

        Every other field of the request stands beside them as it was given, so that the result is a request again.
        """
        done = self.conversation
        found: dict[str, JsonValue] = {
            "status": done.status,
            "strategy": done.policy.strategy,
            "tokens_before": self.tokens_before,
            "tokens_after": done.tokens,
            "threshold": done.policy.trigger,
            "window": done.policy.window,
            "compaction_id": self._records[-1].id if self._records else "",
            "messages": [*written_messages(self.body, self._shown)],
            "hidden": [*self.hidden],
            "kept": [*self._kept],
            "masked": [*self._masked],
            "pinned": [*_places(pinned_ids(done.transcript))],
            "ledger": [*self._ledger],
            "notes": [*self._notes],
            "attempts": [attempt.model_dump(mode="json") for attempt in done.attempts],
        }
        return found | {key: value for key, value in self.body.given.items() if key not in found}

    def text(self) -> str:
        """The same, for people: without the messages."""
        done = self.conversation
        lines = [
            f"{done.status}  {self.tokens_before:,} → {done.tokens:,} tokens, system prompt and tools included "
            f"(full at {done.policy.trigger:,}, window {done.policy.window:,})"
        ]
        lines += [_attempt_text(attempt) for attempt in done.attempts]
        shown = {"hidden": self.hidden, "masked": self._masked, "pinned": _places(pinned_ids(done.transcript))}
        lines += [
            f"{name}: {counted(len(found), 'message')}, {_ranges(found)}" for name, found in shown.items() if found
        ]
        lines += [f"ledger: {line}" for line in self._ledger]
        return "\n".join([*lines, *self._notes])

    @cached_property
    def hidden(self) -> list[int]:
        """Indices of the messages that a summary or a marker stands for."""
        covered = {name for record in self._records if not isinstance(record, Masked) for name in record.covered}
        return [index for index in _places(covered | self._merged_into(covered)) if index not in set(self._kept)]

    def _merged_into(self, covered: Set[str]) -> set[str]:
        """Ids of the file's messages whose results were brought together with others in these."""
        before = view(self.body.transcript)
        answers = {result.tool_use_id for message in before if message.id in covered for result in message.tool_results}
        return {
            message.id
            for message in self.body.transcript.messages
            if any(result.tool_use_id in answers for result in message.tool_results)
        }

    @cached_property
    def _shown(self) -> tuple[Message, ...]:
        return view(self.conversation.transcript)

    @cached_property
    def _kept(self) -> list[int]:
        return _places(message.id for message in self._shown)

    @property
    def _notes(self) -> list[str]:
        mended = violations(self.body.transcript.messages, pending_allowed=True)
        notes = [f"Mended: {fault}." for fault in mended[:SHOWN_FAULTS]]
        if len(mended) > SHOWN_FAULTS:
            notes.append(f"Mended: {len(mended) - SHOWN_FAULTS:,} faults more; `waystation context check` names them.")
        if self._shown and violations(self._shown):
            notes.append("Calls at the end wait for their results: the API takes the messages once these are there.")
        for record in self._records:
            if isinstance(record, Summarised):
                notes += [f"The check added {what}." for what in record.added]
                notes += [f"The check took out {what}." for what in record.removed]
        return [*self.conversation.notes, *notes]

    @property
    def _masked(self) -> list[int]:
        calls = masked_calls(self.conversation.transcript)
        return _places(
            message.id for message in self._shown if any(item.tool_use_id in calls for item in message.tool_results)
        )

    @property
    def _records(self) -> tuple[Compaction, ...]:
        """Of this compaction."""
        return self.conversation.transcript.compactions[len(self.body.transcript.compactions) :]

    @property
    def _ledger(self) -> list[str]:
        made = [stand_in(record) for record in self._records if not isinstance(record, Masked)]
        shown = {message.id for message in self._shown}
        return [line for message in made if message.id in shown for line in ledger.entries(message, "")]


def print_result(result: Result, *, as_json: bool) -> None:
    """The result on stdout: one JSON value, or a text that says where the messages are to be had."""
    if as_json:
        print_object(result.json())
        return
    print_text(result.text())
    print_text("The new messages come with --json: add `--json > compacted.json`. The file itself is as it was.")


def print_object(value: Mapping[str, JsonValue]) -> None:
    """One JSON value. Not by way of the console, which takes minutes over a long conversation."""
    sys.stdout.write(plain_json(json.dumps(value, ensure_ascii=False, indent=2)) + "\n")


def _attempt_text(attempt: Attempt) -> str:
    reason = f": {attempt.reason}" if attempt.reason else ""
    return f"  {attempt.status}  {attempt.tokens_before:,} → {attempt.tokens_after:,}{reason}"


def _places(message_ids: Iterable[str]) -> list[int]:
    return sorted({index for name in message_ids if (index := place(name)) is not None})


def _ranges(indices: list[int]) -> str:
    """The indices as people write them: 0, 3-9."""
    runs: list[list[int]] = []
    for index in indices:
        if runs and index == runs[-1][-1] + 1:
            runs[-1].append(index)
        else:
            runs.append([index])
    return ", ".join(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs)
