"""Documents that are long enough for agents to fill their windows and spend their budgets."""

from pathlib import Path

QUESTION = "Which harbours does the survey name, and what does it say about their depth?"
BROAD_QUESTION = (
    "Which harbours does the survey name, what does each sheet say about the depth at low water, and which are shallow?"
)
"""With a window of 6,000 tokens the researchers of this one compact several times."""
TIGHT_BUDGET = "40k"
"""A budget under which the built-in model pauses over the first question, whatever is in its cache."""
SHEETS, LINES = 12, 150


def write_survey_documents(folder: Path) -> Path:
    """A folder of Markdown files, always the same."""
    folder.mkdir()
    for sheet in range(SHEETS):
        lines = [
            f"Harbour Nordvik {sheet}-{line} has a depth of {line % 17 + 3} metres at low water, as sheet {sheet} says."
            for line in range(LINES)
        ]
        (folder / f"sheet-{sheet:02}.md").write_text(f"# Sheet {sheet}\n\n" + "\n\n".join(lines) + "\n")
    return folder
