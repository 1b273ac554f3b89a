"""Classifiers and rerankers give the scores of transformers' and sentence-transformers' classes."""

from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from comparison import MOST_DIFFERENCE
from headed import CLASSIFIERS, DECODERS, PAIRS, TEXTS, logits, save

from vecmill.config import Settings
from vecmill.core import Pair
from vecmill.embedder import Embedder

pytestmark = pytest.mark.reference

SEQUENCE = "SequenceClassification"


def assert_same_scores(folder: Path, texts: list[Any]) -> None:
    """Raw scores of all texts together, and of each alone, are those of transformers."""
    wanted = np.stack(logits(folder, SEQUENCE, texts))
    given = [Pair(*text) if isinstance(text, tuple) else text for text in texts]
    with Embedder(str(folder), settings=Settings(threads=1)) as embedder:
        together = embedder.classify(given, raw_scores=True)
        alone = np.concatenate([embedder.classify([one], raw_scores=True) for one in given])
    assert np.array_equal(together, alone)
    assert float(np.abs(together - wanted).max()) <= MOST_DIFFERENCE
    assert float(np.abs(wanted - wanted[0]).max()) > 0.01  # the texts are told apart


@pytest.mark.parametrize("family", CLASSIFIERS)
def test_texts(tmp_path: Path, family: str) -> None:
    """Three labels of single texts, of one token to more than the limit."""
    assert_same_scores(save(tmp_path, family, SEQUENCE, num_labels=3), TEXTS)


@pytest.mark.parametrize("family", CLASSIFIERS)
def test_pairs(tmp_path: Path, family: str) -> None:
    """One label of two texts, whose second is cut to the limit; types of tokens where the family has them."""
    assert_same_scores(save(tmp_path, family, SEQUENCE, num_labels=1), PAIRS)


@pytest.mark.parametrize("family", ["bert", "roberta", "modernbert"])
def test_rerank(tmp_path: Path, family: str) -> None:
    """CrossEncoder of sentence-transformers and `rerank` agree, with and without the sigmoid."""
    from sentence_transformers import CrossEncoder

    folder = save(tmp_path, family, SEQUENCE, num_labels=1)
    query, documents = "the cat", [second for _, second in PAIRS]
    theirs = CrossEncoder(str(folder), device="cpu", max_length=40)
    wanted = theirs.predict([(query, document) for document in documents])
    with Embedder(str(folder), settings=Settings(threads=1)) as embedder:
        assert embedder.rerank(query, documents) == pytest.approx(wanted, abs=MOST_DIFFERENCE)
        raw = embedder.rerank(query, documents, raw_scores=True)
    assert 1 / (1 + np.exp(-raw)) == pytest.approx(wanted, abs=MOST_DIFFERENCE)


@pytest.mark.parametrize("pooling", ["cls", "mean"])
@pytest.mark.parametrize(
    "changes", [{}, {"classifier_bias": True, "norm_bias": True}, {"classifier_activation": "relu"}]
)
def test_modernbert_heads(tmp_path: Path, pooling: str, changes: dict[str, Any]) -> None:
    """ModernBERT's head with each pooling, bias and activation."""
    folder = save(tmp_path, "modernbert", SEQUENCE, num_labels=2, classifier_pooling=pooling, **changes)
    assert_same_scores(folder, TEXTS)
    assert_same_scores(folder, PAIRS)


@pytest.mark.parametrize("problem", ["single_label_classification", "multi_label_classification"])
def test_probabilities(tmp_path: Path, problem: str) -> None:
    """Probabilities are those of transformers' pipeline: softmax over labels, or a sigmoid of each."""
    from transformers import pipeline

    names = {0: "good", 1: "bad", 2: "odd"}
    folder = save(tmp_path, "bert", SEQUENCE, id2label=names, problem_type=problem)
    theirs = pipeline("text-classification", model=str(folder), top_k=None)(TEXTS[:2])
    with Embedder(str(folder), settings=Settings(threads=1)) as embedder:
        assert embedder.labels == ("good", "bad", "odd")
        for row, wanted in zip(embedder.classify(TEXTS[:2]), theirs, strict=True):
            assert dict(zip(embedder.labels, row.tolist(), strict=True)) == pytest.approx(
                {one["label"]: one["score"] for one in wanted}, abs=MOST_DIFFERENCE
            )


@pytest.mark.parametrize("family", ["qwen3", "qwen2", "gemma3_text"])
@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("engine", ["onnx", "torch"])
def test_a_language_model_that_reranks(tmp_path: Path, family: str, engine: Any, *, tied: bool) -> None:
    """The logit of yes less that of no, after the model's own question, as Qwen3-Reranker's card computes it."""
    import torch
    import transformers

    folder = save(tmp_path / "tiny-reranker", family, "CausalLM", tie_word_embeddings=tied, max_position_embeddings=900)
    vocabulary = add_words(folder)
    model = transformers.AutoModelForCausalLM.from_pretrained(str(folder), dtype="float32").eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(str(folder))
    wanted = []
    for first, second in PAIRS[:4]:
        body = f"<Instruct>: Find cats\n<Query>: {first}\n<Document>: {second}"
        parts = [tokenizer(text, add_special_tokens=False)["input_ids"] for text in (QUESTION, body, ANSWER)]
        with torch.no_grad():
            last = model(torch.tensor([list(chain(*parts))])).logits[0, -1]
        wanted.append(float(last[vocabulary["yes"]] - last[vocabulary["no"]]))
    assert "rerank" in folder.name
    with Embedder(str(folder), settings=Settings(threads=1, engine=engine)) as embedder:
        for (first, second), score in zip(PAIRS[:4], wanted, strict=True):
            ours = embedder.rerank(first, [second], raw_scores=True, instruction="Find cats")
            assert ours == pytest.approx([score], abs=MOST_DIFFERENCE)


QUESTION = (
    "<|im_start|>system\nJudge whether the Document meets the requirements based on the Query and the Instruct "
    'provided. Note that the answer can only be "yes" or "no".<|im_end|>\n<|im_start|>user\n'
)
ANSWER = "<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n"


def add_words(folder: Path) -> dict[str, int]:
    """Give two entries of the vocabulary the names yes and no."""
    import msgspec

    path = folder / "tokenizer.json"
    tokenizer = msgspec.json.decode(path.read_bytes())
    words = tokenizer["model"]["vocab"]
    for name, old in (("yes", "0"), ("no", "1")):
        words[name] = words.pop(old)
    path.write_bytes(msgspec.json.encode(tokenizer))
    return dict(words)


def test_decoders_are_classifiers_of_the_last_token() -> None:
    """Every decoder is in the table of classifiers."""
    assert set(DECODERS) <= set(CLASSIFIERS)
