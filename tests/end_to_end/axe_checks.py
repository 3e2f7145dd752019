"""What axe-core says of a page, narrow and wide, light and dark."""

from pathlib import Path
from typing import Any, Literal

import axe_playwright_python
from playwright.sync_api import Page

AXE = Path(axe_playwright_python.__file__).with_name("axe.min.js")
NARROW, WIDE = 400, 1600
Scheme = Literal["light", "dark"]
LAYOUTS: tuple[tuple[Scheme, int], ...] = (("light", NARROW), ("dark", WIDE), ("dark", NARROW), ("light", WIDE))
SERIOUS_IMPACTS = {"serious", "critical"}


def find_accessibility_faults(page: Page) -> list[str]:
    """What axe-core finds on the page that is grave, and whether it has to be moved sideways."""
    page.evaluate(AXE.read_text(encoding="utf-8"))
    found: dict[str, Any] = page.evaluate("axe.run()")
    grave = [
        f"{one['id']}: {one['nodes'][0]['target']}" for one in found["violations"] if one["impact"] in SERIOUS_IMPACTS
    ]
    sideways = page.evaluate("document.documentElement.scrollWidth > innerWidth")
    return [*grave, *(["it is wider than the window"] if sideways else [])]


def find_faults_in_all_layouts(page: Page) -> dict[tuple[Scheme, int], list[str]]:
    """The same for a page that is open, which is not loaded again."""
    found: dict[tuple[Scheme, int], list[str]] = {}
    for scheme, width in LAYOUTS:
        page.emulate_media(color_scheme=scheme)
        page.set_viewport_size({"width": width, "height": 900})
        found[scheme, width] = find_accessibility_faults(page)
    return {look: faulty for look, faulty in found.items() if faulty}
