"""Signs of others that would steer a terminal, or make something happen where a report is opened."""

import io
import json
import re
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from rich.table import Table
from rich.text import Text

from waystation.cli import console
from waystation.cli.console import PlainConsole
from waystation.cli.main import run
from waystation.privacy.policy import PLACEHOLDER_PATTERN
from waystation.reports.blocks import ReportMetadata, parse_stored_report
from waystation.reports.markdown import build_report_export, sanitize_markdown
from waystation.security.untrusted import (
    escape_control_characters_in_json,
    neutralize_markdown,
    replace_control_characters,
)
from waystation.tasks.task import TaskPhase

OWN_STYLES = re.compile(r"\x1b\[[0-9;]*m")
CLIPBOARD = "\x1b]52;c;cm0gLXJmIH4=\x07"
SEQUENCES = (
    CLIPBOARD,
    "\x1b[2J",
    "\x9b31m",
    "\x1bc",
    "\r\x1b[1A",
    "\x08\x08",
    "\x7f",
    "\u202eevil\u2066",
    "\U000e0041",
)
STEERING = frozenset(
    [chr(code) for code in (*range(0x20), *range(0x7F, 0xA0), 0x61C, 0x200E, 0x200F) if chr(code) not in "\n\t"]
    + [chr(code) for code in (*range(0x202A, 0x202F), *range(0x2066, 0x206A), *range(0xE0000, 0xE0080))]
)
PLACEHOLDERS = "<PERSON_7f3a2c91d04e> and <EMAIL_ADDRESS_000000000000>"
FRAGMENTS = (
    "<script>", "</b>", "<",
    "`", "``", "```\n", "~~~\n", "\n", "\n\n", "![", "[", "]", "](", "(", ")", "http://x", "]: ",
    "javascript:x", "\\",
    "- ", "> ", "    ", "  ", "1. ", "a", "<!--", "-->", "# ", "<http://", "[a]: x\n", "\t", "\r", "|",
    "---\n", "&#91;", '"', ":", "<?", "<A_b onclick=c>", "<PERSON_7f3a2c91d04e>", "[[", "<a\nb>", "\u2028",
)  # fmt: skip


@pytest.mark.parametrize("sequence", SEQUENCES)
def test_nothing_that_is_printed_steers_the_terminal(sequence: str) -> None:
    out = io.StringIO()
    terminal = PlainConsole(file=out, force_terminal=True, color_system="truecolor", width=60, highlight=False)
    table = Table()
    table.add_column(sequence)
    table.add_row(Text(f"a{sequence}b", style="red"))
    for shown in (sequence, Text(sequence, style="bold"), table):
        terminal.print(shown, markup=False, soft_wrap=True)
    printed = out.getvalue()
    assert "\x1b[1m" in printed, "styles of our own stay"
    for style in ("\x1b[1m", "\x1b[31m", "\x1b[0m"):
        printed = printed.replace(style, "")
    assert STEERING.isdisjoint(printed)


REPORT = """\
# Harbours

Nordvik *silted* up [a.md:3-3]. <b>Bold</b> [word](http://evil.example) `x = 1`

| harbour | year |
|---|---|
| Nordvik | 1871 |
"""


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> io.StringIO:
    """What is printed as a result, at a terminal."""
    out = io.StringIO()
    at_terminal = PlainConsole(file=out, force_terminal=True, color_system="standard", width=60, highlight=False)
    monkeypatch.setattr(console, "result", at_terminal)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    return out


@pytest.mark.parametrize("sequence", SEQUENCES)
def test_no_report_steers_the_terminal_that_it_is_set_for(sequence: str, terminal: io.StringIO) -> None:
    console.print_markdown(f"# {sequence}\n\n- a{sequence}b `{sequence}`\n\n<http://x/{sequence}>\n\n    {sequence}\n")
    assert STEERING.isdisjoint(OWN_STYLES.sub("", terminal.getvalue()))


def test_a_report_at_a_terminal_has_its_words_and_no_markup_of_others(terminal: io.StringIO) -> None:
    console.print_markdown(REPORT)
    printed = OWN_STYLES.sub("", terminal.getvalue())
    for words in ("Nordvik silted up [a.md:3]. <b>Bold</b>", "(http://evil.example)", "x = 1", "1871"):
        assert words in " ".join(printed.split())
    assert "# Harbours" not in printed
    assert "|---|" not in printed


def test_a_report_is_as_it_is_stored_where_it_is_no_terminal_that_reads_it(capsys: pytest.CaptureFixture[str]) -> None:
    console.print_markdown(REPORT)
    assert capsys.readouterr().out == f"{REPORT}\n"


def test_every_command_prints_by_such_a_console() -> None:
    assert isinstance(console.result, PlainConsole)
    assert isinstance(console.progress, PlainConsole)


@pytest.mark.usefixtures("without_server")
@pytest.mark.parametrize("more", [[], ["--debug"]])
def test_no_error_steers_the_terminal_with_or_without_where_it_came_from(
    more: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["submit", "Which?", "--docs", f"/missing{CLIPBOARD}.md", *more]) != 0
    said = capsys.readouterr().err
    assert "missing" in said
    assert STEERING.isdisjoint(said)


def test_json_for_programs_says_everything_and_steers_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    value = {"name": "".join(SEQUENCES), "tag": "\U000e0041"}
    written = escape_control_characters_in_json(json.dumps(value, ensure_ascii=False))
    assert json.loads(written) == value
    assert STEERING.isdisjoint(written)


def test_a_text_for_a_file_is_exact_and_for_a_terminal_is_not(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    console.print_verbatim(CLIPBOARD)
    assert capsys.readouterr().out == CLIPBOARD
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    console.print_verbatim(CLIPBOARD)
    assert STEERING.isdisjoint(capsys.readouterr().out)


@given(st.text())
def test_plain_text_has_nothing_that_steers(text: str) -> None:
    assert STEERING.isdisjoint(replace_control_characters(text))
    assert replace_control_characters(replace_control_characters(text)) == replace_control_characters(text)
    replace_control_characters(text).encode()


@given(st.lists(st.sampled_from(FRAGMENTS), max_size=25).map("".join))
def test_a_report_has_no_html_no_images_and_no_hidden_links(written: str) -> None:
    assert find_active_markup(sanitize_markdown(written)) == []


STORED = {
    "a <script>alert(1)</script>": "a &lt;script>alert(1)&lt;/script>",
    "![x](http://a.example/b.png)": "![x] (http://a.example/b.png)",
    "[our page](javascript:alert(1))": "[our page] (javascript:alert(1))",
    "[here][1]\n\n[1]: http://a.example": "[here] [1]\n\n[1] : http://a.example",
    "-  \n   ```\n<img src=x>\n": "-  \n   ```\n&lt;img src=x>\n",
    "as [facts.md:1-3] (page 4) and [a.md:2-2]: so": "as [facts.md:1-3] (page 4) and [a.md:2-2]: so",
    "`List<String>` and\n\n```java\nList<String> a;\n```": "`List<String>` and\n\n```java\nList<String> a;\n```",
    "<https://a.example/b>, 1 < 2, a <- b": "<https://a.example/b>, 1 < 2, a <- b",
    "| a |\n|---|\n| `x | <img src=y> ` |": "| a |\n|---|\n| `x | &lt;img src=y> ` |",
    "| a |\n|---|\n| `x\n<img src=y>` |": "| a |\n|---|\n| `x\n&lt;img src=y>` |",
    "a\n:-:\n`x\n<img src=y>`": "a\n:-:\n`x\n&lt;img src=y>`",
    "Either `a | b` or `List<String>`\nor": "Either `a | b` or `List&lt;String>`\nor",
    "a | b\n-|-\n<https://a|[x](http://b)>": "a | b\n-|-\n&lt;https://a|[x] (http://b)>",
    "| `a` | `List<String>` |": "| `a` | `List<String>` |",
    PLACEHOLDERS: PLACEHOLDERS,
    "a &#x202e;b&#8294; &rlm; &amp; &nbsp;&#65;": "a &amp;#x202e;b&amp;#8294; &amp;rlm; &amp; &nbsp;&#65;",
    "`&#x202e;` and\n\n```\n&#x202e;\n```": "`&#x202e;` and\n\n```\n&#x202e;\n```",
}


def test_what_has_no_effect_stays_and_what_has_one_stays_as_words() -> None:
    assert {written: sanitize_markdown(written) for written in STORED} == STORED


def test_what_is_sent_of_a_report_has_no_sign_that_steers_and_no_link_that_no_typesetter_takes() -> None:
    written = f"# T&#x202e;\n\n[a](http://a.example/{'b' * 9_000}) &#8294;c"
    sent = build_report_export(
        parse_stored_report(written), ReportMetadata(task_id="task-1", phase=TaskPhase.DONE)
    ).model_dump_json()
    assert STEERING.isdisjoint(sent)
    assert "http://" not in sent


def test_words_in_the_temporal_ui_are_no_markdown_and_placeholders_stay() -> None:
    shown = neutralize_markdown(f"![x](http://a.example/b.png) <img src=x> {PLACEHOLDERS}\n# big")
    assert find_active_markup(shown) == []
    assert PLACEHOLDER_PATTERN.findall(shown) == PLACEHOLDER_PATTERN.findall(PLACEHOLDERS)


def find_active_markup(markdown: str) -> list[str]:
    """What of it does something where it is opened. An address in angle brackets shows where it leads."""
    readers = (MarkdownIt("commonmark"), MarkdownIt("commonmark").enable("table"))
    tokens = [token for reader in readers for token in reader.parse(markdown)]
    children = [child for token in tokens for child in token.children or ()]
    kinds = {"html_block", "html_inline", "image", "link_open"}
    return [token.type for token in (*tokens, *children) if token.type in kinds and token.markup != "autolink"]
