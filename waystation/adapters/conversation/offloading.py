"""Rung 1 for a conversation in a file: results that are too large for any context become previews."""

from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from waystation.domain.compaction.history import pinned_ids
from waystation.domain.compaction.offload import END_CHARACTERS, ends, is_too_large
from waystation.domain.errors import BadInput
from waystation.domain.messages import Block, Message, ToolResult
from waystation.domain.transcript import Transcript
from waystation.private_files import private_folder, write_private

LEAST_CHARACTERS = 2 * END_CHARACTERS + 500
"""A shorter text is about as long as a preview; nor is a preview shortened again."""


@dataclass(frozen=True)
class Offloading:
    """Where the whole results go: into files of this folder, or nowhere but the file that they are in already."""

    folder: Path | None

    def previewed(self, transcript: Transcript, window: int) -> Transcript:
        """The transcript with previews of the results that are too large for this window; itself without such.

        Raises BadInput where the folder cannot be written to: then nothing is hidden.
        """
        pinned = pinned_ids(transcript)
        messages = tuple(
            message if message.id in pinned else self._message(message, window) for message in transcript.messages
        )
        changed = any(new is not old for new, old in zip(messages, transcript.messages, strict=True))
        return transcript.model_copy(update={"messages": messages}) if changed else transcript

    def _message(self, message: Message, window: int) -> Message:
        if not any(_is_long(block, window) for block in message.blocks):
            return message
        return message.model_copy(update={"blocks": tuple(self._blocks(message, window))})

    def _blocks(self, message: Message, window: int) -> Iterator[Block]:
        for block in message.blocks:
            if isinstance(block, ToolResult) and _is_long(block, window):
                yield block.model_copy(update={"content": self._preview(message.id, block.content)})
            else:
                yield block

    def _preview(self, message_id: str, text: str) -> str:
        place = f"{message_id} of the file that was compacted" if self.folder is None else self._kept(text)
        return ends(text, f"All its {len(text):,} characters are in {place}")

    def _kept(self, text: str) -> str:
        raw = text.encode()
        path = Path(self.folder or ".") / f"{sha256(raw).hexdigest()[:20]}.txt"
        try:
            private_folder(path.parent)
            write_private(path, raw)
        except OSError as error:
            raise BadInput(f"--originals {self.folder} cannot be written to: {error.strerror}") from error
        return str(path)


def _is_long(block: Block, window: int) -> bool:
    return (
        isinstance(block, ToolResult) and len(block.content) > LEAST_CHARACTERS and is_too_large(block.content, window)
    )
