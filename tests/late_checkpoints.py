"""Tiny late-interaction checkpoints, made on the spot, without torch."""

from pathlib import Path
from typing import Any

from checkpoints import write_bert, write_dense, write_json

EXPANSION: dict[str, Any] = {"strategy": "fixed", "attend": False, "length": 12}
IDENTITY = "torch.nn.modules.linear.Identity"


def write_late(folder: Path, *, mask: dict[str, Any] | None = None, **knobs: Any) -> Path:
    """A BERT with a projection of its tokens, as sentence-transformers saves it; `knobs` are the transformer's."""
    write_bert(folder)
    tokens = {"module_input_name": "token_embeddings", "module_output_name": "token_embeddings"}
    settings = {"in_features": 16, "out_features": 8, "bias": False, "activation_function": IDENTITY, **tokens}
    write_dense(folder / "1_Dense", settings)
    write_json(folder / "2_MultiVectorMask/config.json", {"skiplist_words": [".", "!"], **(mask or {})})
    write_json(folder / "3_Normalize/config.json", tokens)
    kinds = ["Transformer", "Dense", "MultiVectorMask", "Normalize"]
    chain = [(f"{number}_{kind}" if number else "", kind) for number, kind in enumerate(kinds)]
    rows = [{"path": path, "type": f"sentence_transformers.base.{kind}"} for path, kind in chain]
    write_json(folder / "modules.json", rows)
    prompts = {"prompts": {"query": "query : ", "document": "passage : "}}
    write_json(folder / "config_sentence_transformers.json", {"model_type": "MultiVectorEncoder", **prompts})
    write_json(folder / "sentence_bert_config.json", {"query_expansion": EXPANSION, "document_length": 20, **knobs})
    return folder
