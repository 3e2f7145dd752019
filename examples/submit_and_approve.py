"""Submit a task from Python, grant what it asks for once, and print its report.

waystation up
python examples/submit_and_approve.py "What does it say about deadlines?" notes.md more/
"""

import argparse
import asyncio
import os
import sys
from pathlib import Path

from waystation.adapters.documents.loading import load_documents
from waystation.client import Client
from waystation.domain.amount import Amount, Limit
from waystation.domain.task import TaskPhase, TaskRequest
from waystation.settings import Settings

ALLOWANCE = Amount(tokens=50_000)


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
        granted = False
        async for view in client.watch(task.task_id):
            print(view.progress.phase, f"{view.progress.budget.spent.tokens:,} tokens")
            if view.progress.phase is TaskPhase.PAUSED and not granted:
                await client.approve(task.task_id, amount=ALLOWANCE, by="the example")
                granted = True
        print(await client.report(task.task_id))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Submit a task, grant what it asks for once, and print its report.")
    parser.add_argument("question")
    parser.add_argument("documents", nargs="+", type=Path, help="files or folders")
    parser.add_argument("--tokens", type=int, default=200_000, help="of the whole task")
    given = parser.parse_args()
    asyncio.run(main(given.question, given.documents, given.tokens))
    sys.stdout.flush()
    os._exit(0)  # the SDK's native runtime can crash while the interpreter winds down
