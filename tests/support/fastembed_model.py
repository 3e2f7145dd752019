"""Files of a model that fastembed knows, with a vocabulary of a few words and vectors derived from their hashes."""

import json
import struct
from pathlib import Path

from tokenizers import Tokenizer, models, pre_tokenizers

from tests.support.embeddings_server import embed_words

STATIC = "minishlab/potion-base-8M"
DIMENSION = 256
WORDS = ("[PAD]", "[UNK]", "the", "a", "wheel", "audit", "red", "beacon")


def write_static_model(folder: Path) -> None:
    """Write a static model: one vector per word, in safetensors format."""
    tokenizer = Tokenizer(models.WordLevel({word: place for place, word in enumerate(WORDS)}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "config.json").write_text("{}")
    numbers = [number for word in WORDS for number in embed_words(word, DIMENSION)]
    packed = struct.pack(f"<{len(numbers)}f", *numbers)
    tensor = {"dtype": "F32", "shape": [len(WORDS), DIMENSION], "data_offsets": [0, len(packed)]}
    header = json.dumps({"embeddings": tensor}).encode()
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(header)) + header + packed)
