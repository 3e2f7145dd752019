"""The folder of the embedded memory: a shard of the engine, and beside it what it was made with.

    embedder.json    which embedder, and which shard counts
    shard…           one; while a memory is made or written anew, two

That file is replaced in one step, so that a crash at any time leaves a memory that is whole.
"""

import shutil
import uuid
from pathlib import Path

import qdrant_edge as qe

from waystation.adapters.qdrant.points import CREATED, KEYWORDS, MEANING, WORDS, Embedding, MadeWith
from waystation.private_files import close_to_others, own_folder

FIRST = "shard"
_RECORD = "embedder.json"


def open_shard(path: Path, embedding: Embedding) -> qe.EdgeShard:
    """The shard that counts, made with its folder where there is none. Raises OtherEmbedder."""
    if not path.exists():
        _create_folder(path, embedding)
    close_to_others(path)
    made = made_with(path)
    made.check(embedding, f"the memory in {path}")
    return load(path / (made.kept_in or FIRST))


def open_draft(path: Path, embedding: Embedding) -> qe.EdgeShard:
    """The shard that is to count: one beside that which does, as a run before this has left it, or new.

    The shard that counts itself, where it was made with this embedding.
    """
    if not path.exists() or made_with(path).embedding == embedding:
        return open_shard(path, embedding)
    place = path / _draft_name(embedding)
    if not place.exists():
        aside = path / f".{uuid.uuid4().hex}"
        create_shard(aside, embedding)
        aside.rename(place)
    return load(place)


def publish_draft(path: Path, embedding: Embedding) -> None:
    """The draft counts from now on; every other shard goes. May be done again."""
    made = made_with(path)
    if made.embedding != embedding:
        made = MadeWith(**embedding.model_dump(), kept_in=_draft_name(embedding))
    publish(path, made)


def new_place(path: Path) -> Path:
    """Where a shard can be made beside the one that counts."""
    return path / f"{FIRST}-{uuid.uuid4().hex}"


def publish(path: Path, made: MadeWith) -> None:
    """The shard that it names counts from now on; every other one goes. May be done again."""
    record = path / f".{_RECORD}"
    record.write_text(made.model_dump_json())
    record.replace(path / _RECORD)
    for entry in path.iterdir():
        if entry.name not in {_RECORD, made.kept_in or FIRST}:
            shutil.rmtree(entry)


def create_shard(place: Path, embedding: Embedding) -> None:
    """One without points."""
    vectors = (
        {} if embedding.dimension is None else {MEANING: qe.EdgeVectorParams(embedding.dimension, qe.Distance.Cosine)}
    )
    sparse = {WORDS: qe.EdgeSparseVectorParams(modifier=qe.Modifier.Idf)}
    shard = qe.EdgeShard.create(str(place), qe.EdgeConfig(vectors=vectors, sparse_vectors=sparse))
    _index(shard)
    shard.close()


def load(place: Path) -> qe.EdgeShard:
    """The shard in this folder, open."""
    shard = qe.EdgeShard.load(str(place))
    _index(shard)
    return shard


def made_with(path: Path) -> MadeWith:
    """What the memory in this folder was made with. Raises OSError, ValidationError."""
    return MadeWith.model_validate_json((path / _RECORD).read_bytes())


def _draft_name(embedding: Embedding) -> str:
    return f"{FIRST}-{embedding.digest}"


def _create_folder(path: Path, embedding: Embedding) -> None:
    """Made aside and then renamed, so that a crash leaves no half of it, and of two processes one is first."""
    draft = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
    own_folder(draft)
    create_shard(draft / FIRST, embedding)
    (draft / _RECORD).write_text(MadeWith(**embedding.model_dump()).model_dump_json())
    try:
        draft.rename(path)
    except OSError:
        shutil.rmtree(draft)
        if not path.exists():
            raise


def _index(shard: qe.EdgeShard) -> None:
    """By everything that queries filter by; what an earlier release made has fewer indexes."""
    keywords = {field: qe.KeywordIndexParams(is_tenant=field == KEYWORDS[0]) for field in KEYWORDS}
    there = shard.info().payload_schema
    for field, index in {**keywords, CREATED: qe.DatetimeIndexParams()}.items():
        if field not in there:
            shard.update(qe.UpdateOperation.create_field_index(field, index))
