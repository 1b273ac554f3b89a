"""The torch engine gives the numbers of the reference libraries and of vecmill's own graphs."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from comparison import MOST_DIFFERENCE, TEXTS, assert_close, theirs
from headed import CLASSIFIERS, MASKED, PAIRS, save, save_encoder, write_its_tokenizer

from checkpoints import write_json, write_modules
from torch_files import write_torch
from vecmill.config import Settings
from vecmill.core import Output, Pair
from vecmill.embedder import Embedder
from vecmill.engine.base import choose
from vecmill.errors import LoadError, MissingFile, UnsupportedModel
from vecmill.model.spec import read_spec

pytestmark = pytest.mark.reference

TORCH = Settings(threads=1, engine="torch")


@pytest.mark.parametrize("mode", ["cls", "mean", "max", "mean_sqrt_len_tokens", "weightedmean", "lasttoken"])
def test_poolings(tmp_path: Path, mode: str) -> None:
    """Each pooling, with a Dense and a prompt that is left out, as sentence-transformers has them."""
    pooling = {"pooling_mode": mode, "include_prompt": False}
    prompts = {"prompts": {"query": "the cat: "}}
    folder = write_modules(
        save_encoder(tmp_path, "bert"), pooling=pooling, prompts=prompts, dense={"use_residual": True}
    )
    with Embedder(str(folder), settings=TORCH) as embedder:
        assert_close(embedder.embed(TEXTS, prompt_name="query"), theirs(folder, TEXTS, prompt_name="query"))


@pytest.mark.parametrize("family", ["roberta", "modernbert", "qwen3", "gemma3_text", "nomic_bert", "deberta-v2"])
def test_families(tmp_path: Path, family: str) -> None:
    """Families that have a graph give the same rows on both engines."""
    folder = write_modules(save_encoder(tmp_path, family), pooling={"pooling_mode": "mean"})
    rows = []
    for settings in (TORCH, Settings(threads=1)):
        with Embedder(str(folder), settings=settings) as embedder:
            rows.append(embedder.embed(TEXTS))
    assert_close(*rows)


OTHERS: dict[str, dict[str, Any]] = {
    "roformer": {"embedding_size": 16, "rotary_value": False},
    "mobilebert": {"embedding_size": 16, "intra_bottleneck_size": 16, "true_hidden_size": 16, "use_bottleneck": False},
    "ernie": {},
    "t5": {"d_model": 16, "d_kv": 4, "d_ff": 32, "num_layers": 2, "num_heads": 4},
}
SIZES = {
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 32,
    "max_position_embeddings": 40,
}


@pytest.mark.parametrize("family", OTHERS)
def test_architectures_without_a_graph(tmp_path: Path, family: str) -> None:
    """They are chosen for torch by themselves, and give sentence-transformers' rows."""
    import torch
    import transformers

    write_its_tokenizer(tmp_path, "bert")
    sizes = {} if family == "t5" else SIZES
    config = transformers.AutoConfig.for_model(
        family, **{**sizes, "vocab_size": 56, "pad_token_id": 0, **OTHERS[family]}
    )
    torch.manual_seed(0)
    network = transformers.T5EncoderModel if family == "t5" else transformers.AutoModel
    model = network(config) if family == "t5" else network.from_config(config)
    model.save_pretrained(tmp_path)
    write_modules_of_width(tmp_path, 16)
    assert choose(read_spec(tmp_path)) == "torch"
    with Embedder(str(tmp_path), settings=Settings(threads=1)) as embedder:
        assert_close(embedder.embed(TEXTS), theirs(tmp_path, TEXTS))


def write_modules_of_width(folder: Path, width: int) -> None:
    """A chain of mean pooling for a config that calls its width otherwise."""
    rows = [("Transformer", ""), ("Pooling", "1_Pooling"), ("Normalize", "2_Normalize")]
    chain = [
        {"idx": number, "name": str(number), "path": path, "type": f"sentence_transformers.models.{kind}"}
        for number, (kind, path) in enumerate(rows)
    ]
    write_json(folder / "modules.json", chain)
    write_json(folder / "1_Pooling/config.json", {"word_embedding_dimension": width, "pooling_mode_mean_tokens": True})
    write_json(folder / "sentence_bert_config.json", {"max_seq_length": 40})


@pytest.mark.parametrize("family", CLASSIFIERS)
def test_scores(tmp_path: Path, family: str) -> None:
    """Scores of texts and of pairs are those of the graph."""
    folder = save(tmp_path, family, "SequenceClassification", num_labels=3)
    pairs = [Pair(*pair) for pair in PAIRS]
    rows = []
    for settings in (TORCH, Settings(threads=1)):
        with Embedder(str(folder), settings=settings) as embedder:
            rows.append([embedder.classify(one, raw_scores=True) for one in (TEXTS, pairs)])
    for one, other in zip(*rows, strict=True):
        assert float(np.abs(one - other).max()) <= MOST_DIFFERENCE


@pytest.mark.parametrize("family", MASKED)
def test_sparse(tmp_path: Path, family: str) -> None:
    """Weights of a masked language model are those of the graph."""
    folder = save(tmp_path, family, "MaskedLM")
    found = []
    for settings in (TORCH, Settings(threads=1)):
        with Embedder(str(folder), settings=Settings(threads=1, engine=settings.engine, task="sparse")) as embedder:
            found.append(embedder.sparse(TEXTS))
    for one, other in zip(*found, strict=True):
        assert np.array_equal(one.indices, other.indices)
        assert float(np.abs(one.values - other.values).max()) <= MOST_DIFFERENCE


def test_three_outputs(tmp_path: Path) -> None:
    """BGE-M3's outputs are those of the graph."""
    folder = write_modules(save_encoder(tmp_path, "xlm-roberta"), pooling={"pooling_mode": "cls"})
    rng = np.random.default_rng(3)
    for name, rows in (("sparse_linear", 1), ("colbert_linear", 12)):
        weights = rng.normal(size=(rows, 16)).astype(np.float32), rng.normal(size=rows).astype(np.float32)
        write_torch(folder / f"{name}.pt", dict(zip(("weight", "bias"), weights, strict=True)))
    outputs: tuple[Output, ...] = ("dense", "sparse", "multi")
    results = []
    for settings in (TORCH, Settings(threads=1)):
        with Embedder(str(folder), settings=settings) as embedder:
            results.append(next(embedder.encode(TEXTS, outputs)))
    one, other = results
    assert_close(one.rows, other.rows)
    for left, right in zip(one.multi, other.multi, strict=True):
        assert float(np.abs(left - right).max()) <= MOST_DIFFERENCE
    for first, second in zip(one.sparse, other.sparse, strict=True):
        assert np.array_equal(first.indices, second.indices)
        assert float(np.abs(first.values - second.values).max(initial=0)) <= MOST_DIFFERENCE


@pytest.mark.parametrize("waste", [0.0, 0.3, 1.0])
@pytest.mark.parametrize("mode", ["cls", "mean", "max", "lasttoken"])
def test_padded_batches(tmp_path: Path, mode: str, waste: float) -> None:
    """Rows that are padded to their mates' length, as on an accelerator, are what they are alone."""
    from vecmill.engine.base import Batch
    from vecmill.engine.pytorch import TorchEngine

    folder = write_modules(save_encoder(tmp_path, "roberta"), pooling={"pooling_mode": mode})
    engine = TorchEngine(read_spec(folder), threads=1)
    engine.waste = waste
    rng = np.random.default_rng(1)
    inputs = [rng.integers(5, 50, length).astype(np.int32) for length in (3, 17, 4, 40, 3, 16, 1)]
    together = engine.run(Batch.pack(inputs))
    assert_close(together, np.concatenate([engine.run(Batch.pack([ids])) for ids in inputs]))


def test_grouping() -> None:
    """No group has more padding than allowed, and each row is in one."""
    from vecmill.engine.pytorch import grouped

    lengths = np.random.default_rng(0).integers(1, 200, 300).astype(np.int32)
    for waste in (0.0, 0.1, 0.5):
        groups = grouped(lengths, waste)
        assert sorted(place for group in groups for place in group.tolist()) == list(range(300))
        for group in groups:
            padded = int(lengths[group].max()) * len(group)
            assert lengths[group].sum() >= (1 - waste) * padded - 1e-6
    assert len(grouped(lengths, 0.0)) == len(np.unique(lengths))
    assert len(grouped(lengths, 0.1)) < len(grouped(lengths, 0.0)) / 3


@pytest.mark.parametrize("precision", ["bfloat16", "float16"])
def test_half_precision(tmp_path: Path, precision: Any) -> None:
    """Half of the memory, and nearly the same vectors."""
    folder = write_modules(save_encoder(tmp_path, "bert"))
    with Embedder(str(folder), settings=TORCH) as embedder:
        wanted = embedder.embed(TEXTS)
        whole = embedder._model.weight_bytes
    with Embedder(str(folder), precision=precision, settings=TORCH) as embedder:
        rows = embedder.embed(TEXTS)
        assert embedder._model.weight_bytes * 2 == whole
    assert float(np.sum(rows * wanted, axis=1).min()) > 0.99
    with pytest.raises(UnsupportedModel, match=f"the onnx engine has no precision '{precision}'"):
        Embedder(str(folder), precision=precision, settings=Settings(threads=1))


def test_what_cannot_be_loaded(tmp_path: Path) -> None:
    """A device that is not here, a tensor that lacks, and a file that is none are errors before ready."""
    from safetensors.numpy import load_file, save_file

    folder = write_modules(save_encoder(tmp_path, "bert"))
    with pytest.raises(UnsupportedModel, match="device 'cuda:7' is not here"):
        Embedder(str(folder), settings=Settings(threads=1, engine="torch", device="cuda:7"))
    tensors = load_file(folder / "model.safetensors")
    name = "encoder.layer.1.output.dense.weight"
    save_file({key: one for key, one in tensors.items() if key != name}, folder / "model.safetensors", {"format": "pt"})
    with pytest.raises(MissingFile, match=name):
        Embedder(str(folder), settings=TORCH)
    (folder / "model.safetensors").write_bytes(b"x" * 100)
    with pytest.raises(LoadError):
        Embedder(str(folder), settings=TORCH)
