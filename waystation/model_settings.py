"""Settings of the models: which of them works, by role and by purpose, and how hard."""

from typing import Literal

from pydantic import Field
from pydantic_settings import BaseSettings

from waystation.domain.models import AGENT_MODEL, CONDENSE_MODEL
from waystation.domain.plan import Role
from waystation.domain.thinking import Effort, Spoken, Thinking, Working
from waystation.written import WrittenEffort, WrittenThinking

AS_PROVIDED: Literal["default"] = "default"
"""As an effort or a way of thinking: nothing is asked of the model, also where another role has a setting."""

LONGEST_SILENCE = 1_200
"""Seconds. A leg may take half an hour in all."""


class ModelSettings(BaseSettings):
    """Read together with all others: see `waystation.settings.Settings`."""

    agent_model: str = Field(default=AGENT_MODEL, description="Model of the agents.")
    model_research: str | None = Field(
        default=None, min_length=1, description="Model of the agents that research; by default agent_model."
    )
    model_analysis: str | None = Field(
        default=None, min_length=1, description="Model of the agents that analyse; by default agent_model."
    )
    model_writing: str | None = Field(
        default=None, min_length=1, description="Model of the agents that write; by default agent_model."
    )
    condense_model: str = Field(default=CONDENSE_MODEL, description="Model that writes the summaries.")
    plan_model: str = Field(default=CONDENSE_MODEL, description="Model that plans a task.")
    review_model: str | None = Field(
        default=None, min_length=1, description="Model that reviews reports; by default the one that plans."
    )

    effort: WrittenEffort = Field(
        default=AS_PROVIDED,
        description="How hard agents work: low, medium, high, xhigh, max, or default for what the provider does.",
    )
    effort_research: WrittenEffort | None = Field(default=None, description="The same for agents that research.")
    effort_analysis: WrittenEffort | None = Field(default=None, description="The same for agents that analyse.")
    effort_writing: WrittenEffort | None = Field(default=None, description="The same for agents that write.")

    thinking: WrittenThinking = Field(
        default=AS_PROVIDED,
        description="How agents think: adaptive, off, at most so many tokens a reply (1,024 or more, like 4k), or "
        "default for what the provider does.",
    )
    thinking_research: WrittenThinking | None = Field(default=None, description="The same for agents that research.")
    thinking_analysis: WrittenThinking | None = Field(default=None, description="The same for agents that analyse.")
    thinking_writing: WrittenThinking | None = Field(default=None, description="The same for agents that write.")

    model_patience: float = Field(
        default=180,
        ge=1,
        le=LONGEST_SILENCE,
        description="Seconds without a first byte after which a call of a model is given up, and tried again.",
    )
    model_patience_thinking: float = Field(
        default=600, ge=1, le=LONGEST_SILENCE, description="The same where the model is asked to think first."
    )
    model_stream_patience: float = Field(
        default=90,
        ge=1,
        le=LONGEST_SILENCE,
        description="Seconds without a piece, or a ping, after which a reply that has begun is given up.",
    )

    def working(self, role: Role) -> Working:
        """The model of a role and how hard it works, as it is set for the role or for all."""
        model, effort, thinking = self._own(role)
        return Working(
            model=model or self.agent_model,
            effort=_effort(effort or self.effort),
            thinking=_thinking(thinking or self.thinking),
        )

    def spoken(self, role: Role) -> Spoken:
        """Which settings say how hard a role works, and how it thinks: its own, or those for all."""
        _, effort, thinking = self._own(role)
        return Spoken(
            effort="effort" if effort is None else f"effort_{role}",
            thinking="thinking" if thinking is None else f"thinking_{role}",
        )

    def _own(self, role: Role) -> tuple[str | None, WrittenEffort | None, WrittenThinking | None]:
        """What is set for the role alone."""
        match role:
            case "research":
                return self.model_research, self.effort_research, self.thinking_research
            case "analysis":
                return self.model_analysis, self.effort_analysis, self.thinking_analysis
            case "writing":
                return self.model_writing, self.effort_writing, self.thinking_writing


def _effort(written: WrittenEffort) -> Effort | None:
    return None if written == AS_PROVIDED else written


def _thinking(written: WrittenThinking) -> Thinking | None:
    return None if written == AS_PROVIDED else written
