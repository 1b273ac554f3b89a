"""The compiled Jina v2 gives the numbers of JinaBertModel, written here in numpy: transformers has no class for it.

Sources: the ALiBi paper (Press et al., arXiv 2108.12409) for the slopes, the paper of jina-embeddings-v2 (arXiv
2310.19923) for the symmetric distances and the gated network. The names and the order of the halves are those of
jinaai/jina-bert-implementation and jinaai/jina-bert-v2-qk-post-norm, read in public copies (vLLM, a port to
transformers, text-embeddings-inference) and not run here: no original checkpoint could be compared.
"""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from comparison import TEXTS, assert_close, ours
from numpy.typing import NDArray
from rotary_encoders import (
    PROMPTS,
    SIZES,
    Config,
    Shapes,
    assert_bytes_do_not_depend_on_mates,
    assert_each_tensor_is_checked,
    assert_refused,
    change_config,
    random_ids,
    random_tensors,
    rows,
    write_encoder,
)

from checkpoints import Tensors, linear_shapes, norm_shapes, write_modules
from vecmill.errors import CorruptFile, LoadError, MissingFile, UnsupportedModel
from vecmill.graph.families.jina_bert import slopes
from vecmill.model.spec import read_spec
from vecmill.model.tokenizer import Tokenizer

Array = NDArray[np.float64]

CONFIG: Config = {
    **SIZES,
    "architectures": ["JinaBertForMaskedLM"],
    "model_type": "bert",
    "position_embedding_type": "alibi",
    "feed_forward_type": "geglu",
    "emb_pooler": "mean",
    "attn_implementation": "torch",
    "type_vocab_size": 2,
    "layer_norm_eps": 1e-12,
}


def tensors_of(config: Config, *, normed: bool = False) -> Tensors:
    """Random weights by the names of the original code, or of its variant with norms of queries and keys."""
    width, inner = config["hidden_size"], config["intermediate_size"]
    gated, down = ("mlp.up_gated_layer", "mlp.down_layer") if normed else ("mlp.gated_layers", "mlp.wo")
    norms = ["attention.output.LayerNorm", "layer_norm_2" if normed else "mlp.layernorm"]
    norms += ["attention.self.layer_norm_q", "attention.self.layer_norm_k", "layer_norm_1"] if normed else []
    shapes: Shapes = {
        "embeddings.word_embeddings.weight": (config["vocab_size"], width),
        "embeddings.token_type_embeddings.weight": (config["type_vocab_size"], width),
        **norm_shapes("embeddings.LayerNorm", width),
    }
    for number in range(config["num_hidden_layers"]):
        at = f"encoder.layer.{number}"
        for name in ("self.query", "self.key", "self.value", "output.dense"):
            shapes |= linear_shapes(f"{at}.attention.{name}", width, width)
        shapes[f"{at}.{gated}.weight"] = (2 * inner, width)
        shapes |= linear_shapes(f"{at}.{down}", width, inner)
        for name in norms:
            shapes |= norm_shapes(f"{at}.{name}", width)
    return random_tensors(shapes)


def states(ids: NDArray[np.int32], tensors: Tensors, config: Config) -> Array:
    """Last hidden states of one text, float64 [length, width]."""
    heads, inner = config["num_attention_heads"], config["intermediate_size"]
    act = ACTIVATIONS[config["feed_forward_type"]]

    def linear(x: Array, name: str) -> Array:
        result: Array = x @ tensors[f"{name}.weight"].astype(np.float64).T + tensors.get(f"{name}.bias", np.float32(0))
        return result

    def norm(x: Array, name: str) -> Array:
        centred = x - x.mean(-1, keepdims=True)
        deviation = np.sqrt((centred**2).mean(-1, keepdims=True) + config["layer_norm_eps"])
        result: Array = centred / deviation * tensors[f"{name}.weight"] + tensors[f"{name}.bias"]
        return result

    def attention(x: Array, at: str, *, normed: bool) -> Array:
        query, key, value = (linear(x, f"{at}.{part}") for part in ("query", "key", "value"))
        if normed:
            query, key = norm(query, f"{at}.layer_norm_q"), norm(key, f"{at}.layer_norm_k")
        places = np.arange(len(x))
        away = np.abs(places[:, None] - places[None, :])
        split = [part.reshape(len(x), heads, -1).transpose(1, 0, 2) for part in (query, key, value)]
        scores = split[0] @ split[1].transpose(0, 2, 1) / math.sqrt(x.shape[1] / heads)
        scores = np.exp(scores - np.array(paper_slopes(heads))[:, None, None] * away)
        result: Array = (scores / scores.sum(-1, keepdims=True) @ split[2]).transpose(1, 0, 2).reshape(x.shape)
        return result

    def layer(x: Array, at: str) -> Array:
        context = linear(attention(x, f"{at}.attention.self", normed=False), f"{at}.attention.output.dense")
        x = norm(x + context, f"{at}.attention.output.LayerNorm")
        both = linear(x, f"{at}.mlp.gated_layers")
        return norm(x + linear(act(both[:, :inner]) * both[:, inner:], f"{at}.mlp.wo"), f"{at}.mlp.layernorm")

    def normed_layer(x: Array, at: str) -> Array:
        context = linear(attention(x, f"{at}.attention.self", normed=True), f"{at}.attention.output.dense")
        x = norm(x + norm(x + context, f"{at}.attention.output.LayerNorm"), f"{at}.layer_norm_1")
        both = linear(x, f"{at}.mlp.up_gated_layer")
        return norm(x + linear(both[:, :inner] * act(both[:, inner:]), f"{at}.mlp.down_layer"), f"{at}.layer_norm_2")

    words, types = (tensors[f"embeddings.{kind}_embeddings.weight"] for kind in ("word", "token_type"))
    x = norm((words[ids] + types[0]).astype(np.float64), "embeddings.LayerNorm")
    each = normed_layer if any("layer_norm_q" in name for name in tensors) else layer
    for number in range(config["num_hidden_layers"]):
        x = each(x, f"encoder.layer.{number}")
    return x


def paper_slopes(heads: int) -> list[float]:
    """The slopes as the ALiBi paper gives them, and its authors' code where the heads are no power of 2."""
    if math.log2(heads).is_integer():
        start = 2 ** (-8 / heads)
        return [start ** (number + 1) for number in range(heads)]
    below = 2 ** math.floor(math.log2(heads))
    return paper_slopes(below) + paper_slopes(2 * below)[0::2][: heads - below]


erf = np.vectorize(math.erf, otypes=[np.float64])
ACTIVATIONS: dict[str, Any] = {
    "geglu": lambda x: x * (1 + erf(x / math.sqrt(2))) / 2,
    "reglu": lambda x: np.maximum(x, 0),
}


@pytest.mark.parametrize("normed", [False, True])
@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"feed_forward_type": "reglu"},
        {"layer_norm_eps": 0.1},
        {"num_attention_heads": 1},
        {"num_attention_heads": 4},
        {"hidden_size": 24, "num_attention_heads": 3},
        {"hidden_size": 24, "num_attention_heads": 12},
        {"type_vocab_size": 1},
        {"hidden_size": 20, "intermediate_size": 7},
    ],
)
def test_equals_the_papers(tmp_path: Path, changes: dict[str, Any], *, normed: bool) -> None:
    """Each setting of config.json that changes the network, on inputs of 1 token up to the limit."""
    config = CONFIG | changes
    tensors = tensors_of(config, normed=normed)
    folder = write_encoder(tmp_path, config, tensors)
    texts = random_ids(1, 2, 7, 39, 40)
    wanted = np.stack([states(ids, tensors, config).mean(0) for ids in texts]).astype(np.float32)
    assert_close(rows(folder, texts), wanted)
    assert_close(np.concatenate([rows(folder, [ids]) for ids in texts]), wanted)


@pytest.mark.parametrize("pooling", ["cls", "mean"])
@pytest.mark.parametrize("prompt", ["query", "long", None])
def test_a_chain(tmp_path: Path, pooling: str, prompt: str | None) -> None:
    """Prompts and both poolings, on texts up to the limit and beyond, in one batch and alone."""
    tensors = tensors_of(CONFIG)
    folder = write_modules(write_encoder(tmp_path, CONFIG, tensors), pooling={"pooling_mode": pooling}, prompts=PROMPTS)
    inputs = Tokenizer(read_spec(folder)).encode(TEXTS, PROMPTS["prompts"].get(prompt or "", ""))
    found = [states(tokens.ids, tensors, CONFIG) for tokens in inputs]
    pooled = np.stack([one[0] if pooling == "cls" else one.mean(0) for one in found])
    wanted = (pooled / np.linalg.norm(pooled, axis=1, keepdims=True)).astype(np.float32)
    assert_close(ours(folder, prompt_name=prompt), wanted)
    assert_close(np.concatenate([ours(folder, [text], prompt_name=prompt) for text in TEXTS[:3]]), wanted[:3])


@pytest.mark.parametrize("normed", [False, True])
def test_a_long_input(tmp_path: Path, *, normed: bool) -> None:
    """An input of 700 tokens, where far tokens have biases of hundreds."""
    config = CONFIG | {"max_position_embeddings": 700}
    tensors = tensors_of(config, normed=normed)
    texts = random_ids(700)
    wanted = np.stack([states(ids, tensors, config).mean(0) for ids in texts]).astype(np.float32)
    assert_close(rows(write_encoder(tmp_path, config, tensors), texts), wanted)


@pytest.mark.parametrize("heads", [1, 2, 3, 6, 8, 12, 16, 20])
def test_slopes(heads: int) -> None:
    """Slopes for powers of 2 and for other numbers of heads."""
    assert slopes(heads) == pytest.approx(paper_slopes(heads))


def test_the_family(tmp_path: Path) -> None:
    """A BERT with ALiBi is Jina's, whose code goes by BERT's name; a BERT without is not."""
    folder = write_encoder(tmp_path, CONFIG, tensors_of(CONFIG))
    assert read_spec(folder).family == "jina_bert"
    assert read_spec(change_config(folder, position_embedding_type="absolute")).family == "bert"


def test_prefix(tmp_path: Path) -> None:
    """Tensors of a model with a head have `bert.` before their names; the head's own are left alone."""
    wanted = rows(write_encoder(tmp_path / "plain", CONFIG, tensors_of(CONFIG)), random_ids(1, 9, 40))
    tensors = {f"bert.{name}": tensor for name, tensor in tensors_of(CONFIG).items()}
    folder = write_encoder(tmp_path / "prefixed", CONFIG, tensors | {"cls.predictions.bias": np.ones(3, np.float32)})
    assert np.array_equal(rows(folder, random_ids(1, 9, 40)), wanted)


@pytest.mark.parametrize("normed", [False, True])
def test_bytes_do_not_depend_on_mates(tmp_path: Path, *, normed: bool) -> None:
    """A text's row has the same bytes alone and in a batch."""
    config = CONFIG | {"hidden_size": 20, "max_position_embeddings": 130}
    assert_bytes_do_not_depend_on_mates(write_encoder(tmp_path, config, tensors_of(config, normed=normed)))


@pytest.mark.parametrize("normed", [False, True])
def test_each_tensor_is_checked(tmp_path: Path, *, normed: bool) -> None:
    """A tensor that is missing or of another shape is named."""
    config = CONFIG | {"num_hidden_layers": 1}
    assert_each_tensor_is_checked(write_encoder(tmp_path, config, tensors_of(config, normed=normed)))


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"feed_forward_type": "original"}, UnsupportedModel, "feed_forward_type = 'original' is not supported"),
        ({"feed_forward_type": None}, UnsupportedModel, "feed_forward_type = None is not supported for jina_bert"),
        ({"is_decoder": True}, UnsupportedModel, "is_decoder = True"),
        ({"add_cross_attention": True}, UnsupportedModel, "add_cross_attention = True"),
        ({"num_attention_heads": 3}, CorruptFile, "3 heads do not divide a hidden_size of 16"),
        ({"num_hidden_layers": 4}, MissingFile, "no tensor 'encoder.layer.3.attention.self.query.weight'"),
    ],
)
def test_refused(tmp_path: Path, changes: dict[str, Any], error: type[LoadError], message: str) -> None:
    """What the graph cannot do, and what the files do not hold, is refused by its name."""
    assert_refused(change_config(write_encoder(tmp_path, CONFIG, tensors_of(CONFIG)), **changes), error, message)
