"""Reads AttributionBench: claims with their references, labelled by people as attributable or not."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Literal, NamedTuple, get_args

from pydantic import BaseModel, ConfigDict

Part = Literal["development", "out of domain", "in domain"]
PARTS: Sequence[Part] = get_args(Part)
HOW_TO_GET = (
    "clone https://github.com/OSU-NLP-Group/AttributionBench or download its data set, and name the folder with "
    "dev*.jsonl, test_ood*.jsonl and test*.jsonl"
)


class _Row(BaseModel):
    model_config = ConfigDict(extra="ignore")
    claim: str
    references: list[str]
    question: str
    attribution_label: Literal["attributable", "not attributable"]
    src_dataset: str


class Example(NamedTuple):
    """One claim and its label."""

    claim: str
    references: Sequence[str]
    question: str
    is_supported: bool
    source: str
    """The data set that it comes from."""


def load_examples(folder: Path) -> dict[Part, list[Example]]:
    """Load each part that the folder has; of several files of one part, the first by name.

    Raises:
        SystemExit: the folder has no development data, by which thresholds are chosen.
    """
    files: dict[Part, Path] = {}
    for path in sorted(folder.rglob("*.jsonl")):
        if (part := _find_part(path.stem)) is not None:
            files.setdefault(part, path)
    if "development" not in files:
        raise SystemExit(f"{folder} has no development data: {HOW_TO_GET}")
    return {part: _load(files[part]) for part in PARTS if part in files}


def _find_part(stem: str) -> Part | None:
    if stem.startswith("dev"):
        return "development"
    if stem.startswith("test_ood"):
        return "out of domain"
    return "in domain" if stem.startswith("test") else None


def _load(path: Path) -> list[Example]:
    with path.open(encoding="utf-8") as lines:
        rows = [_Row.model_validate(json.loads(line)) for line in lines if line.strip()]
    return [
        Example(row.claim, row.references, row.question, row.attribution_label == "attributable", row.src_dataset)
        for row in rows
    ]
