"""Tiny checkpoints in every layout that vecmill reads, made on the spot: random weights, a WordPiece of a few words."""

import json
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import save_file
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors

Tensors = dict[str, NDArray[np.float32]]

SPECIALS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
WORDS = "the cat dog sat on mat hello world query passage : time year people way day ##s ##ing run walk talk".split()  # noqa: SIM905 (read as a sentence)
VOCABULARY = {token: number for number, token in enumerate([*SPECIALS, *WORDS, *"abcdefghijklmnopqrstuvwxyz.,!?"])}

CONFIG: dict[str, Any] = {
    "architectures": ["BertModel"],
    "model_type": "bert",
    "vocab_size": len(VOCABULARY),
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 32,
    "hidden_act": "gelu",
    "max_position_embeddings": 40,
    "type_vocab_size": 2,
    "layer_norm_eps": 1e-12,
    "pad_token_id": 0,
}


def write_tokenizer(folder: Path, *, max_tokens: int = 40) -> None:
    """A WordPiece tokenizer as `tokenizers` and transformers read it."""
    tokenizer = Tokenizer(models.WordPiece(VOCABULARY, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[("[CLS]", VOCABULARY["[CLS]"]), ("[SEP]", VOCABULARY["[SEP]"])],
    )
    tokenizer.add_special_tokens(SPECIALS)
    tokenizer.save(str(folder / "tokenizer.json"))
    named = {f"{name}_token": f"[{name.upper()}]" for name in ("pad", "unk", "cls", "sep", "mask")}
    settings = {"tokenizer_class": "BertTokenizer", "do_lower_case": True, "model_max_length": max_tokens, **named}
    write_json(folder / "tokenizer_config.json", settings)


def bert_tensors(config: dict[str, Any], seed: int = 0) -> Tensors:
    """Random weights of a BERT by transformers' names."""
    rng = np.random.default_rng(seed)
    width, inner = config["hidden_size"], config["intermediate_size"]
    shapes: dict[str, tuple[int, ...]] = {
        "embeddings.word_embeddings.weight": (config["vocab_size"], width),
        "embeddings.position_embeddings.weight": (config["max_position_embeddings"], width),
        "embeddings.token_type_embeddings.weight": (config["type_vocab_size"], width),
        **norm_shapes("embeddings.LayerNorm", width),
    }
    for number in range(config["num_hidden_layers"]):
        prefix = f"encoder.layer.{number}."
        for name in ("query", "key", "value"):
            shapes |= linear_shapes(f"{prefix}attention.self.{name}", width, width)
        shapes |= linear_shapes(f"{prefix}attention.output.dense", width, width)
        shapes |= norm_shapes(f"{prefix}attention.output.LayerNorm", width)
        shapes |= linear_shapes(f"{prefix}intermediate.dense", inner, width)
        shapes |= linear_shapes(f"{prefix}output.dense", width, inner)
        shapes |= norm_shapes(f"{prefix}output.LayerNorm", width)
    tensors = {name: random_tensor(rng, shape) for name, shape in shapes.items()}
    for name in tensors:
        if name.endswith("LayerNorm.weight"):  # about 1, as trained ones: else every text ends at nearly the same row
            tensors[name] += np.float32(1)
    return tensors


def linear_shapes(name: str, out: int, into: int) -> dict[str, tuple[int, ...]]:
    """Shapes of a linear layer."""
    return {f"{name}.weight": (out, into), f"{name}.bias": (out,)}


def norm_shapes(name: str, width: int) -> dict[str, tuple[int, ...]]:
    """Shapes of a LayerNorm."""
    return {f"{name}.weight": (width,), f"{name}.bias": (width,)}


def random_tensor(rng: np.random.Generator, shape: tuple[int, ...]) -> NDArray[np.float32]:
    """Values large enough that every part of the network changes the result."""
    return rng.normal(0, 0.3, shape).astype(np.float32)


def write_bert(folder: Path, *, seed: int = 0, tensors: Tensors | None = None, **changes: Any) -> Path:
    """A bare BERT: config, weights, tokenizer; `changes` go into the config."""
    folder.mkdir(parents=True, exist_ok=True)
    config = CONFIG | changes
    write_json(folder / "config.json", config)
    save_file(tensors or bert_tensors(config, seed), folder / "model.safetensors")
    write_tokenizer(folder, max_tokens=config["max_position_embeddings"])
    return folder


def write_modules(
    folder: Path,
    *,
    pooling: dict[str, Any] | None = None,
    dense: dict[str, Any] | None = None,
    normalize: bool = True,
    prompts: dict[str, Any] | None = None,
    transformer: dict[str, Any] | None = None,
) -> Path:
    """Around a bare transformer, the chain that sentence-transformers writes."""
    chain = [("Transformer", ""), ("Pooling", "1_Pooling")]
    config = json.loads((folder / "config.json").read_text())
    width = config.get("hidden_size") or config["dim"]
    write_json(
        folder / "1_Pooling/config.json",
        {"word_embedding_dimension": width, **(pooling or {"pooling_mode_mean_tokens": True})},
    )
    if dense is not None:
        chain.append(("Dense", "2_Dense"))
        write_dense(folder / "2_Dense", {"in_features": width, "out_features": 8, "bias": True, **dense})
    if normalize:
        chain.append(("Normalize", f"{len(chain)}_Normalize"))
    rows = [
        {"idx": number, "name": str(number), "path": path, "type": f"sentence_transformers.models.{kind}"}
        for number, (kind, path) in enumerate(chain)
    ]
    write_json(folder / "modules.json", rows)
    write_json(folder / "config_sentence_transformers.json", {"model_type": "SentenceTransformer", **(prompts or {})})
    write_json(folder / "sentence_bert_config.json", transformer or {})
    return folder


HEADED: dict[str, tuple[str, int]] = {
    "rerank": ("BertForSequenceClassification", 1),
    "classify": ("BertForSequenceClassification", 3),
    "sparse": ("BertForMaskedLM", 0),
}
"""Task to the architecture that is trained for it and its number of labels."""


def write_headed(folder: Path, task: str) -> Path:
    """A BERT with a head; a sparse one is known by "splade" in its folder's name."""
    architecture, labels = HEADED[task]
    width = CONFIG["hidden_size"]
    shapes = linear_shapes("bert.pooler.dense", width, width) | linear_shapes("classifier", labels, width)
    if task == "sparse":
        place = "cls.predictions"
        shapes = linear_shapes(f"{place}.transform.dense", width, width)
        shapes |= {**norm_shapes(f"{place}.transform.LayerNorm", width), f"{place}.bias": (CONFIG["vocab_size"],)}
    rng = np.random.default_rng(11)
    named: dict[str, Any] = {"id2label": {str(number): f"label {number}" for number in range(labels)}} if labels else {}
    write_bert(folder, architectures=[architecture], **named)
    body = {f"bert.{name}": tensor for name, tensor in bert_tensors(CONFIG).items()}
    save_file(body | {name: random_tensor(rng, shape) for name, shape in shapes.items()}, folder / "model.safetensors")
    return folder


def write_dense(folder: Path, settings: dict[str, Any]) -> None:
    """A Dense module with random weights."""
    folder.mkdir(parents=True, exist_ok=True)
    write_json(folder / "config.json", {"activation_function": "torch.nn.modules.activation.Tanh", **settings})
    rng = np.random.default_rng(7)
    tensors = {"linear.weight": random_tensor(rng, (settings["out_features"], settings["in_features"]))}
    if settings["bias"]:
        tensors["linear.bias"] = random_tensor(rng, (settings["out_features"],))
    if settings.get("use_residual") and settings["in_features"] != settings["out_features"]:
        tensors["residual.weight"] = random_tensor(rng, (settings["out_features"], settings["in_features"]))
    save_file(tensors, folder / "model.safetensors")


def write_json(path: Path, value: Any) -> None:
    """A JSON file, with the folders that it needs."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value))
