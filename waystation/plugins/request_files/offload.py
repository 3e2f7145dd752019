"""Offloads oversized tool results of a conversation in a file to previews, and checks files that the conversation
names, within one folder that a person named.
"""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from waystation.context.history import get_pinned_message_ids
from waystation.context.restoration import RestorableFile, has_file_changed
from waystation.context.stages import END_CHARACTERS, is_too_large, truncate_middle
from waystation.context.transcript import Block, Message, ToolResult, Transcript
from waystation.kernel.errors import BadInput
from waystation.kernel.files import create_private_folder, write_private_file

_MIN_CHARACTERS = 2 * END_CHARACTERS + 500
"""A shorter text is about as long as its preview; nor is a preview shortened again."""


@dataclass(frozen=True)
class ResultOffloader:
    """Writes whole results to files of this folder; without one, they stay only in the conversation's file."""

    folder: Path | None

    def replace_with_previews(self, transcript: Transcript, window: int) -> Transcript:
        """Return the transcript with previews of results that are too large for this window; itself if there are none.

        Raises:
            BadInput: The folder is not writable; nothing is hidden then.
        """
        pinned = get_pinned_message_ids(transcript)
        messages = tuple(
            message if message.id in pinned else self._message(message, window) for message in transcript.messages
        )
        changed = any(new is not old for new, old in zip(messages, transcript.messages, strict=True))
        return transcript.replace(messages=messages) if changed else transcript

    def _message(self, message: Message, window: int) -> Message:
        if not any(_is_long(block, window) for block in message.blocks):
            return message
        return message.replace(blocks=tuple(self._blocks(message, window)))

    def _blocks(self, message: Message, window: int) -> Iterator[Block]:
        for block in message.blocks:
            if isinstance(block, ToolResult) and _is_long(block, window):
                yield block.replace(content=self._preview(message.id, block.content))
            else:
                yield block

    def _preview(self, message_id: str, text: str) -> str:
        place = f"{message_id} of the file that was compacted" if self.folder is None else self._kept(text)
        return truncate_middle(text, f"All {len(text):,} characters are in {place}")

    def _kept(self, text: str) -> str:
        raw = text.encode()
        path = Path(self.folder or ".") / f"{sha256(raw).hexdigest()[:20]}.txt"
        try:
            create_private_folder(path.parent)
            write_private_file(path, raw)
        except OSError as error:
            raise BadInput(f"--originals {self.folder} cannot be written to: {error.strerror}") from error
        return str(path)


def _is_long(block: Block, window: int) -> bool:
    return (
        isinstance(block, ToolResult) and len(block.content) > _MIN_CHARACTERS and is_too_large(block.content, window)
    )


_MAX_BYTES = 10_000_000
"""Maximum size of a file that is read, in bytes."""


@dataclass(frozen=True)
class FileChangeDetector:
    """Compares files of one folder.

    A conversation may come from anywhere: no name in it, and no link, leads out of the folder.
    """

    folder: Path

    def __post_init__(self) -> None:
        """Check the folder. Raises BadInput if it does not exist."""
        if not self.folder.is_dir():
            raise BadInput(f"--files {self.folder} is not a folder: give the folder with the conversation's files")

    def has_changed(self, file: RestorableFile) -> bool:
        """Return whether the file exists and differs from what was read of it. False if unknown."""
        try:
            path = Path(os.path.realpath(self.folder / file.name))
            inside = path.is_relative_to(os.path.realpath(self.folder))
            if not inside or not path.is_file() or path.stat().st_size > _MAX_BYTES:
                return False
            return has_file_changed(file.text, path.read_text(encoding="utf-8", errors="replace"))
        except (OSError, ValueError):
            return False
