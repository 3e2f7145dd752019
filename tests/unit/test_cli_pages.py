"""What a person is told of pages that are not there."""

from pathlib import Path
from socket import create_server

import pytest

from waystation.adapters.temporal.run_file import RunFile
from waystation.cli.serve import pages_line, say_pages
from waystation.settings import Settings


def test_pages_that_nobody_serves_any_more_are_not_shown_as_if_they_were() -> None:
    with create_server(("127.0.0.1", 0)) as listening:
        address = f"http://127.0.0.1:{listening.getsockname()[1]}/?token=s3cret"
        assert pages_line(address) == f"pages {address} (tell nobody)"
    told = pages_line(address)
    assert "do not answer: their log is logs/serve.log" in told
    assert "s3cret" not in told


@pytest.mark.parametrize(("pages", "wanted", "told"), [("", True, True), (None, True, False), ("", False, False)])
def test_why_pages_did_not_begin_is_said_where_they_were_wanted(
    pages: str | None, wanted: bool, told: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = Settings(home=tmp_path, pages=wanted)
    settings.logs_folder.mkdir()
    (settings.logs_folder / "serve.log").write_text("loading\nwaystation: /papers is no folder\n")
    say_pages(RunFile.model_construct(pages=pages), settings)
    said = capsys.readouterr()
    assert ("No pages: waystation: /papers is no folder" in said.out + said.err) is told
