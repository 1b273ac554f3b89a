"""Static models give the numbers of sentence-transformers' StaticEmbedding, in the layouts of both libraries."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tokenizers
from comparison import TEXTS, ours

from static_checkpoints import TABLE, write_model2vec, write_static

pytestmark = pytest.mark.reference

LONG = [*TEXTS, "the cat sat on the mat " * 300]
RNG = np.random.default_rng(6)
TENSORS: dict[str, dict[str, Any]] = {
    "plain": {"embedding.weight": TABLE},
    "half": {"embedding.weight": TABLE.astype(np.float16)},
    "model2vec": {"embeddings": TABLE},
    "weights": {"embeddings": TABLE, "weights": RNG.random(len(TABLE)).astype(np.float32)},
    "mapping": {"embeddings": TABLE[:9], "mapping": RNG.integers(0, 9, len(TABLE))},
    "bytes": {
        "embeddings": RNG.integers(-127, 128, (9, 16)).astype(np.int8),
        "mapping": RNG.integers(0, 9, len(TABLE)),
        "weights": RNG.random(len(TABLE)).astype(np.float32),
    },
}


def assert_equal(folder: Path, prompt_name: str | None = None) -> None:
    """Rows differ by no more than 1e-6 of their size from the library's in float64; its float32 ones differ by more."""
    from sentence_transformers import SentenceTransformer

    model = SentenceTransformer(str(folder), device="cpu").double()
    wanted = model.encode(LONG, prompt_name=prompt_name, convert_to_numpy=True)
    size = max(1.0, float(np.abs(wanted).max()))
    assert ours(folder, LONG, prompt_name=prompt_name) == pytest.approx(wanted, abs=1e-6 * size)


@pytest.mark.parametrize("modules", [(), ("Normalize",)])
@pytest.mark.parametrize("kind", TENSORS)
def test_tables(tmp_path: Path, kind: str, modules: tuple[str, ...]) -> None:
    """Every kind of table, normalised or not, on texts of 1 to 1,800 tokens."""
    assert_equal(write_static(tmp_path, tensors=TENSORS[kind], modules=modules, truncation=None))


@pytest.mark.parametrize("place", ["0_StaticEmbedding", ""])
@pytest.mark.parametrize("truncation", [None, 3, 40])
def test_layouts(tmp_path: Path, place: str, truncation: int | None) -> None:
    """The table in a folder and in the root, with a tokenizer that cuts and with one that does not."""
    assert_equal(write_static(tmp_path, place=place, truncation=truncation))


def test_a_prompt(tmp_path: Path) -> None:
    """A prompt goes before the text."""
    assert_equal(write_static(tmp_path), prompt_name="query")


def test_saved_by_sentence_transformers(tmp_path: Path) -> None:
    """What the library itself saves."""
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import Normalize, StaticEmbedding

    native = tokenizers.Tokenizer.from_file(str(write_static(tmp_path / "a") / "0_StaticEmbedding/tokenizer.json"))
    modules = [StaticEmbedding(native, embedding_weights=TABLE), Normalize()]
    SentenceTransformer(modules=modules, device="cpu").save(str(tmp_path / "b"))
    assert_equal(tmp_path / "b")


@pytest.mark.parametrize("normalize", [False, True])
@pytest.mark.parametrize("kind", [kind for kind in TENSORS if "embeddings" in TENSORS[kind]])
def test_model2vec(tmp_path: Path, kind: str, *, normalize: bool) -> None:
    """Without modules.json: what model2vec 0.10 computes (StaticModel._encode_batch), written in numpy."""
    tensors = TENSORS[kind]
    folder = write_model2vec(tmp_path, tensors=tensors, model_type="model2vec", normalize=normalize)
    native = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
    unknown = native.token_to_id("[UNK]")
    texts = [text for text in LONG if text != "?"]
    wanted = []
    for encoding in native.encode_batch(texts, add_special_tokens=False):
        ids = [number for number in encoding.ids if number != unknown]
        vectors = tensors["embeddings"][tensors["mapping"][ids] if "mapping" in tensors else ids].astype(np.float64)
        if "weights" in tensors:
            vectors = vectors * tensors["weights"][ids][:, None]
        wanted.append(vectors.mean(axis=0))
    rows = np.stack(wanted)
    if normalize:
        rows /= np.linalg.norm(rows, axis=1, keepdims=True) + 1e-32
    assert ours(folder, texts) == pytest.approx(rows, abs=1e-6 * max(1.0, float(np.abs(rows).max())))
