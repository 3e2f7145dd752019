"""`waystation report --format`: each format from one stored report, opened by somebody else's library."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from bs4 import BeautifulSoup

from tests.report_to_send import HOSTILE, STORED, keep_to_send
from waystation.cli.main import run
from waystation.settings import Settings

Ran = Callable[..., tuple[int, bytes, str]]


@pytest.fixture
def task_id(without_server: Settings) -> str:
    return keep_to_send(without_server)


@pytest.fixture
def ran(capsysbinary: pytest.CaptureFixture[bytes]) -> Ran:
    def run_command(*arguments: str) -> tuple[int, bytes, str]:
        code = run(arguments)
        said = capsysbinary.readouterr()
        return code, said.out, said.err.decode()

    return run_command


def test_without_a_format_the_report_is_printed_as_it_is_stored(task_id: str, ran: Ran) -> None:
    code, out, _ = ran("report", task_id)
    assert (code, out.decode().rstrip("\n")) == (0, STORED.rstrip("\n"))


def test_every_citation_of_the_page_leads_to_its_source_and_nothing_on_it_acts(task_id: str, ran: Ran) -> None:
    page = BeautifulSoup(ran("report", task_id, "--format", "html")[1], "html.parser")
    places = {str(found["id"]) for found in page.find_all(id=True)}
    citations = page.find_all("a", class_="cite")
    assert len(citations) == 7 + 5
    assert {str(found["href"]) for found in citations} <= {f"#{place}" for place in places}
    assert [found.get_text() for found in page.select(".sources li")][1:3] == [
        "[2]b/__init__.py, line 8",
        "[3]survey.pdf, page 2 of attachment a (1).pdf, lines 12–15",
    ]
    assert not page.find_all(["script", "img", "link", "iframe", "object", "form", "b"])
    led_out = [str(found["href"]) for found in page.find_all("a", href=True) if not str(found["href"]).startswith("#")]
    assert led_out == ["https://ok.example/?a&b=2"]
    assert '#panic("x")' in page.get_text()
    assert "<script>alert(1)</script>" in page.get_text()
    assert page.title is not None
    assert page.title.get_text() == "Häfen & <b>Silt</b>: 港口 مرفأ 🚢"
    assert not [name for found in page.find_all(True) for name in found.attrs if name.startswith("on")]


def test_as_data_the_report_has_its_citations(task_id: str, ran: Ran) -> None:
    found = json.loads(ran("report", task_id, "--format", "json")[1])
    assert {"task_id", "phase", "version", "report", "title", "stored_at", "model", "checked", "sources"} == set(found)
    assert HOSTILE in found["report"]
    assert found["sources"][4] == {
        "number": 5,
        "document": "gone.md",
        "name": "gone.md",
        "first_line": 1,
        "last_line": 9,
        "place": "",
        "quotation": None,
        "fault": "there is no such document",
    }


def test_a_file_has_the_format_of_its_ending_and_in_a_folder_the_name_of_the_task(
    task_id: str, ran: Ran, tmp_path: Path
) -> None:
    page = tmp_path / "sent.html"
    code, out, _ = ran("report", task_id, "--output", str(page))
    assert (code, out.decode()) == (0, f"{page}\n")
    assert page.read_bytes() == ran("report", task_id, "--format", "html")[1]
    assert ran("report", task_id, "--format", "md", "--output", str(tmp_path))[0] == 0
    assert "[5?]" in (tmp_path / f"{task_id}.md").read_text(encoding="utf-8")


def test_what_cannot_be_written_is_refused_with_the_next_step(task_id: str, ran: Ran, tmp_path: Path) -> None:
    code, _, err = ran("report", task_id, "--output", str(tmp_path / "report.odt"))
    assert (code, "does not say which format it is: add --format, one of md, html" in err) == (2, True)
    code, _, err = ran("report", task_id, "--json", "--format", "html")
    assert (code, "leave it out beside --format" in err) == (2, True)
    code, _, err = ran("report", task_id, "--output", str(tmp_path / "no folder" / "a.html"))
    assert code == 1
    assert "No such file or directory" in err
