"""What the torch engine makes of a checkpoint: the whole network or an error, and no code but transformers' own."""

import json
from pathlib import Path
from typing import Any

import headed
import numpy as np
import pytest
from decoders import change_config
from headed import PAIRS, SMALL, logits, save, save_encoder

from checkpoints import write_json
from vecmill.config import FetchSettings, Settings
from vecmill.core import Pair
from vecmill.doctor import examine
from vecmill.embedder import Embedder
from vecmill.errors import CorruptFile, LoadError, MissingFile, UnsupportedModel
from vecmill.model.spec import read_spec
from vecmill.verify import Judged, verify

pytestmark = pytest.mark.reference

TORCH = Settings(threads=1, engine="torch")
CLOSE = 1e-5

UNGRAPHED: dict[str, dict[str, Any]] = {
    "convbert": {"embedding_size": 16},
    "deberta": {"type_vocab_size": 2},
    "ernie": {},
    "mobilebert": {"embedding_size": 16, "intra_bottleneck_size": 16, "true_hidden_size": 16, "use_bottleneck": False},
    "roformer": {"embedding_size": 16, "rotary_value": False},
}
"""Families without a graph that take types of tokens."""


@pytest.fixture
def configs(monkeypatch: pytest.MonkeyPatch) -> dict[str, dict[str, Any]]:
    """Configs of more families, for `save`."""
    for family, changes in UNGRAPHED.items():
        monkeypatch.setitem(headed.CONFIGS, family, {**SMALL, "max_position_embeddings": 40, **changes})
    return headed.CONFIGS


@pytest.mark.usefixtures("configs")
@pytest.mark.parametrize("family", UNGRAPHED)
@pytest.mark.parametrize("kind", ["BertTokenizer", "PreTrainedTokenizerFast"])
def test_types_of_pairs(tmp_path: Path, family: str, kind: str) -> None:
    """Two texts have types where transformers' tokenizer gives them, and none where it does not."""
    folder = save(tmp_path, family, "SequenceClassification", num_labels=3)
    path = folder / "tokenizer_config.json"
    path.write_text(path.read_text().replace("BertTokenizer", kind))
    wanted = np.stack(logits(folder, "SequenceClassification", PAIRS))
    with Embedder(str(folder), settings=TORCH) as embedder:
        rows = embedder.classify([Pair(*pair) for pair in PAIRS], raw_scores=True)
    assert float(np.abs(rows - wanted).max()) <= CLOSE


def test_types_of_one_text(tmp_path: Path) -> None:
    """A tokenizer that gives a text's own tokens several types, as XLNet's does, is refused."""
    folder = change_config(save_encoder(tmp_path, "bert"), model_type="ernie")
    tokenizer = json.loads((folder / "tokenizer.json").read_text())
    tokenizer["post_processor"]["single"][0]["SpecialToken"]["type_id"] = 2
    write_json(folder / "tokenizer.json", tokenizer)
    settings = json.loads((folder / "tokenizer_config.json").read_text())
    named = {"model_input_names": ["input_ids", "token_type_ids"], "tokenizer_class": "PreTrainedTokenizerFast"}
    write_json(folder / "tokenizer_config.json", settings | named)
    with pytest.raises(UnsupportedModel, match=r"a text's tokens have the types \[0, 2\]; only 0 is supported"):
        load(folder)


@pytest.mark.parametrize(
    ("family", "kind", "lost"),
    [
        ("bert", "SequenceClassification", "bert.pooler.dense.weight"),
        ("bert", "SequenceClassification", "classifier.weight"),
        ("roberta", "MaskedLM", "lm_head.dense.weight"),
        ("roberta", "", "encoder.layer.0.output.dense.weight"),
    ],
)
def test_a_tensor_that_lacks(tmp_path: Path, family: str, kind: str, lost: str) -> None:
    """A network with a random part is never served, be it the part that only a head needs."""
    folder = save(tmp_path, family, kind)
    rewrite(folder, lost, None)
    with pytest.raises(MissingFile, match=f"no tensor '{lost}'"):
        load(folder, task="sparse" if kind == "MaskedLM" else "auto")


def test_a_pooler_that_lacks(tmp_path: Path) -> None:
    """An encoder needs no pooler: poolings take the states."""
    folder = save_encoder(tmp_path, "bert")
    rewrite(folder, "pooler.dense.weight", None)
    assert load(folder).shape == (16,)


def test_another_shape(tmp_path: Path) -> None:
    """A tensor of another shape is named with both."""
    folder = save_encoder(tmp_path, "bert")
    rewrite(folder, "encoder.layer.0.output.dense.weight", 15)
    with pytest.raises(CorruptFile, match=r"dense.weight' has shape \[15, 16\], the config wants \[16, 32\]"):
        load(folder)


def test_a_tensor_without_a_use(tmp_path: Path) -> None:
    """A layer that transformers would leave out is an error, as an adapter's; a head that nobody asks for is not."""
    folder = save_encoder(tmp_path, "bert")
    rewrite(folder, "cls.predictions.transform.weight", 16)
    wanted = load(folder)
    rewrite(folder, "encoder.layer.0.attention.self.query.lora_A.weight", 16)
    with pytest.raises(UnsupportedModel, match="BertModel has no use for the tensor '.*query.lora_A.weight'"):
        load(folder)
    assert wanted.shape == (16,)


CODE = {"auto_map": {"AutoConfig": "own.Own", "AutoModel": "own.Own"}}


def test_a_repositorys_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is neither run nor asked about."""
    folder = save_encoder(tmp_path, "bert")
    (folder / "own.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\nclass Own: pass\n")
    change_config(folder, **CODE)
    monkeypatch.setattr("builtins.input", lambda _="": pytest.fail("it asks"))
    assert load(folder).shape == (16,)
    change_config(folder, model_type="llamaphant")
    with pytest.raises(UnsupportedModel, match="no architecture 'llamaphant'; the repository brings code of its own"):
        load(folder)
    assert not (tmp_path / "ran").exists()


def test_code_that_may_see_ahead(tmp_path: Path) -> None:
    """A causal network whose repository has code for it may not be causal there: it is refused unless the files say."""
    folder = change_config(save_encoder(tmp_path, "qwen3"), **CODE)
    with pytest.raises(UnsupportedModel, match="no is_causal says whether"):
        load(folder)
    assert load(change_config(folder, is_causal=True)).any()


def test_attention_of_a_repository(tmp_path: Path) -> None:
    """Attention that config.json wishes from a repository of kernels is not heeded."""
    from vecmill.engine.torch_network import load_network

    folder = save_encoder(tmp_path, "bert")
    wanted = load(folder)
    change_config(folder, attn_implementation="org/kernels", _attn_implementation="org/kernels")
    assert np.array_equal(load(folder), wanted)
    import torch

    assert load_network(read_spec(folder), torch.float32).config._attn_implementation == "sdpa"


def test_silence(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Loading prints neither bars nor reports, and leaves transformers' own settings as they were."""
    import transformers

    folder = save_encoder(tmp_path, "bert")
    rewrite(folder, "pooler.dense.weight", None)
    before = transformers.logging.get_verbosity(), transformers.logging.is_progress_bar_enabled()
    capfd.readouterr()
    load(folder)
    assert capfd.readouterr() == ("", "")
    assert (transformers.logging.get_verbosity(), transformers.logging.is_progress_bar_enabled()) == before


@pytest.mark.parametrize(
    "family", ["data2vec-text", "ibert", "longformer", "luke", "roberta-prelayernorm", "xlm-roberta-xl"]
)
def test_positions_after_the_padding(tmp_path: Path, family: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A text of as many tokens as there are positions has a vector, in families that count from the padding's id."""
    sizes = {**SMALL, "max_position_embeddings": 30, "pad_token_id": 1}
    monkeypatch.setitem(headed.CONFIGS, family, sizes)
    folder = save_encoder(tmp_path, family)
    assert read_spec(folder).max_tokens == 28
    with Embedder(str(folder), settings=TORCH) as embedder:
        assert np.isfinite(embedder.embed("the cat " * 40)).all()


@pytest.mark.usefixtures("configs")
def test_doctor_and_verify(tmp_path: Path) -> None:
    """Both commands know a model that only torch runs, and its precisions."""
    folder = str(save_encoder(tmp_path, "roformer"))
    found, tried = examine(folder, FetchSettings(), threads=1, precision="bfloat16")
    assert {fact.name: fact.value for fact in found}["engine"] == "torch"
    assert [check.claim for check in tried if not check.passed] == []
    pairs = [Judged("the cat", "a dog"), Judged("hello", "world"), Judged("time", "year")]
    findings = verify(folder, [], pairs, FetchSettings(), threads=1)
    assert [finding.precision for finding in findings] == ["float32", "bfloat16", "float16"]


def load(folder: Path, task: Any = "auto") -> Any:
    """A vector of the checkpoint, or what keeps it from loading."""
    with Embedder(str(folder), settings=Settings(threads=1, engine="torch", task=task)) as embedder:
        return embedder.embed("cat")


def rewrite(folder: Path, name: str, rows: int | None) -> None:
    """Take a tensor out of a checkpoint, or put one of so many rows in."""
    import torch
    from safetensors.torch import load_file, save_file

    path = folder / "model.safetensors"
    tensors = load_file(path)
    tensors.pop(name, None)
    tensors |= {} if rows is None else {name: torch.ones(rows, 16)}
    save_file(tensors, path, {"format": "pt"})


def test_every_error_comes_before_ready(tmp_path: Path) -> None:
    """A file that is none ends the start with one line."""
    folder = save_encoder(tmp_path, "bert")
    (folder / "model.safetensors").write_bytes(b"x" * 100)
    with pytest.raises(LoadError) as caught:
        load(folder)
    assert len(str(caught.value).splitlines()) == 1
