"""What a static model is, from the files of two libraries."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from checkpoints import VOCABULARY, write_json
from static_checkpoints import TABLE, UNKNOWN, write_model2vec, write_static
from vecmill.errors import CorruptFile, LoadError, MissingFile, UnsupportedModel
from vecmill.model.source import resolve
from vecmill.model.spec import Normalize, read_spec
from vecmill.model.static import MAX_TOKENS
from vecmill.model.tokenizer import Tokenizer

CAT = VOCABULARY["cat"]


@pytest.mark.parametrize("place", ["0_StaticEmbedding", "", "."])
def test_sentence_transformers(tmp_path: Path, place: str) -> None:
    """modules.json names the folder of the table and what follows; there is no config.json."""
    spec = read_spec(resolve(str(write_static(tmp_path, place=place))).folder)
    assert (spec.family, spec.transformer, spec.dims, spec.vocab_size) == ("static", tmp_path / place, *TABLE.T.shape)
    assert (spec.tail, spec.prompts, spec.skips_unknown) == ((Normalize(),), {"query": "query : "}, False)


@pytest.mark.parametrize(
    ("config", "normalized"),
    [
        ({"model_type": "model2vec", "normalize": True}, True),
        ({"model_type": "model2vec", "normalize": False}, False),
        ({"model_type": "model2vec"}, False),
        ({"normalize": True}, True),
        ({"embedding_dtype": "int8"}, False),
    ],
)
def test_model2vec(tmp_path: Path, config: dict[str, Any], normalized: bool) -> None:
    """config.json says whether rows are normalised; some versions write no model_type."""
    spec = read_spec(write_model2vec(tmp_path, **config))
    assert (spec.family, spec.transformer, spec.dims) == ("static", tmp_path, 16)
    assert (spec.normalized, spec.skips_unknown) == (normalized, True)


def test_modules_win(tmp_path: Path) -> None:
    """Where both libraries' files are there modules.json decides, as for every other model."""
    write_model2vec(tmp_path, model_type="model2vec", normalize=True)
    write_json(tmp_path / "modules.json", [{"path": ".", "type": "sentence_transformers.models.StaticEmbedding"}])
    spec = read_spec(tmp_path)
    assert (spec.normalized, spec.skips_unknown, spec.dims) == (False, False, 16)


def test_a_mapping_has_the_vocabulary(tmp_path: Path) -> None:
    """With a mapping there are as many tokens as it is long, however few vectors they share."""
    tensors = {"embeddings": TABLE[:7], "mapping": np.arange(len(TABLE)) % 7}
    assert read_spec(write_model2vec(tmp_path, tensors=tensors)).vocab_size == len(TABLE)


def test_tokens(tmp_path: Path) -> None:
    """No special token is added; unknown ones stay for sentence-transformers and go for model2vec."""
    by_chain, bare = read_spec(write_static(tmp_path / "a")), read_spec(write_model2vec(tmp_path / "b"))
    texts = ["cat 中 cat", "中"]
    kept, dropped = ([one.ids.tolist() for one in Tokenizer(spec).encode(texts)] for spec in (by_chain, bare))
    assert kept == [[CAT, UNKNOWN, CAT], [UNKNOWN]]
    assert dropped == [[CAT, CAT], []]


def test_the_tokenizer_is_taken_as_it_is(tmp_path: Path) -> None:
    """Both libraries read tokenizer.json alone: tokenizer_config.json changes nothing."""
    spec = read_spec(write_static(tmp_path))
    settings = {"tokenizer_class": "BertTokenizer", "do_lower_case": False, "truncation_side": "left"}
    write_json(spec.transformer / "tokenizer_config.json", settings)
    assert Tokenizer(spec).encode(["CAT"])[0].ids.tolist() == [CAT]


def test_the_limit(tmp_path: Path) -> None:
    """tokenizer.json limits the one library, config.json the other; without either it is a book."""
    assert read_spec(write_static(tmp_path / "a", truncation=7)).max_tokens == 7
    assert read_spec(write_static(tmp_path / "b", truncation=None)).max_tokens == MAX_TOKENS
    assert read_spec(write_model2vec(tmp_path / "c", model_type="model2vec", max_length=9)).max_tokens == 9
    assert read_spec(write_model2vec(tmp_path / "d", model_type="model2vec", max_length=None)).max_tokens == MAX_TOKENS
    tokens = Tokenizer(read_spec(tmp_path / "a")).encode(["cat " * 8])[0]
    assert (len(tokens.ids), tokens.truncated) == (7, True)


def test_a_cut_on_the_left_is_refused(tmp_path: Path) -> None:
    """A tokenizer that keeps the end of a text is not taken for one that keeps its start."""
    path = write_static(tmp_path) / "0_StaticEmbedding/tokenizer.json"
    path.write_text(path.read_text().replace('"Right"', '"Left"'))
    with pytest.raises(UnsupportedModel, match="truncation on the left"):
        read_spec(tmp_path)


@pytest.mark.parametrize(
    ("tensors", "error", "told"),
    [
        ({"other": TABLE}, MissingFile, "no table; looked for embedding.weight and embeddings"),
        ({"embeddings": TABLE[0]}, CorruptFile, r"'embeddings' has shape \[16\]"),
        ({"embeddings": TABLE, "mapping": np.full(len(TABLE), 56)}, CorruptFile, "'mapping' leads to rows"),
        ({"embeddings": TABLE, "mapping": np.full(len(TABLE), -1)}, CorruptFile, "'mapping' leads to rows"),
        ({"embeddings": TABLE, "weights": np.ones(3, np.float32)}, CorruptFile, r"'weights' has shape \[3\]"),
        ({"embeddings": TABLE.astype(np.uint8)}, UnsupportedModel, "'embeddings' of type U8"),
    ],
)
def test_faults(tmp_path: Path, tensors: dict[str, Any], error: type[LoadError], told: str) -> None:
    """Tensors that do not fit each other are named."""
    with pytest.raises(error, match=told):
        read_spec(write_model2vec(tmp_path, tensors=tensors))


def test_an_unknown_token_of_a_unigram(tmp_path: Path) -> None:
    """A Unigram tokenizer names its unknown token by number, and that is dropped too."""
    import tokenizers
    from tokenizers import models, pre_tokenizers

    write_model2vec(tmp_path, tensors={"embeddings": TABLE[:4]})
    native = tokenizers.Tokenizer(models.Unigram([("<pad>", 0.0), ("<unk>", 0.0), ("▁a", -1.0), ("▁b", -1.0)], 1))
    native.pre_tokenizer = pre_tokenizers.Metaspace()
    native.save(str(tmp_path / "tokenizer.json"))
    assert Tokenizer(read_spec(tmp_path)).encode(["a x b"])[0].ids.tolist() == [2, 3]
