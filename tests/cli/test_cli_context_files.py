"""`waystation context compact --files FOLDER`: restored files that have changed on disk are marked."""

from pathlib import Path

import pytest

from tests.support.context_command import (
    ContextCommand,
    Json,
    context_cli,
    list_texts,
    make_filler_words,
    make_request_body,
    make_tool_result,
    make_tool_result_message,
    make_tool_turns,
    make_tool_use,
    make_tool_use_message,
    make_user_message,
)

__all__ = ["context_cli"]

CHANGED = 'changed="since then: read it again"'
READ = f"first line\n{make_filler_words(300)}"


def reading(*names: str) -> Json:
    """A full conversation in which these files were read."""
    read: list[Json] = []
    for number, name in enumerate(names):
        read += [
            make_tool_use_message(make_tool_use(f"r{number}", path=name)),
            make_tool_result_message(make_tool_result(f"r{number}", READ)),
        ]
    return make_request_body(
        make_user_message("Find out."), *make_tool_turns(20, tool="run"), *read, make_user_message("Now sum it up.")
    )


def restored(context_cli: ContextCommand, given: Json, *options: str) -> dict[str, bool]:
    """By the name of each restored file, whether it is marked."""
    done = context_cli.compact(given, "--strategy", "replace", *options)
    frames = [line for text in list_texts(done["messages"]) for line in text.splitlines() if "<restored_file " in line]
    return {frame.split('name="')[1].split('"')[0]: CHANGED in frame for frame in frames}


@pytest.fixture
def files(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    (folder / "src").mkdir(parents=True)
    (folder / "same.py").write_text(f"{READ}\nand more\n", encoding="utf-8")
    (folder / "src" / "other.py").write_text("all new\n", encoding="utf-8")
    (tmp_path / "outside.py").write_text("all new\n", encoding="utf-8")
    (folder / "link.py").symlink_to(tmp_path / "outside.py")
    return folder


def test_only_files_whose_text_has_changed_are_marked(context_cli: ContextCommand, files: Path) -> None:
    given = reading("same.py", "src/other.py", f"{files}/src/other.py", "gone.py")
    marks = {"same.py": False, "src/other.py": True, f"{files}/src/other.py": True, "gone.py": False}
    assert restored(context_cli, given, "--files", str(files)) == marks


def test_nothing_outside_of_the_folder_is_looked_into(context_cli: ContextCommand, files: Path, tmp_path: Path) -> None:
    given = reading("../outside.py", str(tmp_path / "outside.py"), "link.py", "a\0b", "src")
    assert not any(restored(context_cli, given, "--files", str(files)).values())


def test_without_the_option_no_file_is_looked_into(context_cli: ContextCommand, files: Path) -> None:
    assert restored(context_cli, reading(f"{files}/src/other.py")) == {f"{files}/src/other.py": False}


def test_a_folder_that_is_not_there_is_refused(context_cli: ContextCommand, tmp_path: Path) -> None:
    code, out, err = context_cli.run("compact", reading("a.py"), "--files", str(tmp_path / "none"))
    assert (code, out) == (2, "")
    assert "is not a folder: give the folder with the conversation's files" in " ".join(err.split())
