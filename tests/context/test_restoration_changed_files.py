"""Files that changed since they were read: compared in the ways in which tools show them."""

import pytest

from waystation.context.restoration import has_file_changed

NOW = "import os\n\n    print(1)\nport: 8080\n"


@pytest.mark.parametrize(
    "read",
    [
        NOW,
        "    print(1)\nport: 8080",
        "import os\r\n\r\n    print(1)\r\n",
        "     1→import os\n     2→\n     3→    print(1)",
        "     3\t    print(1)\n     4\tport: 8080",
        "a.py, lines 3-4 of 4\n3|     print(1)\n4| port: 8080\ncontinues at line 5",
        "4: port: 8080",
        "4:port: 8080",
    ],
    ids=["whole", "a part", "other line ends", "arrows", "tabs", "with header and footer", "colon", "colon alone"],
)
def test_what_still_stands_there_has_not_changed(read: str) -> None:
    assert not has_file_changed(read, NOW)


@pytest.mark.parametrize(
    "read",
    [
        "import sys",
        "     3→    print(2)",
        "     2→import os",
        "     9→import os",
        "import os\nport: 8080",
        "3| print(1)",
    ],
    ids=["other text", "other line", "moved line", "line that is gone", "with a hole", "other indentation"],
)
def test_what_does_not_stand_there_any_more_has_changed(read: str) -> None:
    assert has_file_changed(read, NOW)
