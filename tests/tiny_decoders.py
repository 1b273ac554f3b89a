"""Tiny decoders of every family: random weights, and tokenizers in the style that the family has."""

import re
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save_file
from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

from checkpoints import Tensors, random_tensor, write_json

Shapes = dict[str, tuple[int, ...]]

TOKENIZERS = {
    "gemma3_text": "GemmaTokenizer",
    "llama": "LlamaTokenizer",
    "mistral": "LlamaTokenizer",
    "qwen2": "Qwen2Tokenizer",
    "qwen3": "Qwen2Tokenizer",
}
"""Every family to the class of its tokenizer."""

FAMILIES = tuple(TOKENIZERS)

SIZES: dict[str, Any] = {
    "hidden_size": 32,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "intermediate_size": 48,
    "max_position_embeddings": 40,
}

LETTERS = "abcdefghijklmnopqrstuvwxyzTH.,!?:\n0123"
MERGES = [("t", "h"), ("th", "e"), ("c", "a"), ("ca", "t"), ("d", "o"), ("do", "g"), ("_", "the"), ("_", "cat")]
"""`_` stands for the space, which each tokenizer writes in its own way."""


def write_decoder(folder: Path, family: str, tensors: Tensors | None = None, /, **changes: Any) -> Path:
    """A bare decoder: config, weights, tokenizer; `changes` go into the config."""
    folder.mkdir(parents=True, exist_ok=True)
    config = {"model_type": family, **SIZES, "vocab_size": write_tokenizer(folder, TOKENIZERS[family]), **changes}
    write_json(folder / "config.json", config)
    save_file(tensors or decoder_tensors(config), folder / "model.safetensors")
    return folder


def decoder_tensors(config: dict[str, Any], seed: int = 0) -> Tensors:
    """Random weights by transformers' names; norms scale by about 1."""
    rng = np.random.default_rng(seed)
    tensors = {name: random_tensor(rng, shape) for name, shape in decoder_shapes(config).items()}
    for name in tensors:
        if "norm" in name and config["model_type"] != "gemma3_text":
            tensors[name] += np.float32(1)
    return tensors


def decoder_shapes(config: dict[str, Any]) -> Shapes:
    """Every tensor's shape."""
    width = config["hidden_size"]
    shapes: Shapes = {"embed_tokens.weight": (config["vocab_size"], width), "norm.weight": (width,)}
    for number in range(config["num_hidden_layers"]):
        shapes |= {f"layers.{number}.{name}": shape for name, shape in layer_shapes(config).items()}
    return shapes


def layer_shapes(config: dict[str, Any]) -> Shapes:
    """Shapes of one layer's tensors."""
    family, width, inner = config["model_type"], config["hidden_size"], config["intermediate_size"]
    heads, keys, dims = (config[name] for name in ("num_attention_heads", "num_key_value_heads", "head_dim"))
    attention, feed = bool(config.get("attention_bias")), bool(config.get("mlp_bias"))
    shapes: Shapes = {}
    for name, count in (("q", heads), ("k", keys), ("v", keys)):
        biased = family == "qwen2" or attention
        shapes |= _linear(f"self_attn.{name}_proj", count * dims, width, bias=biased)
    shapes |= _linear("self_attn.o_proj", width, heads * dims, bias=attention and family != "qwen2")
    for name in ("gate", "up"):
        shapes |= _linear(f"mlp.{name}_proj", inner, width, bias=feed)
    shapes |= _linear("mlp.down_proj", width, inner, bias=feed)
    norms = ["input_layernorm", "post_attention_layernorm"]
    if family == "gemma3_text":
        norms += ["pre_feedforward_layernorm", "post_feedforward_layernorm"]
    shapes |= {f"{name}.weight": (width,) for name in norms}
    if family in {"qwen3", "gemma3_text"}:
        shapes |= {f"self_attn.{name}_norm.weight": (dims,) for name in "qk"}
    return shapes


def _linear(name: str, out: int, into: int, *, bias: bool) -> Shapes:
    return {f"{name}.weight": (out, into)} | ({f"{name}.bias": (out,)} if bias else {})


def write_tokenizer(folder: Path, kind: str) -> int:
    """tokenizer.json and tokenizer_config.json; returns the size of the vocabulary."""
    native, settings = {"LlamaTokenizer": _llama, "GemmaTokenizer": _gemma, "Qwen2Tokenizer": _qwen}[kind]()
    native.save(str(folder / "tokenizer.json"))
    write_json(folder / "tokenizer_config.json", {"tokenizer_class": kind, "model_max_length": int(1e30), **settings})
    return native.get_vocab_size()


def _llama() -> tuple[Tokenizer, dict[str, Any]]:
    """As Llama 2 has it: ▁ before the text by the normaliser, unknown characters as bytes, `<s>` before all."""
    native = _pieces(["<unk>", "<s>", "</s>"])
    native.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    native.post_processor = _frame(native, "<s> $A")
    return native, {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>", "pad_token": "</s>", "legacy": False}


def _gemma() -> tuple[Tokenizer, dict[str, Any]]:
    """As EmbeddingGemma has it: nothing before the text, `<bos>` and `<eos>` around it."""
    native = _pieces(["<pad>", "<eos>", "<bos>", "<unk>", "<mask>"])
    native.normalizer = normalizers.Replace(" ", "▁")
    native.pre_tokenizer = pre_tokenizers.Split(" ", "merged_with_previous")
    native.post_processor = _frame(native, "<bos> $A <eos>")
    return native, {f"{name}_token": f"<{name}>" for name in ("pad", "eos", "bos", "unk", "mask")}


def _qwen() -> tuple[Tokenizer, dict[str, Any]]:
    """As Qwen3-Embedding has it: bytes, `<|endoftext|>` after all."""
    tokens = dict.fromkeys([*sorted(pre_tokenizers.ByteLevel.alphabet()), *_merged("Ġ")])
    native = Tokenizer(models.BPE({token: number for number, token in enumerate(tokens)}, _merges("Ġ")))
    native.add_special_tokens(["<|endoftext|>", "<|im_start|>", "<|im_end|>"])
    native.normalizer = normalizers.NFC()
    split = pre_tokenizers.Split(Regex(QWEN_PIECES), "isolated")
    native.pre_tokenizer = pre_tokenizers.Sequence(
        [split, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
    )
    native.decoder = decoders.ByteLevel()
    frame = _frame(native, "$A <|endoftext|>")
    native.post_processor = processors.Sequence([processors.ByteLevel(add_prefix_space=False), frame])
    return native, {"eos_token": "<|im_end|>", "pad_token": "<|endoftext|>", "add_bos_token": False}


QWEN_PIECES = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)


def _pieces(specials: list[str]) -> Tokenizer:
    """A BPE of SentencePiece's kind."""
    tokens = dict.fromkeys([*specials, *(f"<0x{byte:02X}>" for byte in range(256)), "▁", *LETTERS, *_merged("▁")])
    vocabulary = {token: number for number, token in enumerate(tokens)}
    model = models.BPE(vocabulary, _merges("▁"), unk_token="<unk>", fuse_unk=True, byte_fallback=True)
    native = Tokenizer(model)
    native.add_special_tokens(specials)
    return native


def _merges(space: str) -> list[tuple[str, str]]:
    return [(left.replace("_", space), right) for left, right in MERGES]


def _merged(space: str) -> list[str]:
    return [left + right for left, right in _merges(space)]


def _frame(native: Tokenizer, single: str) -> processors.TemplateProcessing:
    special = [(token, native.token_to_id(token)) for token in re.findall(r"<\S+>", single)]
    return processors.TemplateProcessing(single=single, special_tokens=special)
