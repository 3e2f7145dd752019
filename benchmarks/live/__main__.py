"""Record the default run over 25 documents on a scripted Messages server: `python -m benchmarks.live`.

`--checkout PATH`, as often as wanted, runs other checkouts of the project first, with the same documents and the same
script of the model: before and after in one table.
"""

import argparse
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from benchmarks.budgets.tables import describe_machine, print_table
from benchmarks.checkout import Checkout
from benchmarks.live.documents import TOKENS, make_documents
from benchmarks.live.figures import build_rows, compute_figures
from benchmarks.live.run import measure

BUDGET = 600_000


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.live", description=__doc__)
    parser.add_argument("--checkout", action="append", default=[], type=Path, metavar="PATH")
    parser.add_argument("--only", action="store_true", help="not this checkout, only those that are named")
    parser.add_argument("--documents", type=int, default=len(TOKENS))
    parser.add_argument("--scale", type=float, default=1.0, help="of the documents' length")
    parser.add_argument("--budget", type=int, default=BUDGET, help="of the task, in tokens")
    parser.add_argument("--minutes", type=float, default=40.0, help="for each run, at most")
    parser.add_argument("--submit", action="append", default=[], metavar="OPTION", help="further options of submit")
    chosen = parser.parse_args(arguments)
    documents = make_documents(chosen.documents, chosen.scale)
    checkouts = [Checkout(path.resolve().name, path.resolve()) for path in chosen.checkout]
    if not chosen.only:
        checkouts.append(Checkout("this checkout"))
    options = ["--budget", str(chosen.budget), *chosen.submit]
    size = sum(len(document.text.encode()) for document in documents)
    print(
        f"{len(documents)} documents of {size:,} bytes, a budget of {chosen.budget:,} tokens: {describe_machine()}",
        flush=True,
    )
    runs = [measure(checkout, documents, options, chosen.minutes * 60) for checkout in checkouts]
    day = datetime.now(UTC).date()
    every = [compute_figures(run, chosen.budget, day) for run in runs]
    print_table(
        "The default run, as the provider saw it", ("", *(checkout.name for checkout in checkouts)), build_rows(every)
    )
    for refusal in {words for run in runs for words in run.refusals}:
        print(f"refused: {refusal}")


if __name__ == "__main__":
    main()
