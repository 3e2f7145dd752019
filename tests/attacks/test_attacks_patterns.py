import json
import os
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from presidio_analyzer import PatternRecognizer

from tests.attacks.pumps import has_unbounded_lookahead
from waystation.plugins.redaction.engines import build_format_recognizers
from waystation.plugins.redaction.national import FORMS
from waystation.plugins.redaction.rules import DetectionConfig

ROOT = Path(__file__).parents[2]
USUAL_PUMPS = 8
PUMPS = int(os.environ.get("PUMPS", USUAL_PUMPS))
"""For each pattern. `make pump` takes a thousand."""
# Seconds of the clock, on a busy machine; what is measured is CPU time.
pytestmark = pytest.mark.timeout(900 if PUMPS <= USUAL_PUMPS else 0)
Source = tuple[str, int]
EXPONENTIAL: Sequence[Source] = (
    (r"(a+)+b", 0),
    (r"^(?:a|b|ab)*c", 0),
    (r"(?:\w+\s?)+:", 0),
    (r"(?:<!--.*?-->\s*)*<html", re.DOTALL),
)
QUADRATIC: Sequence[Source] = (
    (r"\s*x", 0),
    (r"a*+b", 0),
    (r"<(?=\s*/?\s*foreign)", re.IGNORECASE),
    (r"\w+@\w+", 0),
    (r"<a>.*?</a>", re.DOTALL),
    (r"^(.+), (\w+)*$", 0),
    (r"\[([^\]]*)\]\([^)]*\)", 0),
)
QUADRATIC_ON_RE2: Sequence[Source] = ((r"a.*b|a", 0),)
LINEAR: Sequence[Source] = ((r"(?<!\s)\s*+x", 0), (r"(?<!\w)\w{1,64}+@\w+", 0), (r'"[^"\n]{8,200}"', 0), (r"^#+ +", 0))
LINEAR_ON_RE2: Sequence[Source] = ((r"(a+)+b", 0), (r"(?:a|b|ab)*c", 0))
SAME_FLAGS = re.DOTALL | re.MULTILINE | re.IGNORECASE
"""As Presidio compiles its patterns."""
PERSONS = ("Ada Lovelace", "- - -", "a_b -c _d_", "+1 212 555 0147", "漢字 かな", "Ada", "n\\n n", "10.0.0.1")


def pumped(**asked: bool | Sequence[str] | Sequence[Source]) -> dict[str, str | None]:
    """What is wrong with each pattern. In a process of its own, since it forks, and imports the whole product."""
    order = {"number": PUMPS, "product": False, "persons": (), "sources": (), "linear": (), **asked}
    command = [sys.executable, "-m", "tests.attacks.pump_runner"]
    ran = subprocess.run(command, cwd=ROOT, input=json.dumps(order), capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    return dict(json.loads(line) for line in ran.stdout.splitlines())


def recognisers() -> list[PatternRecognizer]:
    """Presidio's own that the product runs, with every country."""
    formats = [one for one in build_format_recognizers(DetectionConfig()) if isinstance(one, PatternRecognizer)]
    return [*formats, *(form.recogniser() for forms in FORMS.values() for form in forms)]


def test_every_pattern_of_the_product_takes_time_that_is_linear_in_its_text() -> None:
    found = pumped(product=True)
    assert len(found) > 100
    assert {place: slow for place, slow in found.items() if slow} == {}


def test_the_patterns_that_presidio_brings_are_linear_too() -> None:
    brought = sorted({(one.regex, SAME_FLAGS) for recogniser in recognisers() for one in recogniser.patterns})
    assert len(brought) > 40
    assert [source for source, flags in brought if has_unbounded_lookahead(source, flags)] == []
    found = pumped(sources=brought)
    assert {source: slow for source, slow in found.items() if slow} == {}


def test_whoever_is_looked_for_a_text_takes_linear_time() -> None:
    found = pumped(persons=PERSONS)
    assert len(found) == len(PERSONS)
    assert {person: slow for person, slow in found.items() if slow} == {}


def test_pumping_finds_patterns_that_are_exponential_or_quadratic() -> None:
    found = pumped(sources=[*EXPONENTIAL, *QUADRATIC], linear=QUADRATIC_ON_RE2)
    assert len(found) == len(EXPONENTIAL) + len(QUADRATIC) + len(QUADRATIC_ON_RE2)
    assert [source for source, slow in found.items() if slow is None] == []


def test_pumping_lets_patterns_pass_that_are_linear() -> None:
    found = pumped(sources=LINEAR, linear=LINEAR_ON_RE2)
    assert {source: slow for source, slow in found.items() if slow} == {}
