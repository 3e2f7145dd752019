"""Submit a task from Python, answer what it asks for, and print its report: some of it is granted, the rest denied.

waystation up
python examples/submit_and_approve.py "What does it say about deadlines?" notes.md more/
"""

import argparse
from pathlib import Path

from waystation import Waystation

ALLOWANCE, GRANTS = "50k", 2


def main(question: str, paths: list[Path], budget: str) -> None:
    with Waystation() as ws:
        # The same request id finds the same task again, however often this program is started.
        task = ws.wait(ws.submit(question, paths, budget=budget, request_id=f"example {question}"))
        answered = 0
        while not task.over:
            print(task)
            for asked in ws.approvals(task):
                answered += 1
                if answered <= GRANTS:
                    print(asked, ws.approve(asked, ALLOWANCE, by="the example"), sep=": ")
                else:
                    print(asked, ws.deny(asked, by="the example", note="it is only an example"), sep=": ")
            task = ws.wait(task)
        print(ws.report(task))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Submit a task, answer what it asks for, and print its report.")
    parser.add_argument("question")
    parser.add_argument("documents", nargs="+", type=Path, help="files or folders")
    parser.add_argument("--budget", default="200k", help="of the whole task")
    given = parser.parse_args()
    main(given.question, given.documents, given.budget)
