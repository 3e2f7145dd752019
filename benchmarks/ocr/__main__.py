"""Measures text recognition: `python -m benchmarks.ocr [PAGES]`.

Prints pages whose text is known, scans them well and badly, reads them as documents, and counts wrong characters,
seconds and memory. Fails if fewer characters are right than promised.
"""

import sys
import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import psutil

from benchmarks.budgets.tables import describe_machine, print_table
from benchmarks.ocr.corpus import PrintedPage, make_noisy, make_scan, print_pages, remove_font_maps, write_file
from benchmarks.ocr.score import count_wrong_characters, normalize
from waystation.documents.readers.extraction import UnreadableFileError
from waystation.documents.readers.reader import SubprocessFileReader, find_recognition_options, read_file

PAGES = 40
LEAST_RIGHT = {"clean, 300 dpi": 0.98, "font without letters": 0.98, "noisy, 150 dpi": 0.93}
"""Least share of right characters, by how a page is damaged."""


class PageResult(NamedTuple):
    """What was read of a page."""

    page: PrintedPage
    damage: str
    characters: int
    wrong: int
    seconds: float
    processor_seconds: float


def damage_page(number: int, page: PrintedPage) -> tuple[str, str, bytes]:
    """How a page is damaged, with its file's suffix and content: half of the pages badly."""
    if number % 2:
        return "noisy, 150 dpi", ".jpg", make_noisy(page, number)
    if number % 8 == 6:
        return "font without letters", ".pdf", remove_font_maps(page)
    return "clean, 300 dpi", ".pdf", make_scan(page)


def measure_pages(pages: int, folder: Path) -> tuple[list[PageResult], int]:
    """Read so many pages one after another. Also returns the most memory that the recognising child had, in bytes."""
    results: list[PageResult] = []
    most = 0
    with SubprocessFileReader(recognition=find_recognition_options()) as reader:
        for number, page in enumerate(print_pages(pages)):
            damage, suffix, content = damage_page(number, page)
            path = write_file(folder, f"{page.name}{suffix}", content)
            start, used = time.perf_counter(), _sum_processor_seconds()
            try:
                text = read_file(path, reader).text
            except UnreadableFileError as unreadable:
                text = ""
                print(f"{path.name} ({damage}): {unreadable}")
            seconds, spent = time.perf_counter() - start, _sum_processor_seconds() - used
            wrong = count_wrong_characters(page.text, text)
            results.append(PageResult(page, damage, len(normalize(page.text)), wrong, seconds, spent))
            most = max(most, *(_read_peak_memory(child.pid) for child in psutil.Process().children()))
            shown = f"{page.layout}, {page.font} {page.size:g} pt, {damage}"
            print(f"{page.name}: {shown}: {wrong} wrong of {results[-1].characters}, {spent:.1f} s", flush=True)
            # Kept with the page, to look at what was read.
            path.with_suffix(".txt").write_text(f"{page.text}\n\n{'=' * 40}\n\n{text}", encoding="utf-8")
    return results, most


def _sum_processor_seconds() -> float:
    return sum(sum(child.cpu_times()[:2]) for child in psutil.Process().children())


def _read_peak_memory(pid: int) -> int:
    lines = Path(f"/proc/{pid}/status").read_text("ascii").splitlines()
    return next(int(line.split()[1]) * 1_024 for line in lines if line.startswith("VmHWM"))


def summarize(results: list[PageResult], key: Callable[[PageResult], str]) -> Mapping[str, tuple[int, int, int]]:
    """Pages, characters and wrong ones, by a property of the pages."""
    sums: dict[str, tuple[int, int, int]] = defaultdict(lambda: (0, 0, 0))
    for result in results:
        pages, characters, wrong = sums[key(result)]
        sums[key(result)] = pages + 1, characters + result.characters, wrong + result.wrong
    return sums


def _share(characters: int, wrong: int) -> str:
    return f"{100 * (1 - wrong / characters):.2f} %"


def main() -> None:
    """Measure, and print the tables."""
    pages = int(sys.argv[1]) if len(sys.argv) > 1 else PAGES
    options = find_recognition_options()
    if options is None:
        sys.exit("text recognition is not installed: `make setup` installs it")
    print(f"`make bench-ocr`: {describe_machine()}, {options.threads} threads")
    with TemporaryDirectory() as folder:
        results, memory = measure_pages(pages, Path(sys.argv[2]) if len(sys.argv) > 2 else Path(folder))
    head = ("pages", "number", "characters", "right")
    sums = summarize(results, lambda one: one.damage)
    rows = [(name, number, f"{all_of:,}", _share(all_of, wrong)) for name, (number, all_of, wrong) in sums.items()]
    print_table("Characters that are right, by damage", head, rows)
    looks = summarize(results, lambda one: f"{one.damage.split(',')[0]}: {one.page.layout}")
    looks = {**looks, **summarize(results, lambda one: f"{one.damage.split(',')[0]}: {one.page.size:g} pt")}
    rows = [(name, n, f"{all_of:,}", _share(all_of, wrong)) for name, (n, all_of, wrong) in sorted(looks.items())]
    print_table("By layout and size", head, rows)
    seconds, spent = (sorted(one) for one in zip(*((r.seconds, r.processor_seconds) for r in results), strict=True))
    median = len(results) // 2
    print(
        f"\nA page takes {seconds[median]:.1f} s (median; {seconds[-1]:.1f} s at most), {spent[median]:.1f} s of one "
        f"processor. The recognising process had {memory / 1e6:,.0f} MB at most."
    )
    for name, (_, all_of, wrong) in sums.items():
        assert 1 - wrong / all_of >= LEAST_RIGHT[name], f"{name}: {_share(all_of, wrong)} right"


if __name__ == "__main__":
    main()
