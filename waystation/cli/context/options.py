"""Arguments and options of the `context` commands."""

from pathlib import Path
from typing import Annotated

import typer

from waystation.domain.compaction.policy import Strategy

FileArgument = Annotated[
    Path, typer.Argument(metavar="FILE", help="A request body of the Messages API as JSON; - reads it from stdin.")
]
WindowOption = Annotated[
    str | None,
    typer.Option("--window", metavar="N", help="Working window in tokens, like 50k; by default the model's."),
]
MaxOutputOption = Annotated[
    str | None, typer.Option("--max-output", metavar="N", help="Longest reply in tokens; by default the model's.")
]
ThresholdOption = Annotated[
    str | None,
    typer.Option(
        "--threshold", metavar="P", help="Percent of the window that is full: 5 to 100; -1 takes the default."
    ),
]
StrategyOption = Annotated[
    Strategy | None, typer.Option("--strategy", help="What the summary stands for, and what stays; by default ends.")
]
InstructionsOption = Annotated[str, typer.Option("--instructions", help="What the summary is to heed.")]
PinOption = Annotated[
    list[int] | None, typer.Option("--pin", metavar="INDEX", help="Keep this message as it is; repeatable.")
]
SummaryOption = Annotated[
    Path | None, typer.Option("--summary-file", help="Take this file's text for the summary, and ask no model.")
]
OriginalsOption = Annotated[
    Path | None,
    typer.Option("--originals", metavar="FOLDER", help="Write results that are too large to keep into this folder."),
]
FilesOption = Annotated[
    Path | None,
    typer.Option(
        "--files", metavar="FOLDER", help="Where the conversation's files are: replace marks those that have changed."
    ),
]
RereadableOption = Annotated[
    list[str] | None,
    typer.Option(
        "--rereadable", metavar="NAME", help="A tool that can be called again: old results are masked before a summary."
    ),
]
ReadingOption = Annotated[
    list[str] | None,
    typer.Option(
        "--rereadable",
        metavar="NAME",
        help="A tool that can be called again; repeatable. Not given: every tool whose name begins with a word such as "
        "read, get, list, search, find, view, fetch or query.",
    ),
]
ForceOption = Annotated[
    bool, typer.Option("--force", help="Summarise also when it is not full; a refused summary changes nothing.")
]
