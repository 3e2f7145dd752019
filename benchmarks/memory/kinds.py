"""Measures recall for every kind of content, with and without redaction, compared with the plain baseline in the same
run.

Dialogues between people are read from the folder that the variable `DIALOGUES` names, in the format of `waystation
memory eval` (`NAME.conversation.jsonl` and `NAME.questions.jsonl`) or in that of LoCoMo (`NAME.json`), the public set
of ten conversations, whose licence does not allow redistribution. Generated content comes from seeds.
"""

import asyncio
import json
import os
import random
import re
from collections.abc import Iterator, Sequence
from contextlib import AsyncExitStack, aclosing
from itertools import chain
from pathlib import Path
from statistics import fmean
from tempfile import TemporaryDirectory
from typing import NamedTuple

from benchmarks.budgets.tables import print_table
from benchmarks.memory.conversations import FACTS, FIRMS, PARTS, PROJECTS, REMARKS, build_dialogue
from benchmarks.memory.indexing import RUN, cut_windows, find_redacted_words
from benchmarks.memory.plain import PlainMemory
from waystation.agents.auditor import EvalMessage, EvalQuestion, NoOpRedactor
from waystation.context.transcript import Message, Text, ToolResult, ToolUse
from waystation.memory.embedders.local import E5Embedder, WordLlamaEmbedder
from waystation.memory.indexing import MemoryRecall, embed_passages
from waystation.memory.passage_builder import map_tool_names, render_message
from waystation.memory.ports import Embedder
from waystation.memory.qdrant.edge import QdrantEdgeMemory
from waystation.plugins.redaction.redactor import PresidioRedactor
from waystation.privacy.policy import TextDestination, replace_placeholders_with_types
from waystation.privacy.ports import Redactor
from waystation.runtime.redaction_setup import open_evaluation_vault

SEED = 7
"""Sizes and weights were chosen on 1 to 3, and 4 to 6 are those of `recall`."""
BUDGETS = (1_000, 2_000)
SMALL = (250, 500)
"""Of conversations that are short themselves."""
STEPS = (2, 1)
"""Of the baseline: turns from the beginning of a window to that of the next."""
KEY = bytes(32)
FOLDER, EMBEDDER = "DIALOGUES", "EMBEDDER"
"""Variables: where dialogues are; `e5` for that embedder in the place of the bundled one, for ours and the baseline."""
ANSWERED = (1, 2, 3, 4)
"""Categories of LoCoMo's questions."""
CHINESE_SITES = ("虹桥仓库", "滨江码头", "东山隧道", "南湖学校", "西岭水库", "北城医院", "青溪图书馆", "金沙车站")
CHINESE_PARTS = ("屋顶", "南门", "暖气", "电梯", "排水管", "发电机", "防火门", "地基", "停车场", "通风系统")
CHINESE_FIRMS = ("华建公司", "远望工程", "利民材料", "天工集团", "长风供应商", "海宁设备")
CHINESE_REMARKS = (
    "今天{site}下了一整天的雨,外面的工作都停了。",
    "{part}的照片已经放进共享文件夹了。",
    "周四的会议改到下午,请大家准时参加。",
    "我再去看看{site},{part}还是让我有点担心。",
)
CHINESE_FACTS = (
    ("{site}的{part}交给{firm}来做。", "谁负责{site}的{part}?"),
    ("{site}的{part}预算是{number}元。", "{site}的{part}要花多少钱?"),
    ("{site}的{part}要在{month}月{day}日之前完工。", "{site}的{part}什么时候做完?"),
)


class EvidenceQuestion(NamedTuple):
    """A question, and by message the words that have to be there."""

    text: str
    evidence: tuple[tuple[str, str], ...]


class ConversationKind(NamedTuple):
    """One conversation of a kind."""

    name: str
    messages: Sequence[Message]
    sought: Sequence[EvidenceQuestion]
    budgets: tuple[int, ...] = BUDGETS


def _message(place: int, text: str) -> Message:
    return Message(id=f"m{place}", role="user", blocks=(Text(text=text),))


def generate_kinds() -> Iterator[ConversationKind]:
    """Talk and logs of one conversation; a long document that was read; talk in Chinese."""
    talk = build_dialogue(SEED)
    of_tools = {one.id for one in talk.messages if any(isinstance(block, ToolResult) for block in one.blocks)}
    for name, wanted in (("talk, generated", False), ("tool results and logs", True)):
        asked = [one for one in talk.questions if (one.message in of_tools) is wanted]
        yield ConversationKind(
            name, talk.messages, [EvidenceQuestion(one.text, ((one.message, one.evidence),)) for one in asked]
        )
    yield _document(random.Random(SEED))
    yield _chinese(random.Random(SEED))


def _document(chance: random.Random) -> ConversationKind:
    """Paragraphs of three sentences, of which one of two has a fact; read by a tool in one piece."""
    paragraphs, sought = list[str](), list[EvidenceQuestion]()
    for project in PROJECTS:
        for part in PARTS:
            place = {"project": project, "part": part, "value": chance.choice(FIRMS)}
            around = [one.format(**place) for one in chance.sample(REMARKS, 2)]
            if chance.random() < 0.5:
                fact = FACTS["firm"]
                around.insert(1, told := chance.choice(fact.told).format(**place))
                sought.append(EvidenceQuestion(chance.choice(fact.sought).format(**place), (("m2", told),)))
            paragraphs.append(" ".join(around))
    call = ToolUse(id="c1", name="read_document", input={"name": "handbook"})
    result = ToolResult(tool_use_id=call.id, content="\n\n".join(paragraphs))
    asked, answered = (
        Message(id="m1", role="assistant", blocks=(call,)),
        Message(id="m2", role="user", blocks=(result,)),
    )
    return ConversationKind("document", (asked, answered), sought)


def _chinese(chance: random.Random) -> ConversationKind:
    messages, sought = list[Message](), list[EvidenceQuestion]()
    pairs = [(site, part) for site in CHINESE_SITES for part in CHINESE_PARTS]
    chance.shuffle(pairs)
    for site, part in pairs:
        place = {
            "site": site,
            "part": part,
            "firm": chance.choice(CHINESE_FIRMS),
            "number": chance.randrange(900, 90_000),
        }
        place |= {"month": chance.randrange(1, 13), "day": chance.randrange(1, 29)}
        for remark in chance.sample(CHINESE_REMARKS, 2):
            other = {"site": chance.choice(CHINESE_SITES), "part": chance.choice(CHINESE_PARTS)}
            messages.append(_message(len(messages), remark.format(**other)))
        told, asked = (text.format(**place) for text in chance.choice(CHINESE_FACTS))
        messages.append(_message(len(messages), told))
        sought.append(EvidenceQuestion(asked, ((messages[-1].id, told),)))
    return ConversationKind("talk, Chinese", messages, sought)


def load_people_dialogues(folder: Path) -> Iterator[ConversationKind]:
    """The dialogues there. The whole of each relevant turn has to be found."""
    for path in sorted(folder.glob("*.conversation.jsonl")):
        name = path.name.partition(".")[0]
        said = [EvalMessage.model_validate_json(line) for line in path.read_text(encoding="utf-8").splitlines() if line]
        lines = path.with_name(f"{name}.questions.jsonl").read_text(encoding="utf-8").splitlines()
        texts = {one.id: one.text for one in said}
        asked = [EvalQuestion.model_validate_json(line) for line in lines if line]
        sought = [EvidenceQuestion(one.text, tuple((key, texts[key]) for key in one.relevant)) for one in asked]
        yield ConversationKind(f"people, {name}", [one.transcript_message for one in said], sought, (*SMALL, *BUDGETS))


def load_public_dialogues(folder: Path) -> Iterator[ConversationKind]:
    """Conversations there in the form of LoCoMo: sessions, turns with their ids, and questions with their evidence.

    Questions that nothing answers (its fifth category) are left out, and pictures: what they show is not said.
    """
    for path in sorted(folder.glob("*.json")):
        told = json.loads(path.read_text(encoding="utf-8"))
        sessions = [said for name, said in told.items() if re.fullmatch(r"session_\d+", name)]
        turns = {turn["dia_id"]: turn for session in sessions for turn in session if turn.get("text")}
        said = {key: " ".join(turn["text"].split()) for key, turn in turns.items()}
        messages = [
            EvalMessage(id=key, speaker=turn["speaker"], text=said[key]).transcript_message
            for key, turn in turns.items()
        ]
        asked = [one for one in told["qa"] if one["category"] in ANSWERED]
        evidence = [dict.fromkeys(re.findall(r"D\d+:\d+", " ".join(one["evidence"]))) for one in asked]
        sought = [
            EvidenceQuestion(one["question"], tuple((key, said[key]) for key in keys if key in said))
            for one, keys in zip(asked, evidence, strict=True)
        ]
        yield ConversationKind(f"LoCoMo, {path.stem}", messages, [one for one in sought if one.evidence])


class RecallResult(NamedTuple):
    """Recall of a question by budget, of each in their order; of the baseline by its step, too."""

    ours: dict[int, list[float]]
    plain: dict[tuple[int, int], list[float]]


async def measure_recall(kind: ConversationKind, redacting: Redactor, embedder: Embedder) -> RecallResult:
    """The share of each question's evidence, by the product and by the plain thing."""
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory()))
        vault = await stack.enter_async_context(open_evaluation_vault(folder / "vault.db", KEY))
        memory = await QdrantEdgeMemory.open(folder / "memory", embedder.name, embedder.dimension)
        await stack.enter_async_context(aclosing(memory))
        redactor = vault.wrap_redactor(redacting, RUN.session)
        recollection = MemoryRecall(memory, embedder, redactor, vault=vault.vault, shows_names=True)
        return await _answered(kind, recollection, memory)


async def _answered(kind: ConversationKind, recollection: MemoryRecall, memory: QdrantEdgeMemory) -> RecallResult:
    redactor, embedder = recollection.redactor, recollection.embedder
    names = map_tool_names(kind.messages)
    rendered = {message.id: render_message(message, names) for message in kind.messages}
    redacted = dict(
        zip(rendered, await redactor.redact([*rendered.values()], TextDestination.COMPRESSED, RUN.tenant), strict=True)
    )
    texts = {key: one.text for key, one in redacted.items()}
    plain = {
        step: await PlainMemory.from_texts(
            [replace_placeholders_with_types(text) for text in texts.values()], embedder, step
        )
        for step in STEPS
    }
    await memory.upsert(await embed_passages(embedder, cut_windows(kind.messages, texts)))
    ours = {tokens: list[float]() for tokens in kind.budgets}
    theirs = {(step, tokens): list[float]() for step in STEPS for tokens in kind.budgets}
    for one in kind.sought:
        wanted = [find_redacted_words(words, rendered[key], redacted[key]) for key, words in one.evidence]
        (asked,) = await redactor.redact([one.text], TextDestination.COMPRESSED, RUN.tenant)
        for tokens in kind.budgets:
            found = await recollection.find(RUN, one.text, tokens)
            ours[tokens].append(_share([words for _, words in one.evidence], [excerpt.text for excerpt in found]))
            for step in STEPS:
                shown = await plain[step].search(replace_placeholders_with_types(asked.text), tokens)
                theirs[step, tokens].append(_share([replace_placeholders_with_types(words) for words in wanted], shown))
    return RecallResult(ours, theirs)


def _share(wanted: Sequence[str], shown: Sequence[str]) -> float:
    return fmean(any(words in text for text in shown) for words in wanted)


async def _all(kinds: Sequence[ConversationKind]) -> dict[tuple[str, str], RecallResult]:
    embedder = E5Embedder.create() if os.environ.get(EMBEDDER) == "e5" else WordLlamaEmbedder()
    presidio = PresidioRedactor(KEY)
    try:
        redactors: tuple[tuple[str, Redactor], ...] = (("no", NoOpRedactor()), ("yes", presidio))
        return {
            (kind.name, name): await measure_recall(kind, one, embedder) for kind in kinds for name, one in redactors
        }
    finally:
        presidio.close()


def _row(name: str, redacted: str, answers: Sequence[RecallResult]) -> tuple[object, ...]:
    """Over all questions of all of them."""
    asked = sum(len(one.ours[BUDGETS[0]]) for one in answers)
    return name, redacted, asked, *(_cell(answers, tokens) for tokens in (*SMALL, *BUDGETS))


def _cell(answers: Sequence[RecallResult], tokens: int) -> str:
    if any(tokens not in one.ours for one in answers):
        return "-"
    ways = [[one.ours[tokens] for one in answers], *([one.plain[step, tokens] for one in answers] for step in STEPS)]
    return " / ".join(f"{fmean(chain.from_iterable(way)):.3f}" for way in ways)


def _gain(answered: RecallResult) -> float:
    """Over the better baseline, at the smaller budget that all kinds have."""
    return fmean(answered.ours[BUDGETS[0]]) - max(fmean(answered.plain[step, BUDGETS[0]]) for step in STEPS)


def prove() -> None:
    """Print the table: in each cell the product's recall, then the baseline's, by its steps."""
    folder = os.environ.get(FOLDER, "")
    between = [*load_people_dialogues(Path(folder)), *load_public_dialogues(Path(folder))] if folder else []
    kinds = [*between, *generate_kinds()]
    found = asyncio.run(_all(kinds))
    rows = [_row(kind.name, redacted, [found[kind.name, redacted]]) for kind in kinds for redacted in ("no", "yes")]
    for redacted in ("no", "yes"):
        groups = dict.fromkeys(kind.name.partition(",")[0] for kind in between)
        for group in groups:
            of_group = [found[kind.name, redacted] for kind in between if kind.name.startswith(group)]
            rows.append(_row(f"all of {group}", redacted, of_group))
        worst = min(kinds, key=lambda kind: _gain(found[kind.name, redacted]))
        rows.append(_row(f"least gain: {worst.name}", redacted, [found[worst.name, redacted]]))
    head = ("kind", "redacted", "questions", *(f"{n:,} tokens" for n in (*SMALL, *BUDGETS)))
    print_table("Recall, ours / windows of three turns, two turns on / one turn on", head, rows)
    if not folder:
        print(f"\nNo dialogues between people: {FOLDER} names no folder.")
