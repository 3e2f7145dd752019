from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from inline_snapshot import snapshot

from waystation.documents.document_loading import load_documents
from waystation.documents.readers.html import read_html

PAGE = """<!DOCTYPE html>
<html><head><title>Budgets &amp; limits</title><style>p { color: red }</style>
<script>track("me")</script></head>
<body><nav><a href="/">Home</a> <a href="#top">Up</a></nav>
<h1 id="top">Budgets</h1>
<p>A task has a
   budget of <b>600k</b> tokens; see <a href="https://example.org/limits">the limits</a>.</p>
<!-- hidden --><h2>Modes</h2>
<ul><li>hard</li><li><p>approval</p><ul><li>with a deadline</li></ul></li></ul>
<table><tr><th>level</th><th>tokens</th></tr><tr><td><p>agent</p></td><td>100k</td></tr></table>
<pre>def f(x):
    return  x
</pre>one<br>two</body></html>
"""


def test_a_page_reads_as_its_reader_sees_it() -> None:
    assert read_html(PAGE).text == snapshot("""\
Budgets & limits

[Home](/) Up

# Budgets

A task has a budget of 600k tokens; see [the limits](https://example.org/limits).

## Modes

- hard
- approval

- with a deadline

level | tokens
agent | 100k

def f(x):
    return  x

one
two\
""")


def test_a_page_is_read_as_text_by_its_suffix(tmp_path: Path) -> None:
    (tmp_path / "a.HTM").write_text("<p>one</p><p>two</p>")
    (tmp_path / "b.md").write_text("<p>one</p>")
    assert [d.text for d in load_documents([tmp_path]).documents] == ["one\n\ntwo", "<p>one</p>"]


def test_a_page_in_xml_form_is_read_without_a_warning() -> None:
    assert read_html('<?xml version="1.0"?><html><body><p>one</p></body></html>').text == "one"


def test_a_page_nested_without_end_is_read() -> None:
    assert read_html("<div>" * 3_000 + "deep" + "</div>" * 3_000).text == "deep"


@given(st.text(alphabet="<>/!-[]ab=\"'& \n\t", max_size=200))
def test_no_markup_is_so_broken_that_reading_it_fails(html: str) -> None:
    assert isinstance(read_html(html).text, str)


@pytest.mark.timeout(60)
@pytest.mark.parametrize(
    "repeated", ["<div>", "<p>a</p>", "<ul><li>", "<a href=x>a</a>", "<a href=x>a", "<li>a", "<br>", "<pre>a ", "<!--"]
)
def test_a_page_of_siblings_or_of_ancestors_takes_time_by_its_length(repeated: str) -> None:
    assert read_html("begun" + repeated * (400_000 // len(repeated)) + "ended").text.startswith("begun")


def test_what_follows_a_comment_that_does_not_end_is_read() -> None:
    assert read_html("<!-- a --><p>one<!-- two <!-- three").text == "one<!-- two <!-- three"
