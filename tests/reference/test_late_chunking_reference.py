"""Late chunking beside the token embeddings of sentence-transformers."""

from pathlib import Path

import numpy as np
import pytest
from comparison import assert_close, load

from checkpoints import write_bert, write_modules
from encoders import write_encoder
from vecmill.embedder import Embedder

pytestmark = pytest.mark.reference

CHUNKS = ["The cat sat on the mat.", "It was a dog", "hello!", "A day, world"]


@pytest.mark.parametrize("prompt_name", [None, "query"])
@pytest.mark.parametrize("family", ["bert", "mpnet", "xlm-roberta"])
def test_chunks_are_means_of_token_embeddings(tmp_path: Path, family: str, prompt_name: str | None) -> None:
    """A chunk's vector is the mean of what `output_value="token_embeddings"` gives for its tokens in the document."""
    folder = write_bert(tmp_path) if family == "bert" else write_encoder(tmp_path, family)
    write_modules(folder, prompts={"prompts": {"query": "the cat "}})
    text, prompt = " ".join(CHUNKS), "the cat " if prompt_name else ""
    model = load(folder)
    states = model.encode(text, prompt_name=prompt_name, output_value="token_embeddings").numpy()
    ends = np.cumsum([len(chunk) + 1 for chunk in CHUNKS]) - 1
    encoding = model.tokenizer(prompt + text, return_offsets_mapping=True, return_special_tokens_mask=True)
    owners = np.full(len(states), -1)
    for place, ((_, end), special) in enumerate(
        zip(encoding["offset_mapping"], encoding["special_tokens_mask"], strict=True)
    ):
        owners[place] = -1 if special else np.searchsorted(ends, max(0, end - len(prompt)), side="left")
    owners[0], owners[-1] = 0, len(CHUNKS) - 1
    wanted = np.stack([states[owners == number].mean(axis=0) for number in range(len(CHUNKS))])
    with Embedder(str(folder)) as embedder:
        rows = embedder.embed_document(CHUNKS, prompt_name=prompt_name).rows
    assert_close(rows, wanted / np.linalg.norm(wanted, axis=1, keepdims=True))
