"""Every command of README and docs, run as it stands there, and the example program."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.end_to_end.shell import ROOT, Shell
from tests.end_to_end.survey_documents import QUESTION, TIGHT_BUDGET, write_survey_documents

TESTED_AS_A_WHOLE = "docs/tutorial.md"
"""`test_tutorial` runs all of it, in its order."""
PAGES = (
    "README.md",
    *sorted(
        page
        for page in (path.relative_to(ROOT).as_posix() for path in (ROOT / "docs").rglob("*.md"))
        if page != TESTED_AS_A_WHOLE
    ),
)
FENCE = re.compile(r"^```(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)
WITHOUT_A_PLATFORM = (
    "waystation context compact request.json --window 50k --json > compacted.json",
    "waystation context check compacted.json",
    'echo "Call Ada Lovelace, +44 20 7946 0958" | waystation privacy redact -',
    "waystation tools --servers ~/mcp.json",
    "waystation secrets set WIKI_TOKEN",
    "waystation secrets list",
    "waystation secrets forget WIKI_TOKEN",
    'waystation keys make "Ada Lovelace" --role approve',
    "waystation keys make desk --role assistant",
    "waystation keys list",
    "waystation store migrate",
    "waystation store reseal",
    "waystation read report.pdf costs.xlsx notes/",
    "waystation read notes/ --redacted",
    "waystation read notes/ --json",
)
ON_A_PLATFORM = (
    'waystation submit "What did we promise customers about retention?" --docs contracts/ --docs faq.html',
    "waystation list",
    "waystation report TASK",
    "waystation report TASK --output report.pdf",
    "waystation report TASK --output report.html",
    "waystation report TASK --output report.docx",
    "waystation report TASK --format json",
    "waystation report TASK --version 1",
    "waystation report TASK --brief",
    "waystation show TASK --verbose",
    "waystation cost TASK",
    "waystation spending --since 6d --by task",
    "waystation spending --since 2026-11-01",
    "waystation session list",
    'waystation submit --session S "And what about timeouts?"',
    'waystation submit "…" --docs …',
    'waystation submit "…" --docs … --verbose',
    "waystation submit \"…\" --docs … --budget '$1.00'",
    'waystation submit "…" --docs … --top-up 50kx3',
    'waystation submit "…" --docs … --answer-by 07:00 --then partial',
    'waystation submit "…" --docs … --answer-by 7d --then wait',
    'waystation submit "What do the modules say about thread safety, and about timeouts?" --docs /usr/lib/python3.11',
    'waystation submit "…" --docs papers --procedures how/',
    'waystation submit "…" --docs papers --skills skills/',
    'waystation submit "…" --docs papers --servers none',
    "waystation fork TASK --from writing",
    "waystation fork TASK --from writing --instructions new.md",
    'waystation memory search "what the bar carries"',
    'waystation memory search "…" --session S --kind document',
    "waystation memory eval --conversation C.jsonl --queries Q.jsonl --tokens 1000,2000",
    "waystation memory status",
    "waystation eval questions.yaml --budget 300k --least facts=0.9 --least clean=1 --html eval.html",
    "waystation eval questions.yaml --keep before.json",
    "waystation eval questions.yaml --window 8k --keep after.json",
    "waystation eval --compare before.json after.json",
    "waystation diff EARLIER LATER",
    "waystation documents TASK",
    "waystation rewind TASK --agent research-1 --to m5",
    'waystation privacy find "Ada Lovelace"',
    "waystation privacy find - --type PERSON",
    'waystation privacy find "Ada Lovelace" --near',
    'waystation privacy erase "Ada Lovelace" --yes',
    'waystation privacy erase "Ada Lovelace" --also ada@example.com --yes',
    "waystation schedule add \"…\" --cron '0 7 * * 4' --session S --name again",
    "waystation memory forget --before 2026-11-01",
    "waystation memory forget --session S",
    "waystation memory forget --session S --everything",
    "waystation schedule add \"…\" --docs contracts/ --cron '0 7 * * 1' --budget 200k --session weekly --name weekly "
    "--monthly 1M",
    "waystation schedule add \"…\" --docs contracts/ --cron '0 7 * * 2' --servers none --skills skills/ --name guided",
    "waystation schedule add \"…\" --docs contracts/ --cron '0 7 * * 3' --mode soft --name unattended",
    "waystation schedule list",
    "waystation schedule run weekly",
    'waystation schedule pause weekly --note "on leave"',
    "waystation schedule resume weekly",
    "waystation schedule remove weekly",
)
"""In an order in which each finds what it is about; TASK is over."""
WHILE_IT_WAITS = (
    "waystation approvals",
    "waystation approvals TASK",
    "waystation approvals TASK --verbose",
    'waystation message TASK "Leave out everything before 2020"',
    "waystation documents TASK --docs contracts/",
    "waystation documents TASK --docs notes",
)
"""TASK waits for money."""
ANSWERS = (
    'waystation approve TASK --add 50k --note "go on"',
    "waystation approve TASK --all --add 50k",
    "waystation deny TASK --finish partial",
    "waystation deliver TASK",
)
"""Each for a TASK of its own that waits for money."""
AFTER_IT = ("waystation memory reindex",)
"""When the platform is down: embedded memory is opened by one process."""
ELSEWHERE: Mapping[str, str] = {
    "waystation up": "the fixture",
    "waystation serve": "test_serve, with what its page asks by curl",
    "waystation mcp --root ~/papers": "test_assistants, over both transports",
    "waystation down": "the fixture",
    "waystation down; waystation up": "the fixture",
    "waystation demo": "the wheel's test",
    "waystation doctor": "test_plugins, and test_doctor_model",
    "waystation doctor --model NAME": "test_doctor_model",
    "waystation eval packages": "the measurements in benchmarks/README.md; its facts: test_question_sets",
    "waystation transcript TASK --agent research-1.2": "test_subagents: a task with subagents",
    'waystation submit "…" --docs papers --servers wiki': "test_tool_server_selection: a worker with such a server",
    'waystation submit "…" --docs papers --servers default,wiki': "test_mcp_server_selection",
    "waystation approve TASK --request research-1-2": "test_mcp_tools: a call that asks",
    'waystation deny TASK --request research-1-2 --note "use the copy in the wiki"': "test_mcp_tools",
    "waystation keys revoke 3f2a91d0": "test_attacks_api_keys",
    "waystation serve --listen 0.0.0.0:8520 --name waystation.example.org": "test_attacks_api_keys",
    "waystation deploy status": "test_live_deployments",
    "waystation deploy use 0.3.0": "test_live_deployments",
    "waystation deploy rollback": "test_live_deployments",
    "waystation worker --queues agents": "test_team_deployment",
    "waystation worker --queues workflows": "test_team_deployment",
    "waystation worker --queues agents,context": "test_team_deployment",
    "waystation codec-server --listen 127.0.0.1:8081 --origin https://cloud.temporal.io --encode": "the codec's tests",
}
MEANT = {
    "forget --session S": "forget --session S --yes",  # a person at a terminal is asked
    "--docs …": "--docs contracts/",
    '"…"': '"Which harbour was closed by silt?"',
    "/usr/lib/python3.11": "notes",
    "report.pdf costs.xlsx notes/": "contracts/retention.md faq.html notes/",
}
ONE_OF_SEVERAL = {0, 2}
"""Where several agents of the task asked, the command lists them, and wants one named."""
EXIT_CODES = {
    'waystation approve TASK --add 50k --note "go on"': ONE_OF_SEVERAL,
    "waystation deny TASK --finish partial": ONE_OF_SEVERAL,
    'waystation privacy find "Ada Lovelace"': {0, 1},  # 1: found nowhere
    'waystation privacy find "Ada Lovelace" --near': {0, 1},
    "waystation privacy find - --type PERSON": {0, 1},
    'waystation privacy erase "Ada Lovelace" --also ada@example.com --yes': {0, 1},
    "waystation eval questions.yaml --budget 300k --least facts=0.9 --least clean=1 --html eval.html": {0, 1},
    "waystation memory forget --before 2026-11-01": {2},  # no task is as old
}

FILES = {
    "contracts/retention.md": "# Retention\n\nWe promised customers 90 days.\n\nAda Lovelace signed it.\n",
    "faq.html": "<html><body><h1>FAQ</h1><p>Data is kept for 90 days.</p></body></html>",
    "notes/bar.md": "# Bar\n\nThe bar carries 4 metres at low water. Nordvik was closed by silt in 1871.\n",
    "papers/silt.md": "# Silt\n\nNordvik was closed by silt in 1871.\n",
    "how/check.md": "# Checking\n\nCheck every figure twice.\n",
    "skills/tides/SKILL.md": "---\nname: tides\ndescription: How to read tide tables.\n---\nRead them twice.\n",
    "new.md": "Say it in three sentences.\n",
    "mcp.json": '{"mcpServers": {}}',
    "C.jsonl": '{"id": "m1", "role": "user", "text": "We meet in Oslo."}\n',
    "Q.jsonl": '{"id": "q1", "text": "Where do we meet?", "relevant": ["m1"]}\n',
    "questions.yaml": (
        "name: harbours\ndocuments: [notes]\nquestions:\n  - id: silt\n    question: When was Nordvik closed?\n"
        '    facts: ["1871"]\n    never: ["1971"]\n'
    ),
    "request.json": '{"model": "m", "max_tokens": 1000, "messages": [{"role": "user", "content": "Hello"}]}',
}
COMMAND = re.compile(r"(?:echo .*\| *)?waystation [a-z]")
OF_A_RUN = re.compile(r"task-[0-9a-f]{8}")
"""What a page shows of a run that was: its commands name a task."""


def documented() -> dict[str, str]:
    """Every command of a page, without its comment, and the page; what a page prints of a real run is no command."""
    found: dict[str, str] = {}
    for page in PAGES:
        for kind, block in FENCE.findall((ROOT / page).read_text(encoding="utf-8")):
            if kind:  # a session with its output, JSON, Python: the tests of these pages run them
                continue
            for line in block.splitlines():
                command = re.sub(r"\s+#.*", "", line).removeprefix(".venv/bin/").strip()
                if re.match(r"(?:echo .*\| *)?waystation [a-z]", command) and not re.search(
                    r"task-[0-9a-f]{8}", command
                ):
                    found[command] = page
    return found


def test_every_command_that_is_documented_is_run() -> None:
    run = {*WITHOUT_A_PLATFORM, *ON_A_PLATFORM, *WHILE_IT_WAITS, *ANSWERS, *AFTER_IT, *ELSEWHERE}
    assert {command: page for command, page in documented().items() if command not in run} == {}
    assert run - documented().keys() == set()


class Reader:
    """Somebody who types commands from the pages, in a folder that has what they name."""

    def __init__(self, shell: Shell, folder: Path) -> None:
        self.shell = shell
        self.folder = folder

    def types(self, command: str, task: str = "") -> str:
        """Run it; returns what it printed."""
        line = command.replace("TASK", task).replace("EARLIER", task).replace("LATER", task)
        for written, meant in MEANT.items():
            line = line.replace(written, meant)
        done = subprocess.run(
            ["bash", "-c", line],
            cwd=self.folder,
            env=self.shell.environment
            | {"PATH": f"{self.folder / 'bin'}:{os.environ['PATH']}", "HOME": str(self.folder)},
            input="Ada Lovelace",
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        assert done.returncode in EXIT_CODES.get(command, {0}), f"{line}\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}"
        return done.stdout


def reader(tmp_path: Path, shell: Shell) -> Reader:
    folder = tmp_path / "work"
    program = f'#!/bin/sh\nPYTHONPATH="{ROOT}" exec "{sys.executable}" -m waystation.cli.main "$@"\n'
    for name, text in {**FILES, "bin/waystation": program}.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    (folder / "bin/waystation").chmod(0o755)
    return Reader(shell, folder)


@contextmanager
def offline_platform(home: Path, **more: str) -> Generator[Shell]:
    shell = Shell(home, {"WAYSTATION_OFFLINE": "true", **more})
    assert shell.run("up").returncode == 0
    try:
        yield shell
    finally:
        shell.run("down")


@pytest.mark.timeout(300)
def test_the_commands_that_need_no_platform_do_what_the_pages_say(tmp_path: Path) -> None:
    person = reader(tmp_path, Shell(tmp_path / "home", {"WAYSTATION_OFFLINE": "true"}))
    for command in WITHOUT_A_PLATFORM:
        person.types(command)


@pytest.mark.timeout(1200)
def test_the_commands_for_tasks_do_what_the_pages_say(tmp_path: Path) -> None:
    with offline_platform(tmp_path / "home") as shell:
        person = reader(tmp_path, shell)
        waiting = [
            str(
                shell.run_json("submit", QUESTION, "--docs", documents, "--budget", TIGHT_BUDGET, "--detach")["task_id"]
            )
            for documents in [str(write_survey_documents(tmp_path / "survey"))] * len(ANSWERS)
        ]
        person.types(f"{ON_A_PLATFORM[0]} --session S")
        task = ""
        for command in ON_A_PLATFORM:
            person.types(command, task)
            task = task or json.loads(shell.run("list", "--json").stdout)[0]["task_id"]
        for asking, answer in zip(waiting, ANSWERS, strict=True):
            shell.wait_for_task(asking, lambda seen: seen.phase == "paused", 600, "the pause")
            for command in WHILE_IT_WAITS if asking == waiting[0] else ():
                person.types(command, asking)
            person.types(answer, asking)
    for command in AFTER_IT:
        person.types(command)


@pytest.mark.timeout(600)
def test_the_example_program_submits_approves_and_prints_the_report(tmp_path: Path) -> None:
    def example(*arguments: str) -> subprocess.CompletedProcess[str]:
        program = [sys.executable, str(ROOT / "examples" / "submit_and_approve.py"), *arguments]
        return subprocess.run(program, cwd=ROOT, env=shell.environment, capture_output=True, text=True, check=False)

    with offline_platform(tmp_path / "home", WAYSTATION_PAGES="true") as shell:
        bare = example()
        assert (bare.returncode, bare.stdout) == (2, "")
        assert "usage:" in bare.stderr
        done = example(QUESTION, str(write_survey_documents(tmp_path / "survey")), "--budget", TIGHT_BUDGET)
    assert done.returncode == 0, done.stderr
    assert "approved by the example" in done.stdout
    assert "## About this report" in done.stdout
