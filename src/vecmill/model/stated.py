"""What the first module's settings state: sentence_bert_config.json, as sentence-transformers 6 reads it.

It hands `model_args`, `tokenizer_args` and `config_args` (since version 6 `model_kwargs`, `processor_kwargs` and
`config_kwargs`) to transformers when it loads the parts, and `processing_kwargs` to the tokenizer with every text
(base/modules/transformer.py). What would change the numbers is heeded or refused by name.
"""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from vecmill.errors import CorruptFile, UnsupportedModel
from vecmill.model.jsonfile import read_json

TRANSFORMER_CONFIGS = (
    "sentence_bert_config.json",
    "sentence_roberta_config.json",
    "sentence_distilbert_config.json",
    "sentence_camembert_config.json",
    "sentence_albert_config.json",
    "sentence_xlm-roberta_config.json",
    "sentence_xlnet_config.json",
)

OLD = {"model_args": "model_kwargs", "tokenizer_args": "processor_kwargs", "config_args": "config_kwargs"}
"""What keys were called before version 6; where a file has both, the old one counts."""

FETCHING = frozenset(
    {
        *("attn_implementation", "cache_dir", "code_revision", "device_map", "dtype", "force_download"),
        *("local_files_only", "low_cpu_mem_usage", "output_attentions", "output_hidden_states", "proxies", "revision"),
        *("subfolder", "token", "torch_dtype", "trust_remote_code", "use_auth_token", "use_cache", "use_safetensors"),
        *("add_pooling_layer", "unpad_inputs", "use_memory_efficient_attention", "use_flash_attn"),
        *("export", "file_name", "provider", "provider_options", "session_options", "use_io_binding"),
    }
)
"""Where parts come from and how they run: none of it is part of the model."""

HEEDED = frozenset(
    {
        *("model_max_length", "truncation_side", "padding_side", "do_lower_case", "strip_accents"),
        *("tokenize_chinese_chars", "add_prefix_space", "legacy", "keep_accents", "split_by_punct"),
        *(f"{name}_token" for name in ("bos", "eos", "unk", "sep", "pad", "cls", "mask")),
        *("additional_special_tokens", "extra_special_tokens"),
    }
)
"""What `tokenizer_args` may say: it wins over tokenizer_config.json."""

SHOWING = frozenset({"clean_up_tokenization_spaces", "use_fast"})

HARMLESS: dict[str, frozenset[str]] = {
    "model_kwargs": FETCHING,
    "config_kwargs": FETCHING,
    "processor_kwargs": FETCHING | HEEDED | SHOWING,
}

AS_ALWAYS: dict[str, tuple[Any, ...]] = {
    "add_special_tokens": (True,),
    "padding": (True, False, "longest"),
    "pad_to_multiple_of": (None,),
    "return_tensors": ("pt",),
    "return_attention_mask": (True, None),
    "truncation": (True, "longest_first"),
}
"""What texts are tokenized with anyway: setting and values."""

STATES = {"method": ("forward",), "method_output_name": ("last_hidden_state",)}
"""What a text's states are taken from, in `modality_config`."""


@dataclass(frozen=True, slots=True)
class Stated:
    """Settings of the first module.

    Attributes:
        path: The file, for messages.
        max_tokens: Most tokens of an input; None where the file states none.
        limit_key: The key that states it.
        lowercase: Lowercase every text before the tokenizer's own normaliser.
        tokenizer: Settings that win over those of tokenizer_config.json.
        raw: The whole file.
    """

    path: Path
    max_tokens: int | None = None
    limit_key: str = ""
    lowercase: bool = False
    tokenizer: dict[str, Any] = field(default_factory=dict)
    raw: dict[str, Any] = field(default_factory=dict)


def read_stated(folder: Path) -> Stated:
    """The first file that says anything.

    Raises:
        CorruptFile: A setting is of the wrong kind.
        UnsupportedModel: A setting would change the numbers in a way that vecmill does not know.
    """
    found = ((folder / name, read_json(folder / name, optional=True)) for name in TRANSFORMER_CONFIGS)
    path, raw = next((pair for pair in found if pair[1]), (folder / TRANSFORMER_CONFIGS[0], {}))
    names = {new: old if old in raw else new for old, new in OLD.items()}
    for new, name in names.items():
        for key, value in _object(path, raw, name).items():
            if key not in HARMLESS[new] and value is not None:
                raise UnsupportedModel(f"{path}: {name}: {key} = {value!r} is not supported")
    tokenizer = _object(path, raw, names["processor_kwargs"])
    limits = {
        "processing_kwargs": _processing(path, raw),
        names["processor_kwargs"]: tokenizer.get("model_max_length"),
        "max_seq_length": raw.get("max_seq_length"),
    }
    for name, limit in limits.items():
        if type(limit) not in {int, type(None)}:
            raise CorruptFile(f"{path}: {name} gives a length of {limit!r}, a number is needed")
    key = next((key for key, limit in limits.items() if (limit or 0) > 0), "")
    return Stated(
        path=path,
        max_tokens=limits.get(key),
        limit_key=key,
        lowercase=bool(raw.get("do_lower_case")),
        tokenizer={key: value for key, value in tokenizer.items() if key in HEEDED},
        raw=raw,
    )


def check_states(stated: Stated) -> None:
    """Refuse a transformer that gives anything but the last states of tokens.

    Raises:
        UnsupportedModel: It does, or texts go through a chat template.
    """
    path, raw = stated.path, stated.raw
    modality = _object(path, raw, "modality_config")
    if "message" in modality:
        raise UnsupportedModel(f"{path}: texts go through a chat template (modality_config): not supported")
    text = _object(path, modality, "text")
    for key, known in STATES.items():
        named = text.get(key, known[0])
        if (tuple(named) if isinstance(named, list) else (named,)) != known:
            supported = f"supported: {known[0]}"
            raise UnsupportedModel(f"{path}: modality_config: {key} = {named!r} is not supported; {supported}")
    rows = (("module_output_name", "token_embeddings"), ("transformer_task", "feature-extraction"))
    for key, wanted in rows:
        if raw.get(key) not in (None, wanted):
            raise UnsupportedModel(f"{path}: {key} = {raw[key]!r} is not supported; supported: {wanted}")


def _processing(path: Path, raw: dict[str, Any]) -> Any:  # noqa: ANN401 (JSON: the caller checks)
    """The limit that `processing_kwargs` sets, of which only what concerns texts counts."""
    given = _object(path, raw, "processing_kwargs")
    said = _object(path, given, "common") | _object(path, given, "text")
    limit = said.pop("max_length", None)
    for key, value in said.items():
        if value not in AS_ALWAYS.get(key, ()):
            raise UnsupportedModel(f"{path}: processing_kwargs: {key} = {value!r} is not supported")
    return limit


def _object(path: Path, settings: dict[str, Any], key: str) -> dict[str, Any]:
    value = settings.get(key)
    if value is not None and not isinstance(value, dict):
        raise CorruptFile(f"{path}: {key} is {value!r}, an object is needed")
    return dict(value or {})
