"""What tells the roles apart: a prompt and a set of tools."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from waystation.agents.recollection import Recollection
from waystation.agents.tools.box import Toolbox
from waystation.agents.tools.expand import Expand
from waystation.agents.tools.list_documents import ListDocuments
from waystation.agents.tools.pin_message import PinMessage
from waystation.agents.tools.read_document import ReadDocument
from waystation.agents.tools.read_findings import ReadFindings
from waystation.agents.tools.read_notes import ReadNotes
from waystation.agents.tools.read_stored import ReadStored
from waystation.agents.tools.recall import Recall
from waystation.agents.tools.search_documents import SearchDocuments
from waystation.agents.tools.submit_analysis import SubmitAnalysis
from waystation.agents.tools.submit_findings import SubmitFindings
from waystation.agents.tools.submit_report import SubmitReport
from waystation.agents.tools.take_note import TakeNote
from waystation.agents.tools.tool import Tool
from waystation.agents.tools.write_section import WriteSection
from waystation.domain.compaction.tokens import fixed_tokens
from waystation.domain.plan import AgentRole
from waystation.ports import DocumentSearch, DocumentStore, Redactor, TaskStore, TranscriptStore, Vault, WorkStore


@cache
def prompt(name: str) -> str:
    """A prompt file of this package: `research`, `analysis`, `writing`, `plan`, `condense` or `snapshot`."""
    return files("waystation.agents").joinpath("prompts", f"{name}.md").read_text(encoding="utf-8")


@dataclass(frozen=True)
class Desk:
    """Everything that the agents' tools work with."""

    transcripts: TranscriptStore
    documents: DocumentStore
    search: DocumentSearch
    work: WorkStore
    tasks: TaskStore
    recollection: Recollection
    redactor: Redactor
    vault: Vault | None = None
    """Where tools find what placeholders in names of documents stand for."""

    def toolbox(self, role: AgentRole) -> Toolbox:
        """The tools of a role, in a fixed order."""
        return Toolbox(
            tools=self._tools(role),
            transcripts=self.transcripts,
            texts=self.documents,
            redactor=self.redactor,
            vault=self.vault,
        )

    def fixed_tokens(self, role: AgentRole) -> int:
        """Estimated tokens that every request of a role has: its system prompt and its tools."""
        tools_json = json.dumps([spec.model_dump(mode="json") for spec in self.toolbox(role).specs])
        return fixed_tokens(prompt(role), tools_json)

    def _tools(self, role: AgentRole) -> Sequence[Tool]:
        shared: list[Tool] = [
            ListDocuments(self.documents),
            SearchDocuments(self.search),
            ReadDocument(self.documents),
            Recall(self.recollection),
            Expand(self.transcripts),
            ReadStored(self.documents),
            PinMessage(),
        ]
        notes: list[Tool] = [TakeNote(self.documents, self.work), ReadNotes(self.work)]
        findings = ReadFindings(self.tasks, self.work)
        match role:
            case "planning":
                return []
            case "research":
                return [*shared, *notes, SubmitFindings(self.work)]
            case "analysis":
                return [findings, *shared, *notes, SubmitAnalysis(self.work)]
            case "writing":
                return [findings, *shared, WriteSection(self.work), SubmitReport(self.work)]
