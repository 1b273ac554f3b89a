"""ModelSpec: everything that decides a model's numbers, read from its files into one frozen value.

The files mean what they mean to sentence-transformers 6: modules.json names the chain, each module's folder holds its
settings, config_sentence_transformers.json the prompts. A folder without modules.json is a bare transformer and gets
mean pooling, as sentence-transformers gives it.
"""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from vecmill.errors import CorruptFile, MissingFile, UnsupportedModel

POOLINGS = ("cls", "max", "mean", "mean_sqrt_len_tokens", "weightedmean", "lasttoken")
"""Pooling modes, in the order in which several are concatenated."""

OLD_POOLING_KEYS = {
    "pooling_mode_cls_token": "cls",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_mean_sqrt_len_tokens": "mean_sqrt_len_tokens",
    "pooling_mode_weightedmean_tokens": "weightedmean",
    "pooling_mode_lasttoken": "lasttoken",
}
"""The flags of files written before sentence-transformers 5, in the order in which they concatenate."""

IMPLIED_PROMPTS = ("query", "document")
"""Prompts that sentence-transformers knows without being told, empty by default."""

TRANSFORMER_CONFIGS = (
    "sentence_bert_config.json",
    "sentence_roberta_config.json",
    "sentence_distilbert_config.json",
    "sentence_camembert_config.json",
    "sentence_albert_config.json",
    "sentence_xlm-roberta_config.json",
    "sentence_xlnet_config.json",
)


@dataclass(frozen=True, slots=True)
class Dense:
    """A linear layer with an activation after pooling; its weights are in `folder`."""

    folder: Path
    in_features: int
    out_features: int
    bias: bool
    activation: str


@dataclass(frozen=True, slots=True)
class Normalize:
    """Rows divided by their L2 norm."""


Tail = tuple[Dense | Normalize, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSpec:
    """What a checkpoint is.

    Attributes:
        folder: The checkpoint; `transformer` is where in it config.json and the weights are.
        family: `model_type` of config.json: which graph is built.
        config: config.json as it is; the family reads its own keys.
        vocab_size: Rows of the embedding table: token ids are below it.
        max_tokens: Most tokens of an input, special tokens included.
        lowercase: Lowercase every text before the tokenizer's own normaliser.
        pooling: Modes of `POOLINGS`, concatenated in this order.
        include_prompt: False leaves the prompt's tokens out of the pooling.
        tail: Modules after the pooling, in order.
        dims: Numbers of a vector.
        prompts: Prompt by name, put before each text.
        default_prompt: Name of the prompt used where the caller names none.
    """

    folder: Path
    transformer: Path
    family: str
    config: dict[str, Any] = field(repr=False)
    vocab_size: int
    max_tokens: int
    lowercase: bool
    pooling: tuple[str, ...]
    include_prompt: bool
    tail: Tail
    dims: int
    prompts: dict[str, str]
    default_prompt: str | None

    @property
    def normalized(self) -> bool:
        """Whether the model itself returns rows of length 1."""
        return bool(self.tail) and isinstance(self.tail[-1], Normalize)


def read_spec(folder: Path) -> ModelSpec:
    """Read a checkpoint folder.

    Raises:
        MissingFile: A file or a key that is needed is absent.
        CorruptFile: A file is not JSON or says something that cannot be.
        UnsupportedModel: The chain holds a module that vecmill does not know.
    """
    modules = _read_modules(folder)
    transformer = folder / modules[0][1]
    config = read_json(transformer / "config.json")
    width = _number(config, "hidden_size", transformer)
    pooling, include_prompt, rest = _read_pooling(folder, modules[1:], width)
    tail = tuple(_read_tail(folder, kind, path) for kind, path in rest)
    settings = _read_first(transformer, TRANSFORMER_CONFIGS)
    prompts = read_json(folder / "config_sentence_transformers.json", optional=True)
    return ModelSpec(
        folder=folder,
        transformer=transformer,
        family=_family(config, transformer),
        config=config,
        vocab_size=_number(config, "vocab_size", transformer),
        max_tokens=_max_tokens(config, settings, transformer),
        lowercase=bool(settings.get("do_lower_case")),
        pooling=pooling,
        include_prompt=include_prompt,
        tail=tail,
        dims=_dims(folder, width * len(pooling), tail),
        prompts=_prompts(prompts, folder),
        default_prompt=prompts.get("default_prompt_name"),
    )


def _read_modules(folder: Path) -> list[tuple[str, str]]:
    """The chain as (kind, path) pairs, the transformer first."""
    path = folder / "modules.json"
    if not path.is_file():
        return [("Transformer", "")]
    rows = _decode(path)
    try:
        named = [(str(row["type"]), str(row["path"])) for row in rows]
    except (TypeError, KeyError) as error:
        raise CorruptFile(f"{path}: every module needs a type and a path") from error
    for kind, place in named:
        if not kind.startswith("sentence_transformers."):
            raise UnsupportedModel(f"{path}: module {kind!r} is code that vecmill does not know")
        if Path(place).is_absolute() or ".." in Path(place).parts:
            raise CorruptFile(f"{path}: the path {place!r} of module {kind!r} leaves the folder")
    modules = [(kind.rsplit(".", 1)[-1], place) for kind, place in named]
    if not modules or modules[0][0] != "Transformer":
        raise UnsupportedModel(f"{path}: the first module is {modules[0][0] if modules else 'absent'}, not Transformer")
    return modules


def _read_pooling(
    folder: Path, modules: list[tuple[str, str]], width: int
) -> tuple[tuple[str, ...], bool, list[tuple[str, str]]]:
    """Modes, whether the prompt is pooled, and the modules that follow."""
    if not modules:
        return ("mean",), True, []
    (kind, place), rest = modules[0], modules[1:]
    if kind != "Pooling":
        raise UnsupportedModel(f"{folder}: module {kind!r} after the transformer is not supported; supported: Pooling")
    path = folder / place / "config.json"
    settings = read_json(path)
    old = [mode for key, mode in OLD_POOLING_KEYS.items() if settings.get(key)]
    named = settings.get("pooling_mode") or old or "mean"
    modes = (named,) if isinstance(named, str) else tuple(named)
    unknown = [mode for mode in modes if mode not in POOLINGS]
    if unknown:
        raise UnsupportedModel(f"{path}: pooling {', '.join(map(str, unknown))}; supported: {', '.join(POOLINGS)}")
    found = settings.get("embedding_dimension", settings.get("word_embedding_dimension", width))
    if found != width:
        raise CorruptFile(f"{path}: pooling of {found} numbers after a transformer of {width}")
    return modes, bool(settings.get("include_prompt", True)), rest


def _read_tail(folder: Path, kind: str, place: str) -> Dense | Normalize:
    if kind == "Normalize":
        path = folder / place / "config.json"
        _check_names(path, read_json(path, optional=True))
        return Normalize()
    if kind == "Dense":
        return _read_dense(folder / place)
    raise UnsupportedModel(
        f"{folder}: module {kind!r} is not supported; supported: Transformer, Pooling, Dense, Normalize"
    )


def _check_names(path: Path, settings: dict[str, Any]) -> None:
    """A module works on the pooled row, not on token states or a row of another name."""
    for key in ("module_input_name", "module_output_name"):
        if settings.get(key) not in (None, "sentence_embedding"):
            raise UnsupportedModel(f"{path}: {key} = {settings[key]!r} is not supported; supported: sentence_embedding")


def _read_dense(folder: Path) -> Dense:
    path = folder / "config.json"
    settings = read_json(path)
    _check_names(path, settings)
    if settings.get("use_residual"):
        raise UnsupportedModel(f"{path}: use_residual = {settings['use_residual']!r} is not supported")
    activation = str(settings.get("activation_function", "torch.nn.modules.activation.Tanh"))
    if not activation.startswith("torch."):
        raise UnsupportedModel(f"{path}: activation_function {activation!r} is code that vecmill does not know")
    return Dense(
        folder=folder,
        in_features=_number(settings, "in_features", folder),
        out_features=_number(settings, "out_features", folder),
        bias=bool(settings.get("bias", True)),
        activation=activation.rsplit(".", 1)[-1],
    )


def _dims(folder: Path, width: int, tail: Tail) -> int:
    for module in tail:
        if isinstance(module, Dense):
            if module.in_features != width:
                raise CorruptFile(f"{module.folder}: takes {module.in_features} numbers, gets {width} in {folder}")
            width = module.out_features
    return width


def _family(config: dict[str, Any], folder: Path) -> str:
    family = config.get("model_type")
    if not isinstance(family, str):
        raise MissingFile(f"{folder / 'config.json'}: no model_type")
    return family


def _max_tokens(config: dict[str, Any], settings: dict[str, Any], folder: Path) -> int:
    """The limit that the model states, never beyond the positions that it has.

    sentence-transformers believes `max_seq_length` even beyond the position table, and then fails on long inputs.
    """
    tokenizer = read_json(folder / "tokenizer_config.json", optional=True)
    stated = settings.get("max_seq_length") or tokenizer.get("model_max_length")
    limits = [
        limit for limit in (stated, config.get("max_position_embeddings")) if isinstance(limit, int) and limit > 0
    ]
    if not limits:
        raise MissingFile(f"{folder}: no maximum length (max_seq_length, model_max_length or max_position_embeddings)")
    return min(limits)


def _prompts(settings: dict[str, Any], folder: Path) -> dict[str, str]:
    """Prompt by name; a null is an empty prompt, and so are `query` and `document` where one of them is the default."""
    path = folder / "config_sentence_transformers.json"
    prompts = settings.get("prompts") or {}
    if not isinstance(prompts, dict) or not all(isinstance(text, str | None) for text in prompts.values()):
        raise CorruptFile(f"{path}: prompts is no object of texts")
    default = settings.get("default_prompt_name")
    if default in IMPLIED_PROMPTS:
        prompts = {default: "", **prompts}
    if default is not None and default not in prompts:
        raise CorruptFile(f"{path}: no prompt of the default name {default!r}")
    return {name: text or "" for name, text in prompts.items()}


def _number(settings: dict[str, Any], key: str, folder: Path) -> int:
    value = settings.get(key)
    if not isinstance(value, int) or value <= 0:
        raise MissingFile(f"{folder / 'config.json'}: {key} is {value!r}, a positive number is needed")
    return value


def _read_first(folder: Path, names: tuple[str, ...]) -> dict[str, Any]:
    """The first file that says anything."""
    return next(filter(None, (read_json(folder / name, optional=True) for name in names)), {})


def read_json(path: Path, *, optional: bool = False) -> dict[str, Any]:
    """The JSON object in a file; {} where an optional file is absent.

    Raises:
        MissingFile: There is no such file.
        CorruptFile: It holds no JSON object.
    """
    if optional and not path.is_file():
        return {}
    value = _decode(path)
    if not isinstance(value, dict):
        raise CorruptFile(f"{path}: not a JSON object")
    return value


def _decode(path: Path) -> Any:  # noqa: ANN401 (JSON: the caller checks)
    try:
        return msgspec.json.decode(path.read_bytes())
    except FileNotFoundError as error:
        raise MissingFile(f"{path} is missing: fetch the model again (vecmill pull) or complete the folder") from error
    except msgspec.DecodeError as error:
        raise CorruptFile(f"{path}: not JSON ({error})") from error
