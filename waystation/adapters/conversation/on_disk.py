"""Files that a conversation names, as they are now: of one folder that a person named, and nowhere else."""

import os
from dataclasses import dataclass
from pathlib import Path

from waystation.domain.compaction.changed import differs
from waystation.domain.compaction.restored import Restorable
from waystation.domain.errors import BadInput

MOST_BYTES = 10_000_000
"""A larger file is not looked into."""


@dataclass(frozen=True)
class FilesOnDisk:
    """The folder. A conversation may come from anywhere: no name in it leads out of here, nor does a link."""

    folder: Path

    def __post_init__(self) -> None:
        """Raises BadInput where there is no such folder."""
        if not self.folder.is_dir():
            raise BadInput(f"--files {self.folder} is no folder: name the one that the conversation's files are in")

    def has_changed(self, file: Restorable) -> bool:
        """Whether the file is there and does not have what was read of it. False for what cannot be known."""
        try:
            path = Path(os.path.realpath(self.folder / file.name))
            inside = path.is_relative_to(os.path.realpath(self.folder))
            if not inside or not path.is_file() or path.stat().st_size > MOST_BYTES:
                return False
            return differs(file.text, path.read_text(encoding="utf-8", errors="replace"))
        except (OSError, ValueError):
            return False
