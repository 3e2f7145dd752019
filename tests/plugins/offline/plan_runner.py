"""A small team for tests of the offline model: fake documents and tools, and steps carried out over the real client."""

import json
import re
from collections.abc import Iterator, Sequence

from pydantic import JsonValue

from tests.support.scopes import make_task_scope
from waystation.agents.deliverables import Analysis, ReportDraft, ReportSection, ResearchFindings
from waystation.context.transcript import Message, ToolResult, ToolUse, build_user_message
from waystation.documents.documents import Document
from waystation.documents.search import HybridDocumentSearch
from waystation.kernel.scopes import ReadScope, TaskScope
from waystation.kernel.text import format_count
from waystation.kernel.usage import Usage
from waystation.models.ports import ChatModel, ModelRequest, StopReason, ToolSpec
from waystation.models.profiles import OFFLINE_MODEL
from waystation.planning.plan import Plan, Step

MAX_TURNS = 60
TOOL_NAMES = {
    "research": "search_documents read_document list_documents recall take_note read_notes submit_findings",
    "analysis": "read_findings search_documents read_document take_note read_notes submit_analysis",
    "writing": "read_findings search_documents read_document write_section submit_report",
}


class ToolRefusedError(Exception):
    pass


class InMemoryTask:
    """Documents, notes, findings and the report of one task, behind the agents' tools."""

    def __init__(self, texts: dict[str, str]) -> None:
        self.texts = texts
        self.search = HybridDocumentSearch(self)
        self.notes: dict[str, list[str]] = {}
        self.handed_in: dict[str, ResearchFindings | Analysis] = {}
        self.report = ReportDraft()

    async def put_text(self, text: str, owner: TaskScope) -> str:
        raise NotImplementedError

    async def get_text(self, blob: str, reader: ReadScope) -> str:
        return self.texts[blob]

    async def list_documents(self, task_id: str, reader: ReadScope) -> tuple[Document, ...]:
        return tuple(
            Document(name=name, blob=name, lines=len(text.splitlines()), characters=len(text))
            for name, text in self.texts.items()
        )

    def render_task_brief(self, question: str, step: Step | None, plan: Plan | None) -> str:
        names = "\n".join(f"- {name} ({len(text.splitlines())} lines)" for name, text in self.texts.items())
        parts = [
            "<task>",
            f"<question>\n{question}\n</question>",
            f'<documents count="{len(self.texts)}">\n{names}\n</documents>',
        ]
        if step is not None and plan is not None:
            parts.append(f'<step id="{step.id}" role="{step.role}" title="{step.title}">\n{step.goal}\n</step>')
            needs = [
                f"- step {need} ({plan.get_step(need).title}): {self._count(need)}read with read_findings"
                for need in step.needs
            ]
            parts.append("\n".join(["<needs>", *needs, "</needs>"]))
        return "\n".join([*parts, "</task>"])

    def _count(self, step_id: str) -> str:
        done = self.handed_in.get(step_id)
        return f"{len(done.findings)} findings, " if isinstance(done, ResearchFindings) else ""

    async def run_tool(self, step: Step, call: ToolUse) -> ToolResult:
        try:
            return ToolResult(tool_use_id=call.id, content=await self._run(step, call.name, call.input))
        except ToolRefusedError as refusal:
            return ToolResult(tool_use_id=call.id, content=str(refusal), is_error=True)

    async def _run(self, step: Step, tool: str, given: dict[str, JsonValue]) -> str:
        match tool, given:
            case "search_documents", {"query": str(query), "limit": int(limit)}:
                first, last = given.get("first_document", 1), given.get("last_document", len(self.texts))
                assert isinstance(first, int)
                assert isinstance(last, int)
                found = await self.search.search(make_task_scope("t"), query, limit, range(first, last + 1))
                blocks = [f"[{hit.name}:{hit.first_line}-{hit.last_line}]\n{hit.text}\n" for hit in found]
                return "\n".join(blocks)[:12_000] or "No passage matches. Try other words, or list_documents."
            case "read_document", {"name": str(name), "first_line": int(first), "last_line": int(last)}:
                return self._read(name, first, last)
            case "take_note", {"text": str(text), "document": str(name), "first_line": int(a), "last_line": int(b)}:
                kept = self.notes.setdefault(step.id, [])
                kept.append(f"{len(kept) + 1}. [{name}:{a}-{b}] {text}")
                return f"note {len(kept)} kept"
            case "read_notes", {"first": int(first), "count": int(count)}:
                kept = self.notes.get(step.id, [])[first - 1 : first - 1 + count]
                return "\n".join(kept) or f"You have no notes from number {first} on."
            case _:
                return self._findings_or_end(step, tool, given)

    def _read(self, name: str, first: int, last: int) -> str:
        if name not in self.texts or name.startswith("locked"):
            raise ToolRefusedError(f"There is no document {name!r}.")
        lines = self.texts[name].splitlines()
        shown = lines[first - 1 : min(last, first + 79)]
        numbered = [f"{number}| {line}" for number, line in enumerate(shown, first)]
        return "\n".join([f"{name}, lines {first}-{first + len(shown) - 1} of {len(lines)}", *numbered])

    def _findings_or_end(self, step: Step, tool: str, given: dict[str, JsonValue]) -> str:
        match tool, given:
            case "read_findings", {"step": str(other), "first": int(first), "count": int(count)}:
                lines = [f"{number}. {line}" for number, line in enumerate(self._lines(other), 1)]
                shown = lines[first - 1 : first - 1 + count]
                if not shown:
                    return f"Step {other} has {format_count(len(lines), 'finding')}; none has number {first} or higher."
                return "\n".join([f"findings {first}-{first + len(shown) - 1} of {len(lines)} of step {other}", *shown])
            case "write_section", _:
                section = ReportSection.model_validate(given)
                self.report = self.report.with_section(section)
                number = [known.heading for known in self.report.sections].index(section.heading) + 1
                return f"section {number} kept: {section.heading}"
            case "submit_findings", _:
                self.handed_in[step.id] = ResearchFindings.model_validate(given)
            case "submit_analysis", _:
                self.handed_in[step.id] = Analysis.model_validate(given)
            case "submit_report", {"title": str(title), "summary": str(summary)}:
                self.report = self.report.replace(title=title, summary=summary)
            case _:
                raise AssertionError(f"{tool} with {sorted(given)}")
        return "handed in"

    def _lines(self, step_id: str) -> list[str]:
        match self.handed_in[step_id]:
            case ResearchFindings() as done:
                claims = [" ".join([finding.claim, *finding.citations]) for finding in done.findings]
                return [*claims, *(f"open: {question}" for question in done.open_questions)]
            case Analysis() as done:
                conclusions = [" ".join([f"conclusion: {c.claim}", *c.citations]) for c in done.conclusions]
                return [*conclusions, *(f"gap: {gap}" for gap in done.gaps)]

    def find_misquotations(self) -> list[str]:
        """Every quotation of the report that does not stand in the lines that it cites."""
        text = "\n".join([self.report.summary, *(section.markdown for section in self.report.sections)])
        wrong: list[str] = []
        for line in text.splitlines():
            for quote, cited in re.findall(r'"([^"]+)"((?: \[[^\]]+:\d+-\d+\])+)', line):
                for name, first, last in re.findall(r"\[([^\]]+):(\d+)-(\d+)\]", cited):
                    stands = " ".join(" ".join(self.texts[name].splitlines()[int(first) - 1 : int(last)]).split())
                    wrong += [f"{quote} [{name}:{first}-{last}]"] if quote not in stands else []
        return wrong


class OfflinePlanRunner:
    """Runs the steps of a plan, each with a conversation of its own that may be condensed before given turns."""

    def __init__(self, model: ChatModel, world: InMemoryTask, condense_before: Sequence[int] = ()) -> None:
        self.model, self.world, self.condense_before = model, world, condense_before
        self.turns: dict[str, int] = {}
        self.status = ""
        self.max_output = 8_000
        self.keep = 2
        self.usage: list[Usage] = []

    async def run_task(self, question: str, plan: Plan | None = None) -> Plan:
        plan = plan or await self.make_plan(question)
        for step in plan.steps:
            await self.run_step(question, plan, step)
        return plan

    async def make_plan(self, question: str) -> Plan:
        request = ModelRequest(
            model=OFFLINE_MODEL,
            system="Plan.",
            messages=(build_user_message("m1", self.world.render_task_brief(question, None, None)),),
            tools=(make_tool_spec("submit_plan"),),
            max_output=2_000,
            require_tool="submit_plan",
        )
        reply = await self.model.complete(request)
        (call,) = (block for block in reply.blocks if isinstance(block, ToolUse))
        return Plan.model_validate(call.input)

    async def run_step(self, question: str, plan: Plan, step: Step) -> None:
        messages = [build_user_message("m1", self.world.render_task_brief(question, step, plan))]
        tools = tuple(make_tool_spec(name) for name in TOOL_NAMES[step.role].split())
        for turn in range(1, MAX_TURNS):
            if turn in self.condense_before and len(messages) > 3:
                messages = [
                    messages[0],
                    await self.summarise(messages[1 : len(messages) - self.keep], turn),
                    *messages[len(messages) - self.keep :],
                ]
            reply = await self.model.complete(
                ModelRequest(
                    model=OFFLINE_MODEL,
                    system="Work.",
                    messages=(
                        *messages,
                        build_user_message(f"s{turn}", self.status or "<status>budget left no limit</status>"),
                    ),
                    tools=tools,
                    max_output=self.max_output,
                )
            )
            assert reply.stop is StopReason.TOOL_USE
            self.usage.append(reply.usage)
            said = Message(id=f"a{turn}", role="assistant", blocks=reply.blocks)
            results = [await self.world.run_tool(step, call) for call in said.tool_uses]
            messages += [said, Message(id=f"u{turn}", role="user", blocks=tuple(results))]
            self.turns[step.id] = turn
            if any(call.name.startswith("submit_") for call in said.tool_uses) and not results[-1].is_error:
                return
        raise AssertionError(f"{step.id} did not hand in within {MAX_TURNS} turns")

    async def summarise(self, middle: Sequence[Message], turn: int) -> Message:
        text = "\n".join(render_messages(middle))
        request = ModelRequest(
            model=OFFLINE_MODEL,
            system="You condense the middle of an agent's conversation.",
            messages=(
                build_user_message(
                    "c", f"<conversation>\n{text}\n</conversation>\nWrite a summary of 400 to 900 tokens."
                ),
            ),
            max_output=2_000,
        )
        (block,) = (await self.model.complete(request)).blocks
        assert block.type == "text"
        return build_user_message(f"s{turn}", f"<earlier_conversation>\n{block.text}\n</earlier_conversation>")


def make_tool_spec(name: str) -> ToolSpec:
    return ToolSpec(name=name, description=name.replace("_", " "), input_schema={"type": "object"})


def render_messages(messages: Sequence[Message]) -> Iterator[str]:
    calls = {call.id: call.name for message in messages for call in message.tool_uses}
    for message in messages:
        for block in message.blocks:
            match block:
                case ToolUse():
                    yield f"[{message.id} assistant calls {block.name}] {json.dumps(block.input)}"
                case ToolResult():
                    yield f"[{message.id} result of {calls[block.tool_use_id]}] {block.content}"
                case _:
                    yield f"[{message.id} {message.role}] {block.text if block.type == 'text' else ''}"
