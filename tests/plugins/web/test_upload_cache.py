"""Files that were checked before a task is started are not read again when it starts."""

from io import BytesIO

import pytest
from starlette.datastructures import UploadFile

from waystation.documents.documents import SkippedItem, SourceDocument
from waystation.kernel.errors import BadInput
from waystation.plugins.web.upload_cache import UploadCache, UploadKey, UploadReadResult
from waystation.plugins.web.upload_checks import check_uploads
from waystation.plugins.web.uploads import UploadReader, UploadReadingState

NOTES = b"# Silt\n\nThe harbour closed."


def upload(name: str = "docs/notes.md", content: bytes = NOTES) -> UploadFile:
    return UploadFile(BytesIO(content), filename=name)


def make_key(name: str, tenant: str = "acme") -> UploadKey:
    return UploadKey(tenant, name, "0" * 64)


def make_read(text: str) -> UploadReadResult:
    return UploadReadResult(SourceDocument(name="a.md", text=text), ())


class OtherTexts(UploadCache):
    """A cache that was given texts that are in no file: what comes from it can be told from what is read."""

    def put(self, key: UploadKey, read: UploadReadResult) -> None:
        document = read.document and read.document.replace(text=f"remembered: {read.document.text}")
        super().put(key, UploadReadResult(document, read.skipped_items))


async def test_a_file_that_was_checked_is_not_read_again_when_the_task_starts() -> None:
    reader = UploadReader(UploadReadingState(OtherTexts()), "acme")
    (checked,) = (await check_uploads(reader, [upload()])).files
    loaded = await reader.load([upload("elsewhere/notes.md"), upload("docs/other.md", b"Other words.")])
    assert (checked.path, checked.state) == ("docs/notes.md", "ready")
    assert [(one.name, one.text) for one in loaded.documents] == [
        ("notes.md", "remembered: # Silt\n\nThe harbour closed."),
        ("other.md", "Other words."),
    ]


@pytest.mark.parametrize(
    "other", [upload(content=NOTES + b"!"), upload("notes.txt")], ids=["other content", "other extension"]
)
async def test_another_file_is_read(other: UploadFile) -> None:
    reader = UploadReader(UploadReadingState(OtherTexts()), "acme")
    await reader.load([upload()])
    (document,) = (await reader.load([other])).documents
    assert document.text.startswith("# Silt")


async def test_what_one_tenant_uploads_is_read_again_for_another() -> None:
    shared = UploadReadingState(OtherTexts())
    await UploadReader(shared, "acme").load([upload()])
    (document,) = (await UploadReader(shared, "globex").load([upload()])).documents
    assert document.text.startswith("# Silt")


async def test_what_cannot_be_used_is_said_the_same_way_the_second_time() -> None:
    reader = UploadReader(UploadReadingState(), "acme")
    for _ in range(2):
        with pytest.raises(BadInput, match=r"^none of these files can be used \(scan\.xyz: binary, not text\)"):
            await reader.load([upload("scan.xyz", bytes(range(256)))])


async def test_two_equal_files_of_one_form_are_two_documents() -> None:
    loaded = await UploadReader(UploadReadingState(), "acme").load([upload("a/notes.md"), upload("b/x/notes.md")])
    assert [(one.name, one.text[:6]) for one in loaded.documents] == [("notes.md", "# Silt"), ("x/notes.md", "# Silt")]


def test_texts_are_forgotten_after_their_time() -> None:
    now = 0.0
    cache = UploadCache(seconds=60, clock=lambda: now)
    cache.put(make_key("a.md"), make_read("words"))
    now = 59.0
    assert cache.get(make_key("a.md")) == make_read("words")
    now = 60.0
    assert cache.get(make_key("a.md")) is None


def test_the_least_recently_used_texts_make_room_and_a_huge_one_is_not_kept() -> None:
    cache = UploadCache(max_characters=5_000)
    for name in ("a.md", "b.md"):
        cache.put(make_key(name), make_read("x" * 1_000))
    assert cache.get(make_key("a.md"))
    cache.put(make_key("c.md"), make_read("y" * 1_000))
    assert [name for name in ("a.md", "b.md", "c.md") if cache.get(make_key(name))] == ["a.md", "c.md"]
    cache.put(make_key("a.md"), make_read("z" * 5_000))
    assert [name for name in ("a.md", "c.md") if cache.get(make_key(name))] == ["c.md"]


def test_files_without_text_fill_the_cache_too() -> None:
    cache = UploadCache(max_characters=5_000)
    for number in range(20):
        cache.put(
            make_key(f"{number}.bin"), UploadReadResult(None, (SkippedItem(name="x", reason="binary, not text"),))
        )
    assert sum(cache.get(make_key(f"{number}.bin")) is not None for number in range(20)) == 4
