from pathlib import Path

import pytest

from waystation.kernel.errors import BadInput, RedactionFailed
from waystation.plugins.redaction.redactor import PresidioRedactor
from waystation.plugins.redaction.rules import DetectionConfig, load_custom_rules
from waystation.privacy.policy import RedactionPolicy, RedactionResult, TextDestination

KEY = b"k" * 32
RULES = r"""
recognizers:
  - name: staff number
    supported_entity: STAFF
    supported_languages: [en]
    patterns:
      - {name: dashed, regex: '\bE-\d{6}\b', score: 0.9}
      - {name: bare, regex: '\b\d{6}\b', score: 0.1}
    context: [staff, Personalnummer]
  - name: projects
    supported_entity: PROJECT
    deny_list: [Blue Heron, Xanadu]
  - name: unused
    supported_entity: NOTHING
    enabled: false
    deny_list: [everything]
allow:
  - noreply@example.com
  - regex: '.*@example\.org'
"""


def written(folder: Path, text: str) -> Path:
    path = folder / "rules.yaml"
    path.write_text(text, encoding="utf-8")
    return path


async def redacted(
    folder: Path, rules: str, text: str, policy: RedactionPolicy = RedactionPolicy.STANDARD
) -> RedactionResult:
    redactor = PresidioRedactor(KEY, DetectionConfig(policy=policy, custom=load_custom_rules(written(folder, rules))))
    try:
        (result,) = await redactor.redact([text], TextDestination.TOOL_RESULT, "t")
    finally:
        redactor.close()
    return result


def types_in(result: RedactionResult) -> list[str]:
    return [span.type for span in result.spans]


async def test_own_recognisers_find_what_they_say(tmp_path: Path) -> None:
    text = "E-123456 works on blue heron; staff 654321; order 111222; everything in task-E-777777."
    result = await redacted(tmp_path, RULES, text)
    assert types_in(result) == ["STAFF", "PROJECT", "STAFF", "STAFF"]
    assert "order 111222" in result.text
    assert "everything" in result.text
    again = await redacted(tmp_path, RULES, result.text)
    assert again == RedactionResult(text=result.text)


async def test_of_own_recognisers_secrets_only_takes_those_of_secrets(tmp_path: Path) -> None:
    rules = RULES + "\n"
    assert types_in(await redacted(tmp_path, rules, "E-123456 and Xanadu", RedactionPolicy.SECRETS_ONLY)) == []
    own_secret = "recognizers: [{name: a, supported_entity: SECRET, deny_list: [Xanadu]}]"
    assert types_in(await redacted(tmp_path, own_secret, "E-123456 and Xanadu", RedactionPolicy.SECRETS_ONLY)) == [
        "SECRET"
    ]


async def test_what_is_allowed_stays(tmp_path: Path) -> None:
    text = "noreply@example.com and a.b@example.org, not alice@example.com"
    result = await redacted(tmp_path, RULES, text)
    assert types_in(result) == ["EMAIL"]
    assert result.text.startswith("noreply@example.com and a.b@example.org, not <EMAIL_")


async def test_a_pattern_that_takes_for_ever_stops_the_text_and_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("waystation.plugins.redaction.rules.SECONDS_PER_CHUNK", 0.05)
    rules = r"recognizers: [{name: slow, supported_entity: SLOW, patterns: [{regex: '(?=x)(x+x+)+y', score: 1}]}]"
    with pytest.raises(RedactionFailed, match=r"^your own recogniser 'slow' took more than 0\.05 s"):
        await redacted(tmp_path, rules, "x" * 1_500)
    with pytest.raises(RedactionFailed, match=r"^a pattern under `allow` took more than"):
        await redacted(tmp_path, r"allow: [{regex: '(?=x)(x|xx)+@example\.net'}]", f"{'x' * 64}@example.com")


@pytest.mark.parametrize(
    ("rules", "said"),
    [
        (
            "allow:\n  - a@b.example\n  - regex: '.*'\n",
            r", line 3: allow\.1\.regex: the pattern matches empty text: require at least one character",
        ),
        ("allow: [{regexp: a}]\n", r", line 1: allow\.0\.regex: Field required"),
        ("allow: [5]\n", r", line 1: allow\.0: Input should be a valid dictionary"),
        ("recognizers: [\n", r", line 2: not valid YAML"),
        ("- a\n", r", line 1: the file: Input should be a valid dictionary"),
        ("allow: [a]\nrecogniser: []\n", r", line 2: recogniser: Extra inputs are not permitted"),
        ("recognizers:\n  - name: a\n    supported_entity: lower\n", r", line 3: recognizers\.0\.supported_entity: "),
        (
            "recognizers:\n\n  - name: a\n    supported_entity: A\n",
            r", line 3: recognizers\.0: a recogniser needs patterns",
        ),
        (
            "recognizers:\n  - name: a\n    supported_entity: A\n    patterns:\n      - regex: '('\n        score: 1\n",
            r", line 5: recognizers\.0\.patterns\.0\.regex: not a valid regular expression: missing \)",
        ),
        (
            "recognizers:\n  - {name: a, supported_entity: A, patterns: [{regex: 'x*', score: 1}]}\n",
            r", line 2: recognizers\.0\.patterns\.0\.regex: the pattern matches empty text",
        ),
        (
            "recognizers:\n  - {name: a, supported_entity: A, patterns: [{regex: x, score: 0.1}]}\n",
            r", line 2: recognizers\.0: a pattern with a score under 0\.4 needs context words",
        ),
        (
            "recognizers:\n  - {name: EmailRecognizer, supported_entity: A, type: predefined, deny_list: [a]}\n",
            r", line 2: recognizers\.0\.type: Input should be 'custom'",
        ),
    ],
)
def test_a_file_that_cannot_be_used_is_refused_with_line_and_field(tmp_path: Path, rules: str, said: str) -> None:
    with pytest.raises(BadInput, match=rf"^the file of recognisers \S+rules\.yaml{said}"):
        load_custom_rules(written(tmp_path, rules))


def test_a_file_that_is_not_there_or_empty(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="cannot be read: No such file"):
        load_custom_rules(tmp_path / "missing.yaml")
    assert load_custom_rules(written(tmp_path, "")).recognizers == ()
