"""Late interaction gives the vectors of sentence-transformers' MultiVectorEncoder, for queries and for documents."""

import json
import string
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from comparison import MOST_DIFFERENCE
from headed import save_encoder
from numpy.typing import NDArray
from safetensors.numpy import load_file, save_file

from checkpoints import write_json
from vecmill.config import Settings
from vecmill.embedder import Embedder
from vecmill.errors import UnsupportedModel
from vecmill.model.spec import read_spec

pytestmark = pytest.mark.reference

DOCUMENTS = ["The cat sat on the mat.", "dog", "hello, world! time?", "a b c d e f g " * 9, "?!", "the day of the year"]
QUERIES = ["cat", "who sat on the mat?", "a b c d e f g " * 9, "?"]

Rows = NDArray[np.float32]


def load(folder: Path) -> Any:
    """The checkpoint in sentence-transformers."""
    import torch
    from sentence_transformers import MultiVectorEncoder

    torch.set_num_threads(1)
    return MultiVectorEncoder(str(folder), device="cpu", model_kwargs={"dtype": "float32"})


def assert_same_vectors(folder: Path, settings: Settings = Settings(threads=1)) -> None:  # noqa: B008 (frozen)
    """Both programs give the same tokens the same vectors, together and alone, and pairs the same scores."""
    theirs = load(folder)
    sides = {"query": QUERIES, "document": DOCUMENTS}
    encode = {"query": theirs.encode_query, "document": theirs.encode_document}
    with Embedder(str(folder), settings=settings) as embedder:
        for side, texts in sides.items():
            wanted = [np.asarray(rows) for rows in encode[side](texts, convert_to_numpy=True)]
            together = embedder.token_vectors(texts, prompt_name=side)
            alone = [embedder.token_vectors([text], prompt_name=side)[0] for text in texts]
            for one, other, rows in zip(together, alone, wanted, strict=True):
                assert np.array_equal(one, other)
                assert one.shape == rows.shape
                assert float(np.abs(one - rows).max(initial=0)) <= MOST_DIFFERENCE
        queries, documents = theirs.encode_query(QUERIES[:2]), theirs.encode_document(DOCUMENTS[:4])
        wanted_scores = theirs.similarity(queries, documents).numpy()
        for query, scores in zip(QUERIES[:2], wanted_scores, strict=True):
            ours = embedder.rerank(query, DOCUMENTS[:4], raw_scores=True)
            assert ours == pytest.approx(scores, abs=1e-3)
            assert np.all(np.abs(embedder.rerank(query, DOCUMENTS[:4])) <= 1 + 1e-5)


def write_stanford(folder: Path, **metadata: Any) -> Path:
    """As Stanford's ColBERT saves: the projection beside the encoder, markers in the vocabulary, metadata."""
    save_encoder(folder, "bert")
    config = json.loads((folder / "config.json").read_text()) | {"architectures": ["HF_ColBERT"]}
    write_json(folder / "config.json", config)
    tensors = {f"bert.{name}": tensor for name, tensor in load_file(folder / "model.safetensors").items()}
    tensors["linear.weight"] = np.random.default_rng(5).normal(size=(8, 16)).astype(np.float32)
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})
    rename_tokens(folder, {"time": "[unused0]", "year": "[unused1]"})
    write_json(folder / "artifact.metadata", metadata)
    return folder


def rename_tokens(folder: Path, names: dict[str, str]) -> None:
    """Give entries of a vocabulary other names."""
    path = folder / "tokenizer.json"
    tokenizer = json.loads(path.read_text())
    words = tokenizer["model"]["vocab"]
    for old, new in names.items():
        words[new] = words.pop(old)
    write_json(path, tokenizer)


@pytest.mark.parametrize(
    "metadata",
    [
        {},
        {"query_maxlen": 12, "doc_maxlen": 20, "attend_to_mask_tokens": False, "mask_punctuation": True},
        {"query_maxlen": 12, "doc_maxlen": 20, "attend_to_mask_tokens": True, "mask_punctuation": False},
        {"query_token_id": "[unused1]", "doc_token_id": "[unused0]", "dim": 8},
    ],
)
def test_stanford(tmp_path: Path, metadata: dict[str, Any]) -> None:
    """Stanford's layout, with each of its settings."""
    assert_same_vectors(write_stanford(tmp_path, **metadata))


def write_pylate(folder: Path, **settings: Any) -> Path:
    """As PyLate saves: a chain of Transformer and its own Dense, all else in the library's settings."""
    save_encoder(folder, "bert")
    rows = [("", "sentence_transformers.models.Transformer"), ("1_Dense", "pylate.models.Dense.Dense")]
    chain = [{"idx": n, "name": str(n), "path": path, "type": kind} for n, (path, kind) in enumerate(rows)]
    write_json(folder / "modules.json", chain)
    dense = {"in_features": 16, "out_features": 8, "bias": False, "use_residual": False}
    identity = "torch.nn.modules.linear.Identity"
    write_json(folder / "1_Dense/config.json", {**dense, "activation_function": identity})
    weight = np.random.default_rng(5).normal(size=(8, 16)).astype(np.float32)
    save_file({"linear.weight": weight}, folder / "1_Dense/model.safetensors")
    write_json(folder / "sentence_bert_config.json", {"max_seq_length": 39, "do_lower_case": False})
    library = {"model_type": "ColBERT", "prompts": {}, "similarity_fn_name": "MaxSim"}
    write_json(folder / "config_sentence_transformers.json", {**library, **settings})
    return folder


PYLATE: dict[str, Any] = {
    "query_prefix": "[Q] ",
    "document_prefix": "[D] ",
    "query_length": 14,
    "document_length": 25,
    "attend_to_expansion_tokens": False,
    "skiplist_words": list(string.punctuation),
    "do_query_expansion": True,
}


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"attend_to_expansion_tokens": True},
        {"do_query_expansion": False},
        {"skiplist_words": []},
        {"skiplist_words": None},
        {"query_prefix": "query : ", "document_prefix": None, "document_length": None},
        {"prompts": {"query": "the ", "document": "a "}},
        {"query_length": None},
    ],
)
@pytest.mark.parametrize("known", [True, False])
def test_pylate(tmp_path: Path, changes: dict[str, Any], *, known: bool) -> None:
    """PyLate's layout, with each of its settings; markers that are in the vocabulary, and ones that are not."""
    folder = write_pylate(tmp_path, **{**PYLATE, **changes})
    if known:
        rename_tokens(folder, {"time": "[Q] ", "year": "[D] "})
    assert_same_vectors(folder)


def test_pylate_without_a_word_on_expansion(tmp_path: Path) -> None:
    """A null says that queries stay as they are, and a dict says how they are made longer."""
    assert_same_vectors(write_pylate(tmp_path / "off", **{**PYLATE, "query_expansion": None}))
    longer = {"query_length": None, "query_expansion": {"strategy": "fixed", "length": 17}}
    assert_same_vectors(write_pylate(tmp_path / "on", **{**PYLATE, **longer}))


def test_lengths_beyond_the_transformers(tmp_path: Path) -> None:
    """Lengths of the sides count where the transformer's own limit is less, as in what PyLate saves."""
    folder = write_pylate(tmp_path, **{**PYLATE, "query_length": 20})
    write_json(folder / "sentence_bert_config.json", {"max_seq_length": 18, "do_lower_case": False})
    assert_same_vectors(folder)


def test_a_chain_of_stanfords_architecture(tmp_path: Path) -> None:
    """Where there are both, the chain of modules says what follows the encoder."""
    folder = write_pylate(tmp_path, **PYLATE)
    config = json.loads((folder / "config.json").read_text()) | {"architectures": ["HF_ColBERT"]}
    write_json(folder / "config.json", config)
    assert_same_vectors(folder)


def test_a_mask_of_another_name(tmp_path: Path) -> None:
    """Queries are made longer with the tokenizer's own mask."""
    folder = write_pylate(tmp_path, **PYLATE)
    rename_tokens(folder, {"time": "[BLANK]"})
    settings = json.loads((folder / "tokenizer_config.json").read_text()) | {"mask_token": "[BLANK]"}
    write_json(folder / "tokenizer_config.json", settings)
    assert_same_vectors(folder)


def save(folder: Path, family: str, mask: dict[str, Any] | None, changes: dict[str, Any], **config: Any) -> Path:
    """What the library saves itself: knobs of the transformer, a Dense, perhaps a mask, Normalize, all on tokens."""
    from sentence_transformers import MultiVectorEncoder
    from sentence_transformers.base.modules import Dense, Normalize, Transformer
    from sentence_transformers.multi_vector_encoder.modules import MultiVectorMask

    encoder = save_encoder(folder / "encoder", family, **config)
    knobs = {"query_length": None, "document_length": 22, "max_seq_length": 38, **changes}
    width = json.loads((encoder / "config.json").read_text()).get("hidden_size", 16)
    modules = [Transformer(str(encoder), **knobs), Dense(width, 6, module_input_name="token_embeddings")]
    modules += [] if mask is None else [MultiVectorMask(**mask)]
    modules += [Normalize(module_input_name="token_embeddings")]
    prompts = {"query": "the ", "document": ""}
    MultiVectorEncoder(modules=modules, prompts=prompts, device="cpu").save(str(folder / "saved"))
    return folder / "saved"


WORDS = {"skiplist_words": [".", ",", "?"], "skiplist_tasks": ["query", "document"]}
UNSEEN = {"strategy": "fixed", "attend": False, "length": 24}
SEEN = UNSEEN | {"attend": True}


@pytest.mark.parametrize(
    "expansion",
    [
        None,
        {"strategy": "fixed", "attend": False, "length": 12},
        {"strategy": "fixed", "attend": True, "length": 12},
        {"strategy": "min", "attend": False, "length": 9},
        {"strategy": "min", "attend": True, "length": 9, "token": "."},
    ],
)
@pytest.mark.parametrize("family", ["bert", "modernbert", "xlm-roberta"])
def test_saved_by_sentence_transformers(tmp_path: Path, family: str, expansion: dict[str, Any] | None) -> None:
    """Every kind of expansion, with words that are left out on both sides."""
    fixed = expansion and expansion["strategy"] == "fixed"
    knobs = {"query_expansion": expansion, "query_length": None if fixed else 15}
    folder = save(tmp_path, family, WORDS, knobs)
    assert_same_vectors(folder)
    assert read_spec(folder).outputs == ("multi",)


@pytest.mark.parametrize("expansion", [UNSEEN, SEEN])
@pytest.mark.parametrize(
    "family",
    ["albert", "camembert", "distilbert", "electra", "gte", "modernbert", "mpnet", "nomic_bert", "roberta"],
)
def test_families(tmp_path: Path, family: str, expansion: dict[str, Any]) -> None:
    """Tokens that others do not see, in every family; ModernBERT's, whose windows end before, see nothing at all."""
    assert_same_vectors(save(tmp_path, family, WORDS, {"query_expansion": expansion}))


@pytest.mark.parametrize("family", ["deberta-v2", "mistral", "qwen3"])
def test_families_that_see_all(tmp_path: Path, family: str) -> None:
    """Where a graph hides no token, queries are made longer with tokens that are seen; the torch engine knows both."""
    assert_same_vectors(save(tmp_path / "seen", family, WORDS, {"query_expansion": SEEN}))
    folder = save(tmp_path / "unseen", family, WORDS, {"query_expansion": UNSEEN})
    with pytest.raises(UnsupportedModel, match="others do not see.*--engine torch"):
        Embedder(str(folder))
    assert_same_vectors(folder, Settings(threads=1, engine="torch"))


@pytest.mark.parametrize("expansion", [None, UNSEEN, SEEN])
@pytest.mark.parametrize("mask", [None, {"keep_only_token_ids": [2, 5, 6, 7, 8, 9]}])
def test_masks(tmp_path: Path, mask: dict[str, Any] | None, expansion: dict[str, Any] | None) -> None:
    """Without a mask only the tokens count that were seen; with one that names tokens, only these of documents."""
    assert_same_vectors(save(tmp_path, "bert", mask, {"query_expansion": expansion}))


@pytest.mark.parametrize("knobs", [{"query_length": 20}, {"query_expansion": UNSEEN | {"strategy": "min"}}])
def test_lengths(tmp_path: Path, knobs: dict[str, Any]) -> None:
    """Lengths of the sides count for more than the transformer's; where nothing is said, that one holds."""
    assert_same_vectors(save(tmp_path, "bert", WORDS, {"max_seq_length": 15, **knobs}))
