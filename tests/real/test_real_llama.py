"""A trained language model: the states of transformers' LlamaModel, and what they say."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from comparison import MOST_DIFFERENCE, load
from made import STAMP, made
from numpy.typing import NDArray
from of_gguf import smollm2
from samples import LONG, TEXTS

from checkpoints import write_modules
from vecmill.config import Settings
from vecmill.embedder import Embedder

pytestmark = [pytest.mark.real, pytest.mark.large]

SOME = [*TEXTS[:6], LONG, *TEXTS[-3:]]


@pytest.fixture(scope="module")
def folder() -> Path:
    """SmolLM2 without modules.json."""
    return made("SmolLM2-135M-Instruct", smollm2)


@pytest.fixture(scope="module")
def embedder(folder: Path) -> Iterator[Embedder]:
    """The model, loaded."""
    with Embedder(str(folder), settings=Settings(task="embed")) as one:
        yield one


def test_states(folder: Path, embedder: Embedder) -> None:
    """The state of each token is that of LlamaModel."""
    import torch
    from transformers import AutoModel, AutoTokenizer

    tokenizer, model = (
        AutoTokenizer.from_pretrained(str(folder)),
        AutoModel.from_pretrained(str(folder), dtype="float32"),
    )
    for text, states in zip(SOME, embedder.token_vectors(SOME), strict=True):
        with torch.no_grad():
            wanted = model(**tokenizer(text, return_tensors="pt")).last_hidden_state[0].numpy()
        assert_near(states, wanted)


def test_last_token(folder: Path, embedder: Embedder, tmp_path: Path) -> None:
    """A language model's vector is the state of the last token, as in sentence-transformers without a chat template.

    With one it would read each text as a message, where a folder has no modules.json; vecmill reads texts as they are.
    """
    without = link(folder, tmp_path, {STAMP, "chat_template.jinja"})
    assert_near(embedder.embed(SOME), load(without).encode(SOME, convert_to_numpy=True))


def test_mean(folder: Path, tmp_path: Path) -> None:
    """It is the mean of all states where modules.json says so, and there no chat template counts."""
    write_modules(link(folder, tmp_path, {STAMP}), normalize=False)
    with Embedder(str(tmp_path)) as embedder:
        assert_near(embedder.embed(SOME), load(tmp_path).encode(SOME, convert_to_numpy=True))


def test_what_it_says(folder: Path, embedder: Embedder) -> None:
    """After "The capital of France is" comes "Paris": so the weights were read as they were meant."""
    from safetensors.numpy import load_file
    from tokenizers import Tokenizer

    (states,) = embedder.token_vectors(["The capital of France is"])
    words = load_file(folder / "model.safetensors")["model.embed_tokens.weight"].astype(np.float32)
    likeliest = int((words @ states[-1]).argmax())
    assert Tokenizer.from_file(str(folder / "tokenizer.json")).decode([likeliest]) == " Paris"


def link(folder: Path, target: Path, without: set[str]) -> Path:
    """The checkpoint again in another folder, less some files."""
    for path in folder.iterdir():
        if path.name not in without:
            (target / path.name).symlink_to(path)
    return target


def assert_near(rows: NDArray[np.float32], wanted: NDArray[np.float32]) -> None:
    """States agree within the tolerance times the largest number in them, which is about 50."""
    assert rows.shape == wanted.shape
    assert float(np.abs(rows - wanted).max()) <= MOST_DIFFERENCE * float(np.abs(wanted).max())
