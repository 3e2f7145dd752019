"""Submit a task from Python, answer what it asks for, and print its report: some of it is granted, the rest denied.

waystation up
python examples/submit_and_approve.py "What does it say about deadlines?" notes.md more/
"""

import argparse
import asyncio
import os
import sys
from pathlib import Path

from waystation.adapters.documents.sources import load_documents
from waystation.client import Client
from waystation.domain.amount import Amount, Limit
from waystation.domain.task import TaskRequest
from waystation.settings import Settings

ALLOWANCE, GRANTS = Amount(tokens=50_000), 2


async def main(question: str, paths: list[Path], tokens: int) -> None:
    documents = load_documents(paths).documents
    # The same request id finds the same task again, however often this program is started.
    settings = Settings()
    request = TaskRequest(
        question=question,
        tenant=settings.tenant,
        request_id=f"example {question}",
        budget=Limit(tokens=tokens),
    )
    async with await Client.connect(settings) as client:
        task = await client.submit(request, documents)
        answered: set[str] = set()
        async for view in client.watch(task.task_id):
            print(view.progress.phase, f"{view.progress.budget.spent.tokens:,} tokens")
            for asking in view.progress.approvals:
                if asking.decision != "pending" or asking.request_id in answered:
                    continue
                answered.add(asking.request_id)
                asked = {"request_id": asking.request_id, "by": "the example"}
                if len(answered) <= GRANTS:
                    await client.approve(task.task_id, amount=ALLOWANCE, **asked)
                else:
                    await client.deny(task.task_id, note="it is only an example", **asked)
        print(await client.report(task.task_id))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Submit a task, answer what it asks for, and print its report.")
    parser.add_argument("question")
    parser.add_argument("documents", nargs="+", type=Path, help="files or folders")
    parser.add_argument("--tokens", type=int, default=200_000, help="of the whole task")
    given = parser.parse_args()
    asyncio.run(main(given.question, given.documents, given.tokens))
    sys.stdout.flush()
    os._exit(0)  # the SDK's native runtime can crash while the interpreter winds down
