"""Trained static models: what their own libraries compute, written in numpy."""

import json

import numpy as np
import pytest
from as_they_are import tokenlearn, wordllama
from made import made
from safetensors.numpy import load_file
from samples import LONG, SENTENCES
from tokenizers import Tokenizer

from vecmill.embedder import Embedder

pytestmark = pytest.mark.real

TEXTS = [*SENTENCES, LONG]
CLOSE = 1e-6
"""Of the size of the numbers, which is about 1."""


def test_model2vec() -> None:
    """Normalised means of the rows that a text's tokens map to, each times its weight, unknown tokens left out."""
    folder = made("tokenlearn-static", tokenlearn)
    tensors = load_file(folder / "model.safetensors")
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    unknown = json.loads(tokenizer.to_str())["model"]["unk_id"]
    table, places, weights = (tensors[name] for name in ("embeddings", "mapping", "weights"))
    wanted = []
    for encoding in tokenizer.encode_batch(TEXTS, add_special_tokens=False):
        ids = [token for token in encoding.ids if token != unknown]
        wanted.append((table[places[ids]].astype(np.float64) * weights[ids, None]).mean(axis=0))
    rows = np.stack(wanted)
    with Embedder(str(folder)) as embedder:
        found = embedder.embed(TEXTS)
    assert found == pytest.approx(rows / np.linalg.norm(rows, axis=1, keepdims=True), abs=CLOSE)


def test_wordllama() -> None:
    """Means of the rows of all tokens (WordLlamaInference.embed of wordllama 0.4)."""
    folder = made("wordllama", wordllama)
    place = folder / "0_StaticEmbedding"
    table = load_file(place / "model.safetensors")["embedding.weight"].astype(np.float64)
    encodings = Tokenizer.from_file(str(place / "tokenizer.json")).encode_batch(TEXTS, add_special_tokens=False)
    with Embedder(str(folder)) as embedder:
        found = embedder.embed(TEXTS)
    assert found == pytest.approx(np.stack([table[one.ids].mean(axis=0) for one in encodings]), abs=CLOSE)
