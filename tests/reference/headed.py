"""Tiny checkpoints with a head, as transformers itself makes and saves them, for every family."""

from pathlib import Path
from typing import Any

import numpy as np
import rotary_encoders
from numpy.typing import NDArray

import encoders
import tiny_decoders
import tiny_tokenizers
from checkpoints import CONFIG, write_json, write_tokenizer

SMALL: dict[str, Any] = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 32}
ROTARY = rotary_encoders.SIZES
SPECIAL = {"bos_token_id": 2, "cls_token_id": 2, "eos_token_id": 3, "sep_token_id": 3}

CONFIGS: dict[str, dict[str, Any]] = {
    "bert": {**SMALL, "max_position_embeddings": 40},
    **encoders.CONFIGS,
    "gte": {**ROTARY, "type_vocab_size": 2},
    "modernbert": {**ROTARY, **SPECIAL, "num_hidden_layers": 4, "local_attention": 8},
    "nomic_bert": {**ROTARY, "hidden_act": "silu"},
    **dict.fromkeys(tiny_decoders.FAMILIES, tiny_decoders.SIZES),
}
"""Family to its config; vocabularies come from the tokenizers."""

DECODERS = tiny_decoders.FAMILIES
CLASSIFIERS = tuple(CONFIGS)
MASKED = tuple(family for family in CONFIGS if family not in {*DECODERS, "gte", "nomic_bert"})

PAIRS = [
    ("the cat", "The cat sat on the mat."),
    ("the cat", "dog"),
    ("hello world!", "time, people, way: the day of the dog"),
    ("a", "b"),
    ("?", "cats walking, dogs running " * 20),
]
"""Short ones, and one whose second text is longer than every limit."""

TEXTS = ["cat", "The cat sat on the mat.", "a b c d e f g " * 9, "?"]


def save_encoder(folder: Path, family: str, **changes: Any) -> Path:
    """What `save_pretrained` writes of a random model without a head."""
    return save(folder, family, "", **changes)


def save(folder: Path, family: str, kind: str, **changes: Any) -> Path:
    """What `save_pretrained` writes of a random model of transformers' Auto class of that kind; "" has no head."""
    import torch
    import transformers

    folder.mkdir(parents=True, exist_ok=True)
    size = write_its_tokenizer(folder, family)
    config = transformers.AutoConfig.for_model(
        family, **{**CONFIGS[family], "vocab_size": size, "initializer_range": 0.4, **changes}
    )
    torch.manual_seed(0)
    model = getattr(transformers, f"AutoModelFor{kind}" if kind else "AutoModel").from_config(config)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim == 1:  # norms and biases, which are 0 or 1 in a fresh model
                parameter.add_(0.3 * torch.randn_like(parameter))
    model.save_pretrained(folder)
    return folder


def write_its_tokenizer(folder: Path, family: str) -> int:
    """The family's own kind of tokenizer; the size of its vocabulary."""
    if family in encoders.TOKENIZERS:
        kind = encoders.TOKENIZERS[family]
        return tiny_tokenizers.WRITERS[kind](folder, kind)
    if family in DECODERS:
        return tiny_decoders.write_tokenizer(folder, tiny_decoders.TOKENIZERS[family])
    write_tokenizer(folder)
    if family == "modernbert":
        named = {f"{name}_token": f"[{name.upper()}]" for name in ("pad", "unk", "cls", "sep", "mask")}
        change = {"model_input_names": ["input_ids", "attention_mask"], "tokenizer_class": "PreTrainedTokenizerFast"}
        write_json(folder / "tokenizer_config.json", {"model_max_length": 40, **change, **named})
    return int(CONFIG["vocab_size"])


def logits(folder: Path, kind: str, texts: list[Any], max_length: int = 40) -> list[NDArray[np.float32]]:
    """Transformers' logits of each text or pair alone."""
    import torch
    import transformers

    torch.set_num_threads(1)
    tokenizer = transformers.AutoTokenizer.from_pretrained(str(folder))
    model = getattr(transformers, f"AutoModelFor{kind}").from_pretrained(str(folder), dtype="float32").eval()
    rows = []
    for text in texts:
        both = text if isinstance(text, tuple) else (text,)
        strategy = "only_second" if len(both) > 1 else True
        albert = {"return_token_type_ids": True} if model.config.model_type == "albert" else {}
        inputs = tokenizer(*both, truncation=strategy, max_length=max_length, return_tensors="pt", **albert)
        with torch.no_grad():
            rows.append(model(**inputs).logits[0].numpy())
    return rows
