"""A few lines about harbours: a task over them takes seconds."""

from pathlib import Path

QUESTION = "Which harbour was closed by silt, and how deep is it at low water?"


def write_harbour_documents(folder: Path) -> Path:
    """A folder with two short documents."""
    folder.mkdir()
    (folder / "nordvik.md").write_text("# Nordvik\n\nThe harbour of Nordvik was closed by silt in 1871.\n")
    (folder / "sandby.md").write_text("# Sandby\n\nThe harbour of Sandby is 7 metres deep at low water.\n")
    return folder
