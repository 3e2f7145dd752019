import subprocess
import sys

SCRIPT = """
import gc
from waystation.imports import loading
with loading():
    pass
print(gc.get_freeze_count() > 0)
with loading():
    import xml.dom.minidom
    print(gc.isenabled())
print(gc.get_freeze_count() > 0, gc.isenabled())
"""


def test_the_collector_rests_while_modules_are_loaded_and_leaves_only_those_alone() -> None:
    ran = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=True)
    assert ran.stdout.splitlines() == ["False", "False", "True True"]
