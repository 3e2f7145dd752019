"""Who writes the summary of a conversation in a file: the person who gives one, or the model that the settings name."""

from collections.abc import Sequence
from contextlib import AsyncExitStack, aclosing
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from waystation.adapters.clock import utc_now
from waystation.agents.condensing import CondensingModel
from waystation.agents.conversation import Ask, NoSummary, Verdict
from waystation.agents.metered import MeteredModel
from waystation.agents.summariser import Middle, Summariser
from waystation.cli.render import counted
from waystation.domain.amount import Limit
from waystation.domain.compaction.gate import check_summary
from waystation.domain.compaction.ladder import Summarise
from waystation.domain.compaction.policy import Policy
from waystation.domain.compaction.request import CompactionRequest
from waystation.domain.errors import ModelError
from waystation.domain.leg import AgentTerms, RunRef
from waystation.domain.privacy import Place
from waystation.domain.redaction import Redacted
from waystation.domain.transcript import Transcript
from waystation.ports import Redactor
from waystation.settings import Settings


class Verbatim:
    """A redactor for texts that go nowhere: it replaces nothing."""

    async def redact(self, texts: Sequence[str], place: Place, tenant: str) -> tuple[Redacted, ...]:  # noqa: ARG002
        """See `Redactor`."""
        return tuple(Redacted(text=text) for text in texts)


def given_summary(text: str, policy: Policy) -> Ask:
    """The text is the summary. Nothing leaves this machine, so nothing is redacted."""

    async def ask(transcript: Transcript, rung: Summarise) -> Verdict:
        middle, _ = await Middle.redacted(rung.middle, transcript, Verbatim(), "")
        return check_summary(text, middle.replaced(rung, policy))

    return ask


@dataclass(frozen=True)
class ModelledSummary:
    """The model that the settings name, asked as it is for agents: redacted, and in parts where it is much to read.

    Its calls are written down in a store that is thrown away afterwards.
    """

    settings: Settings
    model: str
    policy: Policy
    notes: list[str]
    """Gets what a person should know of the call."""

    async def __call__(self, transcript: Transcript, rung: Summarise) -> Verdict:
        """Ask once. Raises RedactionFailed: then nothing went anywhere."""
        # They take seconds to load, and most of these commands need no model.
        from waystation.keyring import first_key  # noqa: PLC0415
        from waystation.redactors import redactor_of  # noqa: PLC0415

        redactor = redactor_of(self.settings, first_key(self.settings))
        try:
            middle, spans = await Middle.redacted(rung.middle, transcript, redactor, self.settings.tenant)
            self.notes.extend(middle.notes)
            self.notes.append(
                f"{self.model} was asked for the summary; before, {counted(spans, 'span')} were replaced."
            )
            with TemporaryDirectory(prefix="waystation-") as folder:
                return await self._summary(Path(folder), redactor, rung, middle)
        except ModelError as error:
            return NoSummary(reason=str(error))
        finally:
            redactor.close()

    async def _summary(self, folder: Path, redactor: Redactor, rung: Summarise, middle: Middle) -> Verdict:
        from temporalio.common import MetricMeter  # noqa: PLC0415

        from waystation.adapters.store.sql_store import SqlStore  # noqa: PLC0415
        from waystation.adapters.temporal.metrics import TemporalMeter  # noqa: PLC0415
        from workers.models import model_switch  # noqa: PLC0415

        async with AsyncExitStack() as stack:
            url = f"sqlite+aiosqlite:///{folder / 'calls.db'}"
            store = await stack.enter_async_context(aclosing(await SqlStore.open(url, utc_now)))
            model = model_switch(self.settings)
            stack.push_async_callback(model.aclose)
            request = self._request(await store.store_id(), rung)
            await store.open_run(request.run)
            fence = await store.take_fence(request.run.run_id)
            metered = MeteredModel(model, store, utc_now, TemporalMeter(MetricMeter.noop))
            wishes = await redactor.redact([self.policy.instructions], Place.WISH, self.settings.tenant)
            policy = self.policy.model_copy(update={"instructions": wishes[0].text})
            asked = CondensingModel(metered, redactor, request, fence, policy)
            result = await Summariser(asked, await store.load(request.run.run_id, request.run.reader)).summarise(
                rung, middle
            )
        return result.verdict or NoSummary(reason=" ".join(result.notes))

    def _request(self, store_id: str, rung: Summarise) -> CompactionRequest:
        return CompactionRequest(
            run=RunRef(
                store_id=store_id,
                tenant=self.settings.tenant,
                session="",
                task_id="file",
                step_id=rung.compaction_id,
                role="research",
            ),
            terms=AgentTerms(
                model=self.model,
                condense_model=self.model,
                window=self.policy.window,
                trigger=self.policy.trigger,
                target=self.policy.target,
            ),
            limit=Limit(),
            request_tokens=rung.tokens_before,
            known_records=0,
        )
