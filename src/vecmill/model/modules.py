"""The chain of modules as sentence-transformers 6 reads it: modules.json, and the settings in each module's folder."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vecmill.errors import CorruptFile, UnsupportedModel
from vecmill.model.jsonfile import decode, positive, read_json

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


KNOWN = ("sentence_transformers.", "pylate.models.")
"""Where classes of modules come from that are known by their names."""

ROW, TOKENS = "sentence_embedding", "token_embeddings"
"""What a module works on: the pooled row, or the states of tokens."""

TRAINING = "Dropout"
"""A module that does nothing but in training."""

FIRST = ("Transformer", "StaticEmbedding", "MLMTransformer")
"""Modules that a chain can begin with."""


@dataclass(frozen=True, slots=True)
class Dense:
    """A linear layer with an activation after pooling; its weights are in `folder`."""

    folder: Path
    in_features: int
    out_features: int
    bias: bool
    activation: str
    residual: bool = False


@dataclass(frozen=True, slots=True)
class LayerNorm:
    """A LayerNorm of rows; its weights are in `folder`."""

    folder: Path
    dims: int


@dataclass(frozen=True, slots=True)
class Normalize:
    """Rows divided by their L2 norm."""


@dataclass(frozen=True, slots=True)
class Projection:
    """A linear layer whose size is that of its tensor.

    Attributes:
        place: A file of PyTorch, or a folder of weights.
        weight: Name of the tensor [out, in].
        bias: Name of the tensor [out]; None for none.
    """

    place: Path
    weight: str
    bias: str | None = None


Module = Dense | LayerNorm | Normalize | Projection
Tail = tuple[Module, ...]


def read_modules(folder: Path) -> list[tuple[str, str]]:
    """The chain as (kind, path) pairs, the transformer or the table first.

    Raises:
        CorruptFile: A module lacks a type or a path, or its path leaves the folder.
        UnsupportedModel: A module is code, or the first is not of `FIRST`.
    """
    path = folder / "modules.json"
    if not path.is_file():
        return [("Transformer", "")]
    rows = decode(path)
    try:
        named = [(str(row["type"]), str(row["path"])) for row in rows]
    except (TypeError, KeyError) as error:
        raise CorruptFile(f"{path}: every module needs a type and a path") from error
    for kind, place in named:
        if not kind.startswith(KNOWN):
            raise UnsupportedModel(f"{path}: module {kind!r} is code that vecmill does not know")
        if Path(place).is_absolute() or ".." in Path(place).parts:
            raise CorruptFile(f"{path}: the path {place!r} of module {kind!r} leaves the folder")
    modules = [(kind.rsplit(".", 1)[-1], place) for kind, place in named]
    first = modules[0][0] if modules else "absent"
    if first not in FIRST:
        raise UnsupportedModel(f"{path}: the first module is {first}, not {' or '.join(FIRST)}")
    return [(kind, place) for kind, place in modules if kind != TRAINING]


def read_pooling(
    folder: Path, modules: list[tuple[str, str]], default: str = "mean"
) -> tuple[tuple[str, ...], bool, list[tuple[str, str]]]:
    """Modes, whether the prompt is pooled, and the modules that follow; `default` where no module says.

    Raises:
        MissingFile: The pooling has no config.json.
        CorruptFile: A mode is no name.
        UnsupportedModel: The module is no pooling, or a mode is unknown.
    """
    if not modules:
        return (default,), True, []
    (kind, place), rest = modules[0], modules[1:]
    if kind != "Pooling":
        raise UnsupportedModel(f"{folder}: module {kind!r} after the transformer is not supported; supported: Pooling")
    path = folder / place / "config.json"
    settings = read_json(path)
    old = [mode for key, mode in OLD_POOLING_KEYS.items() if settings.get(key)]
    named = settings.get("pooling_mode") or old or "mean"
    if not isinstance(named, str | list):
        raise CorruptFile(f"{path}: pooling_mode is {named!r}, a name or a list of names is needed")
    modes = (named,) if isinstance(named, str) else tuple(named)
    unknown = [mode for mode in modes if mode not in POOLINGS]
    if unknown:
        raise UnsupportedModel(f"{path}: pooling {', '.join(map(str, unknown))}; supported: {', '.join(POOLINGS)}")
    # The width that is stated here counts nowhere: the states have the transformer's.
    return modes, bool(settings.get("include_prompt", True)), rest


def read_tail(folder: Path, kind: str, place: str, given: str = ROW) -> Module:
    """A module after the pooling, or on the states of tokens.

    Args:
        folder: The checkpoint.
        kind: Its class.
        place: Its folder.
        given: What it works on, `ROW` or `TOKENS`.

    Raises:
        MissingFile: Its config.json or a key is absent.
        UnsupportedModel: It is of an unknown kind or works in an unknown way.
    """
    if kind == "Normalize":
        path = folder / place / "config.json"
        _check_names(path, read_json(path, optional=True), given)
        return Normalize()
    if kind == "Dense":
        return _read_dense(folder / place, given)
    if kind == "LayerNorm":
        return LayerNorm(folder / place, positive(read_json(folder / place / "config.json"), "dimension", folder))
    supported = "Transformer, Pooling, Dense, LayerNorm, Normalize"
    raise UnsupportedModel(f"{folder}: module {kind!r} is not supported; supported: {supported}")


def _check_names(path: Path, settings: dict[str, Any], given: str) -> None:
    """A module works on what is given to it, not on something of another name."""
    for key in ("module_input_name", "module_output_name"):
        if settings.get(key) not in (None, given):
            raise UnsupportedModel(f"{path}: {key} = {settings[key]!r} is not supported; supported: {given}")


def _read_dense(folder: Path, given: str) -> Dense:
    path = folder / "config.json"
    settings = read_json(path)
    _check_names(path, settings, given)
    activation = str(settings.get("activation_function", "torch.nn.modules.activation.Tanh"))
    if not activation.startswith("torch."):
        raise UnsupportedModel(f"{path}: activation_function {activation!r} is code that vecmill does not know")
    return Dense(
        folder=folder,
        in_features=positive(settings, "in_features", folder),
        out_features=positive(settings, "out_features", folder),
        bias=bool(settings.get("bias", True)),
        activation=activation.rsplit(".", 1)[-1],
        residual=bool(settings.get("use_residual")),
    )
