"""Estimates an upper bound of the usage of an interrupted reply from the stream events that arrived.

`message_start` reports the input, exactly and by kind. The output is reported when the reply ends; until then it is
bounded by what arrived (a token covers at least one byte) and by what a model can have produced unseen: while thinking,
which is shown in part or not at all, and after the last event, until its provider notices that the connection is gone.
"""

import math
from dataclasses import dataclass

from anthropic.types import RawContentBlockDeltaEvent, RawContentBlockStartEvent, RawMessageStreamEvent

from waystation.context.tokens import PART_OVERHEAD, compute_max_utf8_bytes
from waystation.kernel.usage import Usage
from waystation.models.anthropic.wire import parse_usage

TOKENS_PER_SECOND = 400
"""No model of the provider produces more; the fastest ones stream about 250 tokens a second."""
NOTICE_SECONDS = 5.0
"""Seconds until a provider notices that a connection is gone, and stops."""
_THINKING = ("thinking", "redacted_thinking")


@dataclass
class StreamUsageEstimator:
    """The events of one stream so far. Times are seconds of a monotonic clock."""

    speed_known: bool = True
    """If False, all of `max_output` may have been produced unseen."""
    _input: Usage | None = None
    _output: int | None = None
    """Output tokens as reported at the end of the reply."""
    _bytes: int = 0
    _hidden: float = 0.0
    """Seconds spent thinking and before the first block."""
    _hidden_since: float | None = None
    _last: float = 0.0

    def add_event(self, event: RawMessageStreamEvent, at: float) -> None:
        """Record the next event and when it arrived."""
        self._last = at
        match event.type:
            case "message_start":
                self._input = parse_usage(event.message).replace(output=0)
                self._hidden_since = at
            case "content_block_start":
                self._show(at)
                self._begin(event, at)
            case "content_block_delta":
                self._bytes += _said(event)
            case "content_block_stop":
                self._show(at)
            case "message_delta":
                self._output = event.usage.output_tokens or self._output
            case _:
                pass

    def estimate_max_usage(self, now: float, max_output: int) -> Usage | None:
        """Return an upper bound of the billed usage; None if the input was not reported."""
        if self._input is None or not self._input.prompt_tokens:
            return None
        return self._input + Usage(output=min(max_output, self._most_output(now, max_output)))

    def _most_output(self, now: float, max_output: int) -> int:
        if self._output is not None:
            return self._output
        if not self.speed_known:
            return max_output
        open_for = 0.0 if self._hidden_since is None else self._last - self._hidden_since
        unseen = self._hidden + open_for + (now - self._last) + NOTICE_SECONDS
        return self._bytes + math.ceil(unseen * TOKENS_PER_SECOND)

    def _begin(self, event: RawContentBlockStartEvent, at: float) -> None:
        block = event.content_block
        if block.type in _THINKING:
            self._hidden_since = at
        self._bytes += PART_OVERHEAD + compute_max_utf8_bytes(block.model_dump_json())

    def _show(self, at: float) -> None:
        """End the current unseen period."""
        if self._hidden_since is not None:
            self._hidden += at - self._hidden_since
        self._hidden_since = None


def _said(event: RawContentBlockDeltaEvent) -> int:
    """Return the bytes of a delta's text, thinking or arguments; a signature is not output."""
    delta = event.delta
    match delta.type:
        case "text_delta":
            return compute_max_utf8_bytes(delta.text)
        case "thinking_delta":
            return compute_max_utf8_bytes(delta.thinking)
        case "input_json_delta":
            return compute_max_utf8_bytes(delta.partial_json)
        case _:
            return 0
