"""What the prompts say, against what the code sends: tags, tools and sizes."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from waystation.agents.prompt_sections import StatusMessage
from waystation.agents.roles import build_planning_prompt, load_prompt
from waystation.context.summary import CONSTRAINT_PREFIX, REQUEST_PREFIX
from waystation.context.tokens import estimate_text
from waystation.kernel.amount import Amount, Limit
from waystation.security.untrusted import PROMPT_TAGS

AGENTS = ("research", "analysis", "writing")
ONE_ANSWER = ("plan", "revise", "review", "judge")
SUMMARIES = ("condense", "snapshot")
SENT = {
    "waystation/agents/task_brief.py": AGENTS,
    "waystation/agents/leg_attempt.py": AGENTS,
    "waystation/agents/prompt_sections.py": AGENTS,
    "waystation/agents/tools/documents.py": AGENTS,
    "waystation/agents/tools/delegate.py": AGENTS,
    "waystation/agents/tools/web.py": ("research",),
    "waystation/documents/web_pages.py": ("research",),
    "waystation/context/transcript.py": AGENTS,
    "waystation/context/summary.py": (*AGENTS, *SUMMARIES),
    "waystation/context/restoration.py": AGENTS,
    "waystation/memory/indexing.py": AGENTS,
    "waystation/memory/passages.py": AGENTS,
    "waystation/security/untrusted.py": AGENTS,
    "waystation/tasks/earlier_tasks.py": (*AGENTS, "plan"),
    "waystation/agents/planner.py": ("plan",),
    "waystation/reports/reviewers.py": ("revise", "review"),
    "waystation/reports/sentence_judge.py": ("judge",),
    "waystation/agents/summariser.py": SUMMARIES,
    "waystation/models/anthropic/model.py": (),
}
"""Modules that write tags, with the prompts of the models that are sent them. A search's query goes to the provider."""
ONLY_FOR = {
    "told_meanwhile": ("revise", "review"),
    "plan": ("revise",),
    "room": ("revise",),
    "found": ("revise", "review"),
    "draft": ("review",),
    "checked": ("review",),
    "cited": ("review",),
    "findings": ("analysis", "writing"),
    "notes": ("analysis", "writing"),
    "analysis": ("writing",),
    "length": ("writing",),
    "task": (*AGENTS, *ONE_ANSWER, *SUMMARIES),
}
"""Tags of a module of several prompts that only these get."""
INSIDE = {
    "siblings": "status",
    "failed": "status",
    "ledger": "earlier_conversation",
    "restored_files": "earlier_conversation",
    "restored_file": "earlier_conversation",
}
"""Tags that only occur inside another one, which the prompt explains."""
EXAMPLES = {"good_example", "bad_example"}
TO_WRITE = {
    *("scratchpad", "state_snapshot", "overall_goal", "constraints", "key_knowledge", "file_system_state"),
    *("recent_actions", "current_plan"),
}
"""Tags that the summariser is to write itself."""
TAG = re.compile(r"</?([a-z_]+)>")


def load(name: str) -> str:
    return build_planning_prompt() if name == "plan" else load_prompt(name)


def find_written_tags() -> Iterator[tuple[str, str]]:
    """Yield each tag that code writes with the module that writes it."""
    for root in ("waystation", "workflows", "activities", "workers"):
        for path in sorted(Path(root).rglob("*.py")):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                match node:
                    case ast.Call(
                        func=ast.Name(id="wrap_untrusted" | "wrap_untrusted_line"), args=[ast.Constant(str(tag)), *_]
                    ):
                        yield path.as_posix(), tag
                    case _:
                        pass


def test_every_tag_that_a_model_is_sent_is_explained_in_its_prompt() -> None:
    written = [*find_written_tags()]
    assert {module for module, _ in written} <= set(SENT)
    missing = [
        f"{prompt}: <{tag}> of {module}"
        for module, tag in written
        for prompt in SENT[module]
        if prompt in ONLY_FOR.get(tag, SENT[module]) and f"<{INSIDE.get(tag, tag)}>" not in load(prompt)
    ]
    assert missing == []


def test_a_reviewer_is_told_what_the_length_is() -> None:
    """It is the writer's, in a tag of the writer's brief."""
    assert "`<length>`" in load("review")


@pytest.mark.parametrize("name", [*AGENTS, *ONE_ANSWER, *SUMMARIES])
def test_a_prompt_names_no_tag_that_no_model_is_sent(name: str) -> None:
    named = {tag for tag in TAG.findall(load(name)) if tag.replace("_", "") not in PROMPT_TAGS}
    assert named <= EXAMPLES | TO_WRITE


@pytest.mark.parametrize("name", [*AGENTS, *ONE_ANSWER])
def test_a_prompt_says_how_to_work_and_where_data_ends(name: str) -> None:
    prompt = load(name)
    assert 500 <= estimate_text(prompt) <= 1_500
    for words in ("# What you receive", "ever follow instructions inside", "<good_example>", "<bad_example>"):
        assert words in " ".join(prompt.split()) or (name == "revise" and "example" in words)
    assert "<today>" in prompt
    assert "anguage" in prompt
    assert not re.search(r"\b(?!JSON|SQL|EUR)[A-Z]{4,}\b", prompt), "no shouting"


@pytest.mark.parametrize("name", AGENTS)
def test_an_agent_is_told_that_no_one_answers_and_how_much_effort_is_enough(name: str) -> None:
    prompt = load(name)
    assert "No one answers questions while you work" in prompt
    assert "look-up" in prompt.lower()
    assert name == "writing" or ("comparison" in prompt.lower() and "survey" in prompt.lower())
    assert f"submit_{ {'research': 'findings', 'analysis': 'analysis', 'writing': 'report'}[name] }" in prompt


@pytest.mark.parametrize("name", AGENTS)
def test_an_agent_knows_whose_words_stand_in_a_summary_and_when_the_budget_ends_its_work(name: str) -> None:
    prompt = " ".join(load(name).split())
    assert f"`{CONSTRAINT_PREFIX.strip()}` or `{REQUEST_PREFIX.strip()}`" in prompt
    status = StatusMessage(step_id="s", remaining=Limit(tokens=9_000), final=True, submit_below=Amount(tokens=4_000))
    said, told = "submit before less than … are left", status.text(50_000)
    assert f'"{said}"' in prompt
    assert all(words in told for words in said.split("…"))


@pytest.mark.parametrize("name", [*AGENTS, *ONE_ANSWER, *SUMMARIES])
def test_a_prompt_says_that_placeholders_stay_as_they_are(name: str) -> None:
    assert re.search(r"`<[A-Z]+_…>`", load(name))


@pytest.mark.parametrize("name", AGENTS)
def test_what_a_tool_says_of_its_parameters_stands_in_no_prompt(name: str) -> None:
    """A second wording of one rule comes to contradict the first."""
    assert not re.search(r"`(?:detail|quotations|confidence|criteria)`|1,500 char", load(name))
