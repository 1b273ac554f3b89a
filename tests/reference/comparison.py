"""One checkpoint, two programs: the rows of vecmill beside those of sentence-transformers on torch."""

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vecmill.config import Settings
from vecmill.embedder import Embedder

LEAST_COSINE = 0.999999
MOST_DIFFERENCE = 1e-4

TEXTS = [
    "cat",
    "The cat sat on the mat.",
    "Hello, WORLD! xyzzy plugh, time day people",
    "dogs running, cats walking",
    "a b c d e f g h i j k l m n o p q r s t u v w x y z " * 2,
    "Café naïve, 中文 and unknown ünits",
    "query: the way of the year",
    "passage: the dog runs",
    "?",
]
"""Of 3 to 40 tokens in the tiny vocabulary; one is longer than every limit, some share a length."""


def ours(folder: Path, texts: list[str] = TEXTS, *, prompt_name: str | None = None) -> NDArray[np.float32]:
    """Rows of vecmill, float32 [texts, dims]."""
    with Embedder(str(folder), settings=Settings(threads=1)) as embedder:
        return embedder.embed(texts, prompt_name=prompt_name)


def theirs(folder: Path, texts: list[str] = TEXTS, *, prompt_name: str | None = None) -> NDArray[np.float32]:
    """Rows of sentence-transformers with weights and arithmetic in float32, float32 [texts, dims]."""
    rows: NDArray[np.float32] = load(folder).encode(texts, prompt_name=prompt_name, convert_to_numpy=True)
    return rows


def load(folder: Path) -> Any:
    """The checkpoint in sentence-transformers."""
    import torch
    from sentence_transformers import SentenceTransformer

    torch.set_num_threads(1)  # on models this small more threads only wait for each other
    return SentenceTransformer(str(folder), device="cpu", model_kwargs={"dtype": "float32"})


def assert_same(folder: Path, texts: list[str] = TEXTS, *, prompt_name: str | None = None) -> None:
    """Both programs give the same rows, for the texts in one batch and for each alone."""
    wanted = theirs(folder, texts, prompt_name=prompt_name)
    assert_close(ours(folder, texts, prompt_name=prompt_name), wanted)
    assert_close(np.concatenate([ours(folder, [text], prompt_name=prompt_name) for text in texts[:3]]), wanted[:3])


def assert_close(rows: NDArray[np.float32], wanted: NDArray[np.float32]) -> None:
    """Rows agree within the project's tolerance."""
    assert rows.shape == wanted.shape
    lengths = np.linalg.norm(rows, axis=1) * np.linalg.norm(wanted, axis=1)
    assert float(np.abs(rows - wanted).max()) <= MOST_DIFFERENCE
    assert float((np.sum(rows * wanted, axis=1) / lengths).min()) >= LEAST_COSINE
