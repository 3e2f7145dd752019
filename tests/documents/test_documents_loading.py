import gc
import hashlib
import os
from pathlib import Path

import pytest

from waystation.documents.document_loading import load_documents
from waystation.documents.documents import MAX_TASK_DOCUMENTS, SkippedItem
from waystation.documents.readers import reader_child
from waystation.documents.readers.extraction import MAX_FILE_BYTES, MAX_TEXT_BYTES, ExtractionFailure, FileReadRequest
from waystation.kernel.errors import BadInput


def write(path: Path, content: str | bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def loaded_names(*paths: Path) -> list[str]:
    return [document.name for document in load_documents(paths).documents]


def test_a_folder_is_read_to_the_bottom_by_name_and_hidden_and_generated_files_are_named(tmp_path: Path) -> None:
    for name in (
        "b.md",
        "a.txt",
        "sub/c.py",
        ".hidden.md",
        ".git/config",
        "__pycache__/x.py",
        "node_modules/y.js",
        "sub/.env",
    ):
        write(tmp_path / name, "text")
    assert loaded_names(tmp_path) == ["a.txt", "b.md", "sub/c.py"]
    left_out = {(item.name, item.reason) for item in load_documents([tmp_path]).skipped_items}
    assert left_out == {
        *((name, "hidden") for name in (".hidden.md", ".git", "sub/.env")),
        *((name, "generated") for name in ("__pycache__", "node_modules")),
    }


def test_more_files_than_a_task_may_have_documents_are_refused_before_one_is_read(tmp_path: Path) -> None:
    for folder, count in (("one", MAX_TASK_DOCUMENTS - 1), ("two", 2)):
        (tmp_path / folder).mkdir()
        for number in range(count):
            (tmp_path / folder / f"{number}.txt").symlink_to(tmp_path / folder / f"{number}.txt.of.nobody")
    with pytest.raises(
        BadInput, match=r"5,001 files are too many: a task can have 5,000 documents\. Give a smaller folder"
    ):
        load_documents([tmp_path / "one", tmp_path / "two", tmp_path / "two"])
    with pytest.raises(BadInput, match="none of its files can be used"):
        load_documents([tmp_path / "one"])


def test_a_hidden_folder_that_is_given_by_itself_is_read(tmp_path: Path) -> None:
    write(tmp_path / ".notes/a.md", "text")
    assert loaded_names(tmp_path / ".notes") == ["a.md"]


def test_a_file_keeps_the_name_that_was_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path / "docs/a.md", "text")
    monkeypatch.chdir(tmp_path)
    assert loaded_names(Path("docs/a.md")) == ["docs/a.md"]


def test_folders_of_the_persons_machine_are_in_no_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = [write(tmp_path / name, name) for name in ("docs/a.md", "docs/b.md", "old/b.md")]
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    assert loaded_names(files[0], Path("../docs/b.md")) == ["a.md", "b.md"]
    assert loaded_names(files[1], Path("../old/b.md")) == ["docs/b.md", "old/b.md"]


def test_names_that_clash_have_as_many_folders_as_tell_them_apart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("one/readme.md", "two/readme.md", "two/other.md"):
        write(tmp_path / name, name)
    monkeypatch.chdir(tmp_path)
    loaded = load_documents([Path("one"), Path("two")])
    assert [(d.name, d.text) for d in loaded.documents] == [
        ("one/readme.md", "one/readme.md"),
        ("other.md", "two/other.md"),
        ("two/readme.md", "two/readme.md"),
    ]


def test_folders_that_are_the_same_for_all_are_no_part_of_a_name(tmp_path: Path) -> None:
    for name in ("wiki/docs/a/x/index.md", "wiki/docs/b/x/index.md"):
        write(tmp_path / name, name)
    assert loaded_names(tmp_path / "wiki/docs/a/x", tmp_path / "wiki/docs/b/x") == ["a/x/index.md", "b/x/index.md"]


def test_names_that_clash_only_without_their_brackets_are_numbered(tmp_path: Path) -> None:
    write(tmp_path / "[draft].md", "one")
    write(tmp_path / "(draft).md", "two")
    assert loaded_names(tmp_path) == ["(draft).md", "(draft).md (2)"]
    assert [one.file_name for one in load_documents([tmp_path]).documents] == ["", "[draft].md"]


def test_no_name_can_end_a_citation_or_a_line_and_the_name_of_the_file_is_kept(tmp_path: Path) -> None:
    write(tmp_path / "a[1]\nb:c.md", "text")
    (document,) = load_documents([tmp_path]).documents
    assert (document.name, document.file_name) == ("a(1) b-c.md", "a[1] b:c.md")


def test_very_long_names_keep_their_ends_and_stay_apart(tmp_path: Path) -> None:
    for folder in ("one", "two"):
        write(tmp_path / folder / ("x" * 200) / "a.md", "text")
    names = loaded_names(tmp_path)
    assert len(set(names)) == 2
    assert all(name.startswith("…") and "x/a.md" in name and len(name) <= 200 for name in names)


def test_a_name_with_bytes_that_are_no_text_becomes_text(tmp_path: Path) -> None:
    write(Path(os.fsdecode(os.fsencode(tmp_path) + b"/caf\xe9.md")), "text")
    assert loaded_names(tmp_path) == ["caf\ufffd.md"]


def test_a_file_that_is_reached_twice_is_one_document(tmp_path: Path) -> None:
    file = write(tmp_path / "sub/a.md", "text")
    assert loaded_names(tmp_path, file, tmp_path / "sub") == ["sub/a.md"]


def test_links_may_go_round_in_circles(tmp_path: Path) -> None:
    write(tmp_path / "sub/a.md", "text")
    (tmp_path / "sub/up").symlink_to(tmp_path, target_is_directory=True)
    (tmp_path / "self.md").symlink_to(tmp_path / "self.md")
    loaded = load_documents([tmp_path])
    assert [document.name for document in loaded.documents] == ["sub/a.md"]
    assert loaded.skipped_items == (SkippedItem(name="self.md", reason="no such file"),)


def test_a_link_inside_the_folder_is_read_and_one_that_leads_out_is_not(tmp_path: Path) -> None:
    write(tmp_path / "outside/key.txt", "secret")
    write(tmp_path / "docs/..mounted/real.md", "text")
    (tmp_path / "docs/a.md").symlink_to("..mounted/real.md")
    (tmp_path / "docs/b.txt").symlink_to("../outside/key.txt")
    (tmp_path / "docs/c").symlink_to("../outside", target_is_directory=True)
    loaded = load_documents([tmp_path / "docs"])
    assert [(d.name, d.text) for d in loaded.documents] == [("a.md", "text")]
    reason = "a link that points outside the folder; give its target separately"
    hidden = SkippedItem(name="..mounted", reason="hidden")
    assert loaded.skipped_items == (
        hidden,
        SkippedItem(name="b.txt", reason=reason),
        SkippedItem(name="c", reason=reason),
    )


def test_a_link_to_what_is_hidden_is_not_read(tmp_path: Path) -> None:
    write(tmp_path / "a.md", "text")
    write(tmp_path / ".env", "secret")
    write(tmp_path / ".ssh/id_rsa", "secret")
    write(tmp_path / "..2026_11/.env", "secret")
    (tmp_path / "settings.txt").symlink_to(".env")
    (tmp_path / "key.txt").symlink_to(".ssh/id_rsa")
    (tmp_path / "mounted.txt").symlink_to("..2026_11/.env")
    (tmp_path / "keys").symlink_to(".ssh", target_is_directory=True)
    loaded = load_documents([tmp_path])
    assert [document.name for document in loaded.documents] == ["a.md"]
    reason = "a link to a hidden file or folder; give its target separately"
    led = {one.name for one in loaded.skipped_items if one.reason == reason}
    assert led == {"settings.txt", "key.txt", "mounted.txt", "keys"}


@pytest.mark.parametrize(
    ("encoding", "text"),
    [
        ("utf-8", "naïve café, 東京"),
        ("utf-8-sig", "with a byte order mark"),
        ("utf-16", "naïve café, 東京"),
        ("cp1252", "Größe und Übermut kosten viel Geld, und Straßen auch.\n" * 4),
        ("cp1251", "Привет, мир. Это обычный текст о бюджете и о моделях.\n" * 4),
        ("shift_jis", "日本語のテキストです。会議は火曜日に行われます。\n" * 4),
    ],
)
def test_text_is_read_in_the_encoding_that_it_has(tmp_path: Path, encoding: str, text: str) -> None:
    file = write(tmp_path / "a.txt", text.encode(encoding))
    assert load_documents([file]).documents[0].text == text.strip()


def test_line_ends_of_every_kind_become_one_kind(tmp_path: Path) -> None:
    file = write(tmp_path / "a.txt", "one\r\ntwo\rthree\x0cfour\u2028five\n\n\n")
    assert load_documents([file]).documents[0].text == "one\ntwo\nthree\nfour\nfive"


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        ("a.png", b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR", "damaged: not a readable picture"),
        ("a.gif", b"GIF89a\x00\x00", "binary, not text"),
        (
            "a.txt",
            bytes(range(1, 256)) * 40,
            "in an unknown text encoding; save the text as UTF-8",
        ),
        ("a.md", b" \n\t\n", "empty"),
        (
            "paper.pdf",
            b"Error 404: no such paper here.",
            "plain text, although its name ends in .pdf; rename it to .txt if it is a document",
        ),
        (
            "costs.xlsx",
            b"a,b\n1,2\n",
            "plain text, although its name ends in .xlsx; rename it to .txt if it is a document",
        ),
    ],
)
def test_what_cannot_be_read_is_skipped_in_a_folder_and_refused_by_itself(
    tmp_path: Path, name: str, content: bytes, reason: str
) -> None:
    file = write(tmp_path / name, content)
    write(tmp_path / "readable.md", "text")
    assert load_documents([tmp_path]).skipped_items == (SkippedItem(name=name, reason=reason),)
    with pytest.raises(BadInput) as refused:
        load_documents([file])
    usable = (
        "PDF, Word, PowerPoint, Excel, EPUB, e-mail (.eml), pictures (PNG, JPEG, TIFF), Markdown, text, HTML, CSV, "
        "JSON or source code"
    )
    assert str(refused.value) == f"cannot use {file}: {reason}. Give a file or folder of {usable}."


@pytest.mark.parametrize(("start", "limit"), [(b"Text\n" * 2_000, MAX_TEXT_BYTES), (b"%PDF-1.7", MAX_FILE_BYTES)])
def test_a_file_over_the_limit_of_its_kind_is_refused_with_its_size(tmp_path: Path, start: bytes, limit: int) -> None:
    file = write(tmp_path / "big", start)
    with file.open("r+b") as big:
        big.truncate(limit + 1_500_000)
    megabytes = limit // 1_000_000
    refusal = rf"{megabytes + 1}\.5 MB; the maximum for this kind of file is {megabytes} MB\. Split the file"
    with pytest.raises(BadInput, match=refusal):
        load_documents([file])


def test_a_missing_path_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"cannot use .*/nowhere\.md: no such file\. Give a file or folder of PDF, Word"):
        load_documents([tmp_path / "nowhere.md"])


def test_a_pipe_is_refused_instead_of_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(BadInput, match="neither a file nor a folder"):
        load_documents([tmp_path / "pipe"])


def test_a_folder_without_anything_to_read_is_refused_with_the_first_reason(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"none of its files can be used\. Give a file or folder"):
        load_documents([tmp_path])
    write(tmp_path / "a.bin", b"\x00\x01")
    with pytest.raises(BadInput, match=r"none of its files can be used \(a\.bin: binary, not text\)\."):
        load_documents([tmp_path])


def test_csv_json_and_source_code_stay_as_they_are(tmp_path: Path) -> None:
    contents = {"a.csv": "x,y\n1,2", "b.json": '{"x": [1,  2]}', "c.rs": 'fn main() {\n    println!("<b>");\n}'}
    for name, content in contents.items():
        write(tmp_path / name, content)
    assert {d.name: d.text for d in load_documents([tmp_path]).documents} == contents


def test_files_that_were_read_before_are_not_read_again_under_whatever_name(tmp_path: Path) -> None:
    write(tmp_path / "a.pdf", "%PDF-1.4 that no parser takes")
    write(tmp_path / "b.md", "text")
    first = load_documents([tmp_path])
    assert [(one.name, len(one.source)) for one in first.documents] == [("b.md", 64)]
    known = {one.source for one in first.documents} | {hashlib.sha256((tmp_path / "a.pdf").read_bytes()).hexdigest()}
    write(tmp_path / "c.md", "other")
    (tmp_path / "b.md").rename(tmp_path / "moved.md")
    again = load_documents([tmp_path], known=known)
    assert [one.name for one in again.documents] == ["c.md"]
    assert [one.name for one in again.unread] == ["a.pdf", "moved.md"]
    assert again.skipped_items == ()


def test_no_garbage_is_looked_for_while_a_file_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[bool] = []

    def looked(*_: object) -> ExtractionFailure:
        seen.append(gc.isenabled())
        return ExtractionFailure(reason="seen")

    monkeypatch.setattr(reader_child, "_read", looked)
    (tmp_path / "a.txt").write_text("a")
    files = [os.open(tmp_path / "a.txt", os.O_RDONLY) for _ in range(2)]
    reader_child.answer(FileReadRequest(name="a.txt").model_dump_json().encode(), files)
    assert (seen, gc.isenabled()) == ([False], True)
