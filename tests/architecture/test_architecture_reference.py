"""The generated pages of docs/reference are those of the code; `make reference` writes them."""

import pytest

from benchmarks.reference.__main__ import FOLDER, PAGES


@pytest.mark.parametrize("name", PAGES)
def test_a_generated_reference_page_is_that_of_the_code(name: str) -> None:
    assert (FOLDER / name).read_text(encoding="utf-8") == PAGES[name](), "run `make reference`"
