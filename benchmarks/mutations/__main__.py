"""Breaks core lines one after another, and reports which tests notice: `python -m benchmarks.mutations [AREA …]`.

Everything happens in a copy of the tree. A mutation that survives is a line that no test covers. `--check` only checks
that the table still fits the code.
"""

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from benchmarks.budgets.tables import print_table
from benchmarks.mutations.table import MUTATIONS, Mutation

ROOT = Path(__file__).parents[2]
TEST_SECONDS = 180
"""Of one test: a mutation may make a workflow wait for ever, which its test must not."""
NOT_COPIED = shutil.ignore_patterns(".*", "__pycache__")
FAILED = 1
"""What pytest exits with where tests ran and some failed. Anything but this and success proves nothing."""


def find_source(mutation: Mutation, root: Path = ROOT) -> Path:
    """The one file that has the text to replace, once. Raises LookupError."""
    place = root / mutation.place
    files = [place] if place.is_file() else sorted(place.rglob("*.py"))
    found = {file: file.read_text(encoding="utf-8").count(mutation.old) for file in files}
    if sum(found.values()) != 1:
        raise LookupError(f"{mutation.place} has {sum(found.values())} times instead of once: {mutation.old!r}")
    return next(file for file, times in found.items() if times)


def find_stale_mutations() -> list[str]:
    """What of the table does not fit the code any more."""
    wrong: list[str] = []
    for mutation in MUTATIONS:
        try:
            find_source(mutation)
        except LookupError as error:
            wrong.append(str(error))
        wrong += [f"there is no {test}" for test in mutation.tests if not (ROOT / test.partition("::")[0]).is_file()]
    return wrong


def do_tests_pass(root: Path, tests: Sequence[str]) -> bool:
    """Whether the tests pass there. Raises RuntimeError where they cannot be run."""
    options = ("-x", "-p", "no:cacheprovider", "--hypothesis-seed=0", f"--timeout={TEST_SECONDS}")
    command = [sys.executable, "-m", "pytest", *options, *tests]
    run = subprocess.run(
        command, cwd=root, env={**os.environ, "PYTHONPATH": str(root)}, capture_output=True, text=True, check=False
    )
    if run.returncode not in {0, FAILED}:
        raise RuntimeError(f"pytest exits with {run.returncode}:\n{run.stdout[-3_000:]}{run.stderr[-3_000:]}")
    return run.returncode == 0


def is_killed(mutation: Mutation, root: Path) -> bool:
    """Whether a test fails under it; the tree is as before then."""
    source = find_source(mutation, root)
    before = source.read_text(encoding="utf-8")
    try:
        _write(source, before.replace(mutation.old, mutation.new))
        return not do_tests_pass(root, mutation.tests)
    finally:
        _write(source, before)


def _write(source: Path, text: str) -> None:
    """Compiled modules are told apart by second and size, which two versions may share."""
    source.write_text(text, encoding="utf-8")
    for compiled in (source.parent / "__pycache__").glob(f"{source.stem}.*.pyc"):
        compiled.unlink()


def main(areas: Sequence[str]) -> None:
    """Exits with 1 where one survives, or the tests fail without any mutation."""
    chosen = [mutation for mutation in MUTATIONS if not areas or mutation.area in areas]
    with tempfile.TemporaryDirectory() as made:
        tree = Path(made) / "tree"
        # As links: `waystation/workflows` is one, and a copy of it would be imported instead of what is mutated.
        shutil.copytree(ROOT, tree, ignore=NOT_COPIED, symlinks=True)
        if not do_tests_pass(tree, sorted({test for mutation in chosen for test in mutation.tests})):
            sys.exit("the tests fail without any mutation, so that nothing can be told")
        rows: list[tuple[object, ...]] = []
        for mutation in chosen:
            start = time.perf_counter()
            result = "killed" if is_killed(mutation, tree) else "SURVIVED"
            rows.append((mutation.area, mutation.broken, result, f"{time.perf_counter() - start:.0f} s"))
            print(*rows[-1], sep=" | ", file=sys.stderr, flush=True)
    survived = sum("SURVIVED" in row for row in rows)
    print_table(f"{len(rows)} mutations, {survived} survived", ("area", "what is broken", "result", "took"), rows)
    sys.exit(survived > 0)


if __name__ == "__main__":
    if wrong := find_stale_mutations():
        sys.exit("\n".join(["the table does not fit the code:", *wrong]))
    names = sys.argv[1:]
    if names != ["--check"]:
        if unknown := set(names) - {mutation.area for mutation in MUTATIONS}:
            sys.exit(f"there is no area {', '.join(sorted(unknown))}")
        main(names)
