"""Converts DOCX to text by way of HTML: any package is normalised, and a library converts it.

The library keeps headings, lists, tables, links and notes. First, the texts get what it does not know: numbers of
clauses and lists, hidden, raised and struck-out text from styles, and the contents of elements that it would skip.
"""

import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from io import BytesIO
from typing import NamedTuple, Protocol, cast
from unicodedata import combining
from xml.etree.ElementTree import Element, SubElement, tostring
from xml.parsers.expat import ExpatError
from zipfile import BadZipFile, ZipFile

import mammoth

from waystation.documents.documents import SkippedItem
from waystation.documents.readers.extraction import DocumentPart, ExtractionResult, UnreadableFileError
from waystation.documents.readers.html import LABEL, LABEL_END, format_subscript, format_superscript, read_html
from waystation.documents.readers.number_formats import format_number
from waystation.documents.readers.office_archive import OFF, get_local_name, read_relationships, read_xml_member
from waystation.kernel.patterns import compile_bounded

_MAIN = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"
_W = f"{{{_MAIN}}}"
_RELATIONS = "http://schemas.openxmlformats.org/package/2006/relationships"
_LINK_KINDS = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
_STYLE_MAP = "p[style-name='Title'] => h1:fresh\np[style-name='Subtitle'] => p:fresh"
_DAMAGED = "damaged: not a readable Word file"
_OPTIONAL = {
    "styles": "damaged, so headings are not recognised, nor is text that a style hides or strikes out",
    "numbering": "damaged, so the numbers of lists and clauses are missing",
    "footnotes": "damaged",
    "endnotes": "damaged",
}
"""Parts besides the main one that are read, with the consequence if one cannot be."""
_MARKS_OF_OURS = dict.fromkeys(map(ord, (LABEL, LABEL_END)))


class _Converted(Protocol):
    type: str
    message: str


class _Result(Protocol):
    """The used part of the library, which has no types."""

    value: str
    messages: Sequence[_Converted]


def extract_docx(archive: ZipFile, main: str) -> ExtractionResult:
    """Extract the whole text without places: a Word file has no pages before it is printed.

    Raises:
        UnreadableFileError: the file is damaged or has no text.
    """
    package = _Package(archive, main)
    try:
        content = package.build_cleaned_archive()
        result = cast(
            "_Result",
            mammoth.convert_to_html(  # pyright: ignore[reportUnknownMemberType] untyped library
                BytesIO(content), convert_image=_no_picture, style_map=_STYLE_MAP
            ),
        )
    except (
        *(BadZipFile, zlib.error, ExpatError, OSError, UnreadableFileError),
        *(AttributeError, KeyError, IndexError, RecursionError, TypeError, ValueError),
    ) as error:
        # The library expects complete files: whatever one lacks raises an error of a different type.
        raise UnreadableFileError(_DAMAGED) from error
    page = read_html(result.value.replace("↑</a>", "</a>"), labelled=True)
    told = [*package.skipped_items, *_messages(result.messages)]
    if not page.text.strip() and any("/media/" in name for name in archive.namelist()):
        told.insert(0, SkippedItem(name="pictures", reason="not read, and the file has no other text"))
    return ExtractionResult([DocumentPart("", page.text)], told)


def _no_picture(_: object) -> list[object]:
    return []


_OF_STYLES = compile_bounded(r"Unrecognised \w{1,40} style: |\w{1,40} style with ID ")
"""Messages that say nothing about the text, which is read whatever the name of its style."""
_NOTHING_LOST = ("Ignoring complex field ", "Image of type ", "Could not find image ", "A v:imagedata ")
_ELEMENT = "An unrecognised element was ignored: "
_SIGN = compile_bounded(r"A w:sym element with an unsupported character was ignored: char (\w{1,8}) in font (.{0,100})")
_KNOWN = {
    "altChunk": "a part in another format",
    "subDoc": "a part in a separate file",
    "OLEObject": "an embedded object",
    "contentPart": "ink",
    "control": "a control of a form (ActiveX)",
}
"""Elements whose contents are in other members, in formats that are not read."""


def _messages(messages: Iterable[_Converted]) -> Iterator[SkippedItem]:
    """Yield the library's messages in words for people who have never seen the inside of a Word file."""
    counts = Counter(one.message for one in messages if not _OF_STYLES.match(one.message))
    for message, count in counts.items():
        if message.startswith(_NOTHING_LOST):
            continue
        if sign := _SIGN.match(message):
            name, reason = "a character", f"code {sign[1]} in the font {sign[2]}, which cannot be read as text"
        elif message.startswith("unexpected non-"):
            name, reason = "a table", "damaged; a cell that spans several rows may have its text in only one of them"
        elif message.startswith(_ELEMENT):
            element = message.removeprefix(_ELEMENT).rpartition("}")[2].rpartition(":")[2]
            name, reason = "part of the text", f"in an unknown form ({element})"
        else:
            name, reason = "part of the text", f"{message[:1].lower()}{message[1:]}"
        yield SkippedItem(name=name, reason=f"{reason}{_times(count)}")


def _times(count: int) -> str:
    return f" ({count:,} times)" if count > 1 else ""


class _Package:
    """The members of a Word file that are read, and what is not."""

    def __init__(self, archive: ZipFile, main: str) -> None:
        self.skipped_items: list[SkippedItem] = []
        self._archive, self._main = archive, main
        self._found = self._targets()

    def build_cleaned_archive(self) -> bytes:
        """Build an archive with only the members, and the names, that the library expects.

        Raises UnreadableFileError.
        """
        document = read_xml_member(self._archive, self._main)
        _join_bodies(document)
        optional = {name: self._optional(name) for name in _OPTIONAL}
        styles = _Styles(optional["styles"])
        notes = {
            name: {note.get(_attribute(note, "id"), "") for note in root} if root is not None else set[str]()
            for name, root in optional.items()
            if name.endswith("notes")
        }
        cleaner = _Cleaner(styles, _Numbering(optional["numbering"], styles), notes)
        members: dict[str, bytes] = {}
        for name, root in {"document": document, **optional}.items():
            if root is None:
                continue
            if name in {"styles", "numbering"}:
                _without_broken(root)
            else:
                targets = self._links_outside(self._main if name == "document" else self._found.get(name, ""))
                cleaner.clean(root, targets)
                members[f"word/_rels/{name}.xml.rels"] = _relations(targets)
            members[f"word/{name}.xml"] = tostring(root)
        self.skipped_items += [*cleaner.list_skipped_items(), *self._beside()]
        file = BytesIO()
        with ZipFile(file, "w") as written:
            for name, content in members.items():
                written.writestr(name, content)
        return file.getvalue()

    def _targets(self) -> dict[str, str]:
        """Return the members besides the main one, by kind; if there are several of a kind, the first."""
        folder = self._main.rpartition("/")[0]
        usual = {name: f"{folder}/{name}.xml".lstrip("/") for name in (*_OPTIONAL, "comments")}
        try:
            linked = read_relationships(self._archive, self._main).values()
        except UnreadableFileError:
            linked = ()
            self.skipped_items.append(SkippedItem(name="links", reason="damaged"))
        said: dict[str, str] = {}
        for kind, name in linked:
            if name in self._archive.NameToInfo:
                said.setdefault(kind.rpartition("/")[2], name)
        return {**{key: name for key, name in usual.items() if name in self._archive.NameToInfo}, **said}

    def _optional(self, name: str) -> Element | None:
        if name not in self._found:
            return None
        try:
            return read_xml_member(self._archive, self._found[name])
        except UnreadableFileError:
            self.skipped_items.append(SkippedItem(name=name, reason=_OPTIONAL[name]))
            return None

    def _links_outside(self, name: str) -> dict[str, str]:
        """Return addresses by the ids of their links."""
        folder, _, file = name.rpartition("/")
        try:
            listed = read_xml_member(self._archive, f"{folder}/_rels/{file}.rels".lstrip("/"))
        except UnreadableFileError:
            return {}
        return {link.get("Id", ""): link.get("Target", "") for link in listed if link.get("TargetMode") == "External"}

    def _beside(self) -> Iterator[SkippedItem]:
        """Yield texts that are not part of the document's own."""
        try:
            linked = {
                name: kind.rpartition("/")[2] for kind, name in read_relationships(self._archive, self._main).values()
            }
        except UnreadableFileError:
            return
        words: Counter[str] = Counter()
        for name, kind in linked.items():
            try:
                texts = (
                    [
                        text.text or ""
                        for text in read_xml_member(self._archive, name).iter()
                        if get_local_name(text) == "t"
                    ]
                    if (kind in _BESIDE)
                    else []
                )
            except UnreadableFileError:
                texts = []
            words[_BESIDE.get(kind, "")] += sum(len(text.split()) for text in texts)
        for name in dict.fromkeys(_BESIDE.values()):
            if words[name]:
                yield SkippedItem(name=name, reason=f"not read ({_counted(words[name], 'word')})")


_BESIDE = {"header": "headers and footers", "footer": "headers and footers", "comments": "comments"}


def _counted(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def _relations(targets: Mapping[str, str]) -> bytes:
    root = Element(f"{{{_RELATIONS}}}Relationships")
    for key, target in targets.items():
        attributes = {"Id": key, "Type": f"{_LINK_KINDS}/hyperlink", "Target": target, "TargetMode": "External"}
        SubElement(root, f"{{{_RELATIONS}}}Relationship", attributes)
    return tostring(root)


def _join_bodies(document: Element) -> None:
    """Move the contents of further bodies into the first, which is the only one that the library reads."""
    first, *others = [child for child in document if get_local_name(child) == "body"] or [None]
    for body in others:
        if first is not None and body is not None:
            first.extend(list(body))
            document.remove(body)


def _without_broken(root: Element) -> None:
    """Remove definitions that lack what the library takes for granted."""
    for child in list(root):
        is_style, is_number = get_local_name(child) == "style", get_local_name(child) == "num"
        if (
            (is_style and not (_said(child, "type") and _said(child, "styleId")))
            or (is_number and not (_said(child, "numId") and _value(child, "abstractNumId")))
            or (get_local_name(child) == "abstractNum" and not _said(child, "abstractNumId"))
        ):
            root.remove(child)


def _attribute(element: Element, name: str) -> str:
    """Return the full name of an attribute, whose namespace differs by the kind of file."""
    return next((key for key in element.keys() if key.rpartition("}")[2] == name), name)  # noqa: SIM118 no mapping


def _said(element: Element | None, name: str) -> str | None:
    return None if element is None else element.get(_attribute(element, name))


def _child(element: Element | None, name: str) -> Element | None:
    return None if element is None else next((child for child in element if get_local_name(child) == name), None)


def _value(element: Element | None, *path: str) -> str | None:
    """Return the attribute `val` of the element that these nested names lead to."""
    for name in path:
        element = _child(element, name)
    return _said(element, "val")


def _number(value: str | None) -> int | None:
    return int(value) if value and value.removeprefix("-").isdecimal() and len(value) < 10 else None


_RAISED_HALF_POINTS = 6
"""A text that is raised by this much is above the line like a superscript."""


class _RunLook(NamedTuple):
    """Format of a text; None: not set."""

    hidden: bool | None = None
    struck: bool | None = None
    height: str | None = None
    """`superscript`, `subscript` or `baseline`."""

    def over(self, weaker: "_RunLook") -> "_RunLook":
        return _RunLook(
            weaker.hidden if self.hidden is None else self.hidden,
            weaker.struck if self.struck is None else self.struck,
            self.height or weaker.height,
        )


_PLAIN = _RunLook()


def _half_points(measure: str) -> int:
    """Return the half-points of a measure, which has a unit in strict files: `6`, `3pt`."""
    whole = _number(measure.removesuffix("pt").partition(".")[0]) or 0
    return 2 * whole if measure.endswith("pt") else whole


def _run_look(properties: Element | None) -> _RunLook:
    if properties is None:
        return _PLAIN
    said = {get_local_name(child): _said(child, "val") for child in properties}
    raised_by = _half_points(said.get("position") or "")
    height = said.get("vertAlign") or (
        None if abs(raised_by) < _RAISED_HALF_POINTS else "superscript" if raised_by > 0 else "subscript"
    )
    strikes = [said[name] not in OFF for name in ("strike", "dstrike") if name in said]
    return _RunLook(said["vanish"] not in OFF if "vanish" in said else None, any(strikes) if strikes else None, height)


class _Style(NamedTuple):
    based_on: str
    look: _RunLook
    list_id: str | None
    level: int | None


class _Styles:
    """Styles by id, with what they are based on."""

    def __init__(self, root: Element | None) -> None:
        self._styles: dict[str, _Style] = {}
        self._default = ""
        self._defaults = _PLAIN
        for style in root if root is not None else ():
            if get_local_name(style) == "docDefaults":
                self._defaults = _run_look(_child(_child(style, "rPrDefault"), "rPr"))
            if get_local_name(style) != "style":
                continue
            key, numbers = _said(style, "styleId") or "", _child(_child(style, "pPr"), "numPr")
            self._styles.setdefault(
                key,
                _Style(
                    _value(style, "basedOn") or "",
                    _run_look(_child(style, "rPr")),
                    _value(numbers, "numId"),
                    _number(_value(numbers, "ilvl")),
                ),
            )
            if _said(style, "type") == "paragraph" and (_said(style, "default") or "0") not in OFF:
                self._default = self._default or key

    def chain(self, key: str | None, *, of_paragraph: bool = False) -> Iterator[tuple[str, _Style]]:
        """Yield the style and those that it is based on."""
        key = key or (self._default if of_paragraph else "")
        seen: set[str] = set()
        while key in self._styles and key not in seen:
            seen.add(key)
            yield key, self._styles[key]
            key = self._styles[key].based_on

    def look(self, run: Element | None, paragraph_style: str | None) -> _RunLook:
        """Return the format of a text with these properties, in a paragraph of that style."""
        look = _run_look(run)
        for _, style in (*self.chain(_value(run, "rStyle")), *self.chain(paragraph_style, of_paragraph=True)):
            look = look.over(style.look)
        return look.over(self._defaults)


class _Level(NamedTuple):
    start: int
    format: str
    text: str
    restart: int | None
    legal: bool
    style: str | None


class _List(NamedTuple):
    """A list of the document, which may share its counters with others."""

    counters: str
    levels: Mapping[int, _Level]
    starts: Mapping[int, int]
    """Start values of levels that restart with this list."""


_CHECKED = frozenset("☐☑☒✓✔✗✘")
"""Meaningful bullets."""
_PLACEHOLDER = compile_bounded(r"%([1-9])")


class _Numbering:
    """Counts through the lists of a document, in its order."""

    def __init__(self, root: Element | None, styles: _Styles) -> None:
        self._styles = styles
        elements = list(root) if root is not None else []
        abstract = {_said(one, "abstractNumId") or "": one for one in elements if get_local_name(one) == "abstractNum"}
        nums = {_said(one, "numId") or "": one for one in elements if get_local_name(one) == "num"}
        self._lists = {key: self._list(key, nums, abstract) for key in nums}
        self._counts: dict[str, dict[int, int]] = {}
        self._begun: set[tuple[str, int]] = set()

    def _list(self, key: str, nums: Mapping[str, Element], abstract: Mapping[str, Element]) -> _List:
        num = nums[key]
        counters = _value(num, "abstractNumId") or ""
        kept, seen = abstract.get(counters), {key}
        while kept is not None and (link := _value(kept, "numStyleLink")):
            linked = next((style.list_id for _, style in self._styles.chain(link) if style.list_id), None)
            if linked is None or linked in seen or linked not in nums:
                break
            seen.add(linked)
            counters = _value(nums[linked], "abstractNumId") or ""
            kept = abstract.get(counters)
        levels = dict(_levels(kept if kept is not None else ()))
        starts: dict[int, int] = {}
        for override in (one for one in num if get_local_name(one) == "lvlOverride"):
            levels |= dict(_levels(override))
            level, start = _number(_said(override, "ilvl")), _number(_value(override, "startOverride"))
            if level is not None and start is not None:
                starts[level] = start
        return _List(counters, levels, starts)

    def place(self, properties: Element | None) -> tuple[str, int] | None:
        """Return the list and level of a paragraph with these properties."""
        own = _child(properties, "numPr")
        key, level = _value(own, "numId"), _number(_value(own, "ilvl"))
        chain = list(self._styles.chain(_value(properties, "pStyle"), of_paragraph=True))
        if key is None:
            key = next((style.list_id for _, style in chain if style.list_id is not None), None)
        if key is None:
            return None
        # List and level are inherited independently: a style may define its level and get its list from another.
        linked = {one.style: at for at, one in sorted(self._levels(key).items(), reverse=True)}
        for name, style in chain:
            if level is None:
                level = linked.get(name) if style.level is None else style.level
        return (key, level or 0)

    def _levels(self, key: str) -> Mapping[int, _Level]:
        return self._lists[key].levels if key in self._lists else {}

    def label(self, key: str, level: int) -> str | None:
        """Return the number of the next paragraph at that level, possibly empty; None if it has none, or a bullet."""
        found = self._lists.get(key)
        if found is None or level not in found.levels:
            return None
        if found.levels[level].format == "bullet":
            sign = found.levels[level].text
            return sign if sign in _CHECKED else None
        counts = self._counts.setdefault(found.counters, {})
        if level in found.starts and (key, level) not in self._begun:
            counts[level] = found.starts[level]
            self._begun.add((key, level))
        else:
            counts[level] = counts[level] + 1 if level in counts else found.levels[level].start
        for deeper in [one for one in counts if one > level]:
            restart = found.levels[deeper].restart if deeper in found.levels else None
            if restart is None or (restart and level < restart):
                del counts[deeper]
        return _PLACEHOLDER.sub(
            lambda sign: _shown(found, counts, int(sign[1]) - 1, level), found.levels[level].text
        ).strip()


def _levels(elements: Iterable[Element]) -> Iterator[tuple[int, _Level]]:
    for element in elements:
        if get_local_name(element) == "lvl":
            start = _number(_value(element, "start"))
            yield (
                _number(_said(element, "ilvl")) or 0,
                _Level(
                    start=0 if start is None else start,
                    format=_value(element, "numFmt") or "decimal",
                    text=_value(element, "lvlText") or "",
                    restart=_number(_value(element, "lvlRestart")),
                    legal=_child(element, "isLgl") is not None and (_value(element, "isLgl") or "1") not in OFF,
                    style=_value(element, "pStyle"),
                ),
            )


def _shown(of: _List, counts: Mapping[int, int], level: int, at: int) -> str:
    """Return a level's part of the number of a paragraph at another level."""
    known = of.levels.get(level)
    if known is None or known.format == "none":
        return ""
    number = counts.get(level, of.starts.get(level, known.start))
    return format_number(number, "decimal" if of.levels[at].legal else known.format)


_HANDLED = frozenset({
    *("t", "r", "p", "fldChar", "instrText", "tab", "noBreakHyphen", "softHyphen", "sym", "tbl", "tr", "tc"),
    *("customXml", "ins", "moveFromRangeEnd", "moveFromRangeStart", "moveTo", "moveToRangeEnd", "moveToRangeStart"),
    *("object", "smartTag", "drawing", "group", "rect", "roundrect", "shape", "textbox", "txbxContent", "pict"),
    *("hyperlink", "bookmarkStart", "br", "footnoteReference", "endnoteReference", "sdt", "sdtContent", "body"),
    *("footnote", "endnote"),
})  # fmt: skip
"""Elements that the library knows and reads the contents of."""
_PROPERTIES = frozenset({"pPr", "rPr", "tblPr", "tblGrid", "trPr", "tcPr", "sdtPr", "sectPr"})
_VML = frozenset({"group", "rect", "roundrect", "shape", "textbox"})
_USUAL = {
    name: f"{{urn:schemas-microsoft-com:vml}}{name}" if name in _VML else f"{_W}{name}"
    for name in _HANDLED | _PROPERTIES
}
"""Names of elements that the library knows, which have other namespaces in strict files."""
_LEAVES = frozenset({
    *("del", "moveFrom", "oMath", "oMathPara", "footnoteReference", "endnoteReference"),
    *("fldChar", "cr", "br", "ptab", "textpath"),
})  # fmt: skip
_CHARTS = frozenset({"chart", "relIds"})
_HOLDERS = frozenset({"t", "p", "r", "oMath", "textpath"})
"""An unknown element without any of these has nothing to read."""
_TEXTS = frozenset({"t", "instrText", "delText"})


class _Cleaner:
    """Adds what the library does not know to texts, and counts what is not read."""

    def __init__(self, styles: _Styles, numbering: _Numbering, notes: Mapping[str, set[str]]) -> None:
        self._styles, self._numbering, self._notes = styles, numbering, notes
        self._targets: dict[str, str] = {}
        self._form_texts: Mapping[Element, str] = {}
        self._hidden: list[int] = []
        """Words in each hidden text."""
        self._deleted = 0
        self._charts = 0
        self._lost_notes = 0
        self._unread: Counter[str] = Counter()
        """Count of elements in `_KNOWN`."""

    def clean(self, root: Element, targets: dict[str, str]) -> None:
        """Change a member in place. `targets`: addresses by the ids of links, to which those of fields are added."""
        self._targets = targets
        self._form_texts = _read_fields(root)
        self._clean(root, None)

    def list_skipped_items(self) -> Iterator[SkippedItem]:
        """Yield what is not in the cleaned texts."""
        words = sum(self._hidden)
        if words:
            passages = _counted(len([*filter(None, self._hidden)]), "passage")
            reason = f"{passages} ({_counted(words, 'word')}) that readers of the document do not see"
            yield SkippedItem(name="hidden text", reason=reason)
        if self._deleted:
            reason = f"{_counted(self._deleted, 'word')} that tracked changes delete"
            yield SkippedItem(name="deleted text", reason=reason)
        if self._charts:
            yield SkippedItem(name=f"charts or diagrams ({self._charts})", reason="not read")
        for name, count in self._unread.items():
            yield SkippedItem(name=_KNOWN[name], reason=f"not read{_times(count)}")
        if self._lost_notes:
            yield SkippedItem(name=_counted(self._lost_notes, "note"), reason="damaged: missing in the file")

    def _clean(self, element: Element, paragraph_style: str | None) -> None:
        children = _with_initials(element) if any(get_local_name(child) == "p" for child in element) else list(element)
        element[:] = [kept for child in children for kept in self._kept(child, paragraph_style)]
        if get_local_name(element) in _TEXTS and element.text:
            element.text = element.text.translate(_MARKS_OF_OURS)

    def _kept(self, element: Element, paragraph_style: str | None) -> Iterator[Element]:
        """Yield the replacement of an element."""
        name = get_local_name(element)
        element.tag = _USUAL.get(name, element.tag)
        match name:
            case "p":
                yield from self._paragraph(element)
            case "r":
                yield from self._run(element, paragraph_style)
            case "tr":
                yield from self._row(element, paragraph_style)
            case "tbl":
                self._clean(element, paragraph_style)
                # One of these between two rows would keep the library from merging the table's cells.
                loose = list(_take_loose(element))
                yield from (element, *loose)
            case "AlternateContent":
                for chosen in _alternative(element):
                    yield from self._kept(chosen, paragraph_style)
            case "drawing" | "object":
                yield from self._drawing(element, paragraph_style)
            case _ if name in _PROPERTIES or name in _LEAVES:
                yield from self._leaf(element)
            case _ if name in _HANDLED:
                self._check(element)
                self._clean(element, paragraph_style)
                yield element
            case _:
                yield from self._unknown(element, paragraph_style)

    def _leaf(self, element: Element) -> Iterator[Element]:
        """Yield the replacement of an element whose contents do not change."""
        match get_local_name(element):
            case "del":
                texts = (text.text or "" for text in element.iter() if get_local_name(text) in {"delText", "t"})
                self._deleted += sum(len(text.split()) for text in texts)
            case "moveFrom":  # the text is where it was moved to
                pass
            case "oMath":
                yield _text_run(render_formula(element))
            case "footnoteReference" | "endnoteReference" as name:
                kept = _said(element, "id") in self._notes[f"{name.removesuffix('Reference')}s"]
                self._lost_notes += not kept
                yield from [element] if kept else []
            case "fldChar":
                yield element
                if element in self._form_texts:
                    yield _text(self._form_texts[element])
            case "oMathPara":
                for number, formula in enumerate(one for one in element.iter() if get_local_name(one) == "oMath"):
                    yield from [_run_of(Element(f"{_W}br"))] if number else []
                    yield _text_run(render_formula(formula))
            case _:
                yield from _usual_sign(element)

    def _row(self, row: Element, paragraph_style: str | None) -> Iterator[Element]:
        if _child(_child(row, "trPr"), "hidden") is not None:
            self._hide(row)
            return
        self._clean(row, paragraph_style)
        yield from _with_gap(row)

    def _unknown(self, element: Element, paragraph_style: str | None) -> Iterator[Element]:
        """Yield the contents of an element that the library would skip, or record it as unread."""
        if get_local_name(element) in _KNOWN:
            self._unread[get_local_name(element)] += 1
        if get_local_name(element) in {"rt", "imagedata", "comment"}:
            return
        if get_local_name(element) == "fldSimple" and (link := _hyperlink(_said(element, "instr") or "")) is not None:
            yield self._link(element, link, paragraph_style)
            return
        for child in list(element):
            if any(get_local_name(one) in _HOLDERS or get_local_name(one) in _KNOWN for one in child.iter()):
                yield from self._kept(child, paragraph_style)

    def _check(self, element: Element) -> None:
        """Remove what the library would fail at."""
        key = _attribute(element, "id")
        if get_local_name(element) == "hyperlink" and element.get(key) not in {None, *self._targets}:
            del element.attrib[key]
        for cell in (child for child in element if get_local_name(child) == "tcPr"):
            cell[:] = [
                one for one in cell if get_local_name(one) != "gridSpan" or (_number(_said(one, "val")) or 0) > 0
            ]
        element[:] = [one for one in element if get_local_name(one) != "sym" or _is_sign(_said(one, "char"))]

    def _drawing(self, element: Element, paragraph_style: str | None) -> Iterator[Element]:
        self._charts += sum(get_local_name(one) in _CHARTS for one in element.iter())
        picture = Element(f"{_W}pict")
        for box in _boxes(element):
            if get_local_name(box) == "p":
                picture.extend(self._kept(_shape_paragraph(box), paragraph_style))
            else:
                self._clean(box, paragraph_style)
                picture.extend(list(box))
        yield from [picture] if len(picture) else []
        if get_local_name(element) == "object":
            self._unread.update(get_local_name(one) for one in element.iter() if get_local_name(one) in _KNOWN)

    def _link(self, field: Element, link: "_Link", paragraph_style: str | None) -> Element:
        """Return a field that is a link in the form of other links."""
        written = Element(f"{_W}hyperlink")
        if link.target:
            key = f"field{len(self._targets)}"
            self._targets[key] = link.target
            written.set(f"{{{_LINK_KINDS}}}id", key)
        if link.anchor:
            written.set(f"{_W}anchor", link.anchor)
        written[:] = list(field)
        self._clean(written, paragraph_style)
        return written

    def _paragraph(self, paragraph: Element) -> Iterator[Element]:
        properties = _child(paragraph, "pPr")
        style = _value(properties, "pStyle")
        place = self._numbering.place(properties)
        had = any(get_local_name(one) == "t" for one in paragraph.iter())
        self._clean(paragraph, style)
        is_gone = had and not any(get_local_name(one) in {"t", "sym", "pict"} for one in paragraph.iter())
        is_deleted = _child(_child(properties, "rPr"), "del") is not None
        if place and not is_gone and not is_deleted:
            label = self._numbering.label(*place)
            _set_place(paragraph, place)
            if label is not None:
                after = 1 if len(paragraph) and get_local_name(paragraph[0]) == "pPr" else 0
                paragraph.insert(after, _text_run(f"{LABEL}{label.translate(_MARKS_OF_OURS)}{LABEL_END}"))
        yield paragraph

    def _run(self, run: Element, paragraph_style: str | None) -> Iterator[Element]:
        properties = _child(run, "rPr")
        look = self._styles.look(properties, paragraph_style)
        if look.hidden:
            self._hide(run)
            # Otherwise a field would never end.
            run[:] = [child for child in run if get_local_name(child) in {"fldChar", "instrText"}]
            yield from [run] if len(run) else []
            return
        self._check(run)
        self._clean(run, paragraph_style)
        if properties is None:
            properties = Element(f"{_W}rPr")
            run.insert(0, properties)
        properties[:] = [one for one in properties if get_local_name(one) not in {"strike", "dstrike", "vertAlign"}]
        if look.struck:
            SubElement(properties, f"{_W}strike")
        if look.height in {"superscript", "subscript"}:
            SubElement(properties, f"{_W}vertAlign", {f"{_W}val": look.height})
        yield run

    def _hide(self, element: Element) -> None:
        self._hidden.append(
            sum(len((text.text or "").split()) for text in element.iter() if get_local_name(text) == "t")
        )


def _usual_sign(element: Element) -> Iterator[Element]:
    """Yield what the library knows in place of a character element that it does not."""
    match get_local_name(element):
        case "cr":
            yield Element(f"{_W}br")
        case "br":
            if _said(element, "type") not in {"page", "column"}:
                element.attrib.clear()
            yield element
        case "ptab":
            yield Element(f"{_W}tab")
        case "textpath":  # large letters along a line
            text = (element.get("string") or "").strip()
            yield from [_paragraph_of([_text_run(text)])] if text else []
        case _:
            yield element


def _is_sign(character: str | None) -> bool:
    try:
        return int(character or "", 16) >= 0
    except ValueError:
        return False


def _text(text: str) -> Element:
    written = Element(f"{_W}t")
    written.text = text
    return written


def _run_of(*contents: Element) -> Element:
    run = Element(f"{_W}r")
    run[:] = contents
    return run


def _text_run(text: str) -> Element:
    return _run_of(_text(text))


def _paragraph_of(contents: Iterable[Element]) -> Element:
    paragraph = Element(f"{_W}p")
    paragraph[:] = contents
    return paragraph


class _Link(NamedTuple):
    """Target of a link: an address, a place, or a place at an address."""

    target: str
    anchor: str


_ARGUMENT = compile_bounded(r'"((?:[^"\\]|\\.)*+)"?|\\([A-Za-z!])|([^\s"]++)')
"""Part of a field's instruction: a quoted argument, a switch, or a word."""
_ESCAPED = compile_bounded(r'\\(["\\])')
_WITH_ARGUMENT = frozenset("lot")
"""Switches of links with an argument: a place, a tooltip, a frame."""


def _hyperlink(instruction: str) -> _Link | None:
    r"""Parse a field's instruction as a link: `HYPERLINK "https://example.org" \l "part" \o "See there"`."""
    name, *arguments = list(_ARGUMENT.finditer(instruction)) or [None]
    if name is None or (name[3] or "").upper() != "HYPERLINK":
        return None
    found: dict[str, str] = {}
    switch = ""
    for argument in arguments:
        if argument is not None and argument[2]:
            switch = argument[2].lower() if argument[2].lower() in _WITH_ARGUMENT else ""
        elif argument is not None:
            said = argument[3] or _ESCAPED.sub(r"\1", argument[1] or "")
            found.setdefault(switch, " ".join(said.split()))
            switch = ""
    return _Link(found.get("", ""), found.get("l", ""))


class _Field(NamedTuple):
    """A field whose end has not been reached."""

    begin: Element
    instruction: list[Element]
    results: list[str]
    """What it shows, with an empty text first if it has a part that is shown."""


def _read_fields(root: Element) -> Mapping[Element, str]:
    """Return the texts of form fields, by the field's last element, if they are not part of the document's own text.

    Instructions of links are rewritten in the one way that the library understands.
    """
    texts: dict[Element, str] = {}
    fields: list[_Field] = []
    for element in root.iter():
        match get_local_name(element):
            case "fldChar":
                kind = _said(element, "fldCharType")
                if kind == "begin":
                    fields.append(_Field(element, [], []))
                    _write_switches(element)
                elif fields and kind == "separate":
                    fields[-1].results.append("")
                elif fields and kind == "end":
                    field = fields.pop()
                    _write_link(field.instruction)
                    if text := _form_text(field):
                        texts[element] = text
            case "instrText" if fields and not fields[-1].results:
                fields[-1].instruction.append(element)
            case "t" if element.text:
                for field in (one for one in fields if one.results):
                    field.results.append(element.text.strip())
            case _:
                pass
    return texts


def _write_switches(begin: Element) -> None:
    """Rewrite the state of a check box in the way that the library understands."""
    for switch in _child(_child(begin, "ffData"), "checkBox") or ():
        key = _attribute(switch, "val")
        if switch.get(key) in OFF:
            switch.set(key, "0")


def _write_link(instruction: Sequence[Element]) -> None:
    link = _hyperlink("".join(one.text or "" for one in instruction))
    if link is None:
        return
    target, anchor = (one.replace('"', "%22") for one in link)
    if target:
        anchor = "" if not anchor or "#" in target else f"#{anchor}"
        written = f' HYPERLINK "{target}{anchor}" '
    else:
        written = f' HYPERLINK \\l "{anchor}" ' if anchor else ""
    for number, one in enumerate(instruction):
        one.text = "" if number else written


def _form_text(field: _Field) -> str:
    """Return the selected entry of a list, or the initial text of a field."""
    form = _child(field.begin, "ffData")
    entries = [_said(one, "val") or "" for one in _child(form, "ddList") or () if get_local_name(one) == "listEntry"]
    if entries and not any(field.results):
        said = _value(form, "ddList", "result") or _value(form, "ddList", "default")
        at = _number(said) or 0
        return entries[at].strip() if 0 <= at < len(entries) else ""
    return "" if field.results else (_value(form, "textInput", "default") or "").strip()


_DRAWING = frozenset({
    "http://schemas.openxmlformats.org/drawingml/2006/main",
    "http://purl.oclc.org/ooxml/drawingml/main",
})  # fmt: skip


def _boxes(element: Element) -> Iterator[Element]:
    """Yield the texts of a drawing, in order: contents of text boxes, and paragraphs of DrawingML shapes."""
    for child in _alternative(element) if get_local_name(element) == "AlternateContent" else element:
        if get_local_name(child) == "txbxContent" or (
            get_local_name(child) == "p" and child.tag[1:].partition("}")[0] in _DRAWING
        ):
            yield child
        else:
            yield from _boxes(child)


def _shape_paragraph(paragraph: Element) -> Element:
    """Convert a paragraph of DrawingML to one of Word's."""
    written = Element(f"{_W}p")
    for one in paragraph.iter():
        match get_local_name(one):
            case "r" | "fld":
                properties = Element(f"{_W}rPr")
                look = _child(one, "rPr")
                looks = look.attrib if look is not None else {}
                if looks.get("strike", "noStrike") != "noStrike":
                    SubElement(properties, f"{_W}strike")
                raised_by = _number(looks.get("baseline", "").removesuffix("%")) or 0
                if raised_by:
                    height = "superscript" if raised_by > 0 else "subscript"
                    SubElement(properties, f"{_W}vertAlign", {f"{_W}val": height})
                text = "".join(text.text or "" for text in one if get_local_name(text) == "t")
                # The texts of formulas are in their elements.
                if text and one.tag[1:].partition("}")[0] in _DRAWING:
                    written.append(_run_of(properties, _text(text)))
            case "br":
                written.append(_run_of(Element(f"{_W}br")))
            case "oMath":
                written.append(one)
            case _:
                pass
    return written


_PROPERTIES_OF_TABLES = frozenset({"tblPr", "tblPrEx", "tblGrid", "trPr", "sdtPr"})


def _take_loose(table: Element) -> Iterator[Element]:
    """Remove and yield what is between the rows and cells of a table."""
    for child in list(table):
        if get_local_name(child) == "tc" or get_local_name(child) in _PROPERTIES_OF_TABLES:
            continue
        if any(get_local_name(one) == "tc" for one in child.iter()):
            yield from _take_loose(child)
        elif get_local_name(child) != "tr":
            table.remove(child)
            yield child


def _set_place(paragraph: Element, place: tuple[str, int]) -> None:
    """Write list and level of the paragraph into it, since the library does not look them up in its style."""
    properties = _child(paragraph, "pPr")
    if properties is None:
        properties = Element(f"{_W}pPr")
        paragraph.insert(0, properties)
    properties[:] = [one for one in properties if get_local_name(one) != "numPr"]
    numbers = SubElement(properties, f"{_W}numPr")
    SubElement(numbers, f"{_W}ilvl", {f"{_W}val": str(place[1])})
    SubElement(numbers, f"{_W}numId", {f"{_W}val": place[0]})


def _with_initials(element: Element) -> list[Element]:
    """Return the children of an element, with each drop cap merged into the paragraph that it begins."""
    children: list[Element] = []
    initial: list[Element] = []
    for child in element:
        if get_local_name(child) == "p" and initial:
            at = next((at for at, one in enumerate(child) if get_local_name(one) != "pPr"), len(child))
            child[at:at] = initial
            initial = []
        frame = _child(_child(child, "pPr"), "framePr")
        if frame is not None and _said(frame, "dropCap") not in {None, "none"}:
            initial = [one for one in child if get_local_name(one) != "pPr"]
            for properties in (one for run in initial for one in run if get_local_name(one) == "rPr"):
                properties[:] = [one for one in properties if get_local_name(one) != "position"]
        else:
            children.append(child)
    if initial:
        children.append(Element(f"{_W}p"))
        children[-1][:] = initial
    return children


def _with_gap(row: Element) -> Iterator[Element]:
    """Yield a row that begins after the first column, with a cell for what it skips."""
    columns = _number(_value(_child(row, "trPr"), "gridBefore"))
    if columns and 0 < columns < 100:
        cell = Element(f"{_W}tc")
        SubElement(SubElement(cell, f"{_W}tcPr"), f"{_W}gridSpan", {f"{_W}val": str(columns)})
        row.insert(next((at for at, child in enumerate(row) if get_local_name(child) == "tc"), 0), cell)
    yield row


def _alternative(element: Element) -> Sequence[Element]:
    """Return the children of the alternative with text: each has the same content, for older and newer programs.

    If none has text, prefer a chart: the picture that older programs show of it would not be reported.
    """
    fallback = [child for child in element if get_local_name(child) == "Fallback"]
    options = (*fallback, *(child for child in element if get_local_name(child) == "Choice"))
    for telling in ({"t"}, _CHARTS):
        for option in options:
            if any(get_local_name(one) in telling for one in option.iter()):
                return list(option)
    return list(fallback[0]) if fallback else [one for choice in element for one in choice]


def render_formula(element: Element) -> str:
    """Render a Word formula on one line: `(a+b)/2`, `x^2`."""
    match get_local_name(element):
        case "t":
            return element.text or ""
        case "br" | "tab":
            return " "
        case "sSup" | "sSub" | "sSubSup" | "sPre" | "limUpp" | "limLow" | "nary":
            return _with_scripts(element)
        case "f" | "rad" | "func":
            return _composed(element)
        case "d" | "m" | "mr" | "eqArr":
            return _fenced(element)
        case "bar" | "acc" | "groupChr":
            return _marked(element)
        case "phant" if (_value(element, "phantPr", "show") or "1") in OFF:
            return ""
        case _:
            return _joined(map(render_formula, element))


def _part(element: Element, *names: str) -> str:
    return "".join(render_formula(child) for child in element if get_local_name(child) in names)


def _with_scripts(element: Element) -> str:
    """Render a base with superscripts and subscripts."""
    base, scripts = _part(element, "e"), _placed(_part(element, "sub"), _part(element, "sup"))
    match get_local_name(element):
        case "nary":
            sign = _value(element, "naryPr", "chr")
            return _joined([("∫" if sign is None else sign) + scripts, base])
        case "sPre":  # what precedes it, such as the mass of an atom
            return f"{scripts} {base}".strip()
        case "limUpp":
            return _in_brackets(base) + _placed(above=_part(element, "lim"))
        case "limLow":
            return _in_brackets(base) + _placed(below=_part(element, "lim"))
        case _:
            return _in_brackets(base) + scripts


def _composed(element: Element) -> str:
    """Render a fraction, a root or a function of something."""
    match get_local_name(element):
        case "f":
            # Without a bar, one is above the other: a binomial coefficient.
            bar = " choose " if _value(element, "fPr", "type") == "noBar" else "/"
            return f"{_in_brackets(_part(element, 'num'))}{bar}{_in_brackets(_part(element, 'den'))}"
        case "rad":
            degree, base = _part(element, "deg"), _in_brackets(_part(element, "e"))
            return f"{base}^(1/{degree})" if degree else f"√{base}"
        case _:
            name, of_what = _part(element, "fName"), _part(element, "e")
            return f"{name}{'' if of_what.startswith(('(', '[', '{', '|')) else ' '}{of_what}".strip()


def _marked(element: Element) -> str:
    """Render a base with a line, an accent, a brace or an arrow over or under it."""
    kind, base = get_local_name(element), _part(element, "e")
    sign, place = (_value(element, f"{kind}Pr", name) for name in ("chr", "pos"))
    if kind == "groupChr":
        sign = "⏟" if sign is None else sign
        if sign in _BRACES:
            return base
        # An arrow has its text on the other side.
        return sign + (_placed(below=base) if place == "top" else _placed(above=base))
    if kind == "bar":
        sign, before = ("\u0305", "¯") if place == "top" else ("\u0332", "▁")
        return f"{base}{sign}" if len(base) < 2 else f"{before}({base})"
    return f"{_in_brackets(base)}{_HAT if sign is None else sign}" if base else ""


_HAT = "\u0302"
_BRACES = frozenset("⏞⏟⎴⎵⏜⏝⏠⏡¯_︷︸")


def _joined(parts: Iterable[str]) -> str:
    """Join the parts of a formula, with a space where a script or a fraction would absorb its neighbour."""
    written = ""
    for part in parts:
        place = max(written.rfind(sign) for sign in "^_/")
        runs_on = place >= 0 and written[place + 1 :].isalnum()
        runs_in = "/" in part and written[-1:].isalnum()
        written += f" {part}" if part[:1].isalnum() and (runs_on or runs_in) else part
    return written


def _fenced(element: Element) -> str:
    """Render what is in brackets, in the rows and columns of a matrix, or in stacked equations."""
    inner = [render_formula(child) for child in element if get_local_name(child) in {"e", "mr"}]
    match get_local_name(element):
        case "m":
            return f"[{'; '.join(inner)}]"
        case "mr":
            return ", ".join(inner)
        case "eqArr":
            return "; ".join(filter(None, map(_unaligned, inner)))
        case _:
            begin, end, between = (_value(element, "dPr", name) for name in ("begChr", "endChr", "sepChr"))
            between = "|" if between is None else f"{between} " if between in {",", ";", ""} else between
            return f"{'(' if begin is None else begin}{between.join(inner)}{')' if end is None else end}"


def _unaligned(row: str) -> str:
    """Render one of several stacked equations without its alignment marks; every second one is a gap."""
    written = ""
    for number, part in enumerate(row.split("&")):
        written += f" {part}" if number and number % 2 == 0 else part
    return " ".join(written.split())


def _placed(below: str = "", above: str = "") -> str:
    return (format_subscript(below) if below else "") + (format_superscript(above) if above else "")


def _in_brackets(text: str) -> str:
    """Add brackets unless it is one character or word, or in brackets already."""
    depth, within = 0, text.startswith("(")
    for place, sign in enumerate(text):
        depth += (sign == "(") - (sign == ")")
        within = within and (depth > 0 or place == len(text) - 1)
    one_word = "".join(sign for sign in text if not combining(sign)).isalnum()
    return text if within or one_word or len(text) < 2 else f"({text})"
