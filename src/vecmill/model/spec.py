"""ModelSpec: everything that decides a model's numbers, read from its files into one frozen value.

The files mean what they mean to sentence-transformers 6: modules.json names the chain, each module's folder holds its
settings, config_sentence_transformers.json the prompts. A folder without modules.json is a bare transformer and gets
mean pooling, a language model its last token, as sentence-transformers has it. What a static model is says static.py.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from vecmill.core import Output
from vecmill.errors import CorruptFile, MissingFile
from vecmill.model.jsonfile import architectures, positive, read_json, settings_of
from vecmill.model.late import DOCUMENT, Late, read_late, read_m3
from vecmill.model.limits import first_position, max_tokens, side_limits
from vecmill.model.modules import (
    POOLINGS,
    Dense,
    LayerNorm,
    Normalize,
    Projection,
    Tail,
    read_modules,
    read_pooling,
    read_tail,
)
from vecmill.model.stated import check_states, read_stated
from vecmill.model.static import STATIC, find_static, read_limit, read_table
from vecmill.model.tasks import (
    Classifier,
    Mark,
    Splade,
    Task,
    TokenWeights,
    YesNo,
    detect,
    has_types,
    read_scores,
    read_splade,
    read_token_weights,
)

__all__ = [
    "POOLINGS",
    "Dense",
    "LayerNorm",
    "ModelSpec",
    "Normalize",
    "Projection",
    "Tail",
    "read_json",
    "read_spec",
    "unscaled",
]

IMPLIED_PROMPTS = ("query", "document")
"""Prompts that sentence-transformers knows without being told, empty by default."""

WIDTHS = ("hidden_size", "dim", "n_embd", "d_model", "emb_dim")
"""What config.json calls the width of token states; DistilBERT calls it dim, the original nomic-embed
n_embd, T5 d_model, XLM emb_dim."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSpec:
    """What a checkpoint is.

    Attributes:
        folder: The checkpoint; `transformer` is where in it config.json and the weights are.
        family: `model_type` of config.json: which graph is built; `STATIC` for a table of vectors.
        config: config.json as it is; the family reads its own keys.
        vocab_size: Rows of the embedding table: token ids are below it.
        max_tokens: Most tokens of an input, special tokens included.
        first_position: Row of the position table that the first token gets.
        lowercase: Lowercase every text before the tokenizer's own normaliser.
        pooling: Modes of `POOLINGS`, concatenated in this order; none where it gives no vectors.
        tail: Modules after the pooling, in order.
        dims: Numbers of a vector; 0 where it gives none.
        prompts: Prompt by name, put before each text.
        default_prompt: Name of the prompt used where the caller names none.
        skips_unknown: Unknown tokens are left out, as model2vec does.
        task: What it was trained for, one of `TASKS`.
        scores: How a classifier or reranker scores.
        sparse: How vocabulary entries are weighed.
        late: How tokens become vectors of their own.
        mark: A place in each input that the graph wants to know; None where it wants none.
    """

    folder: Path
    transformer: Path
    family: str
    config: dict[str, Any] = field(repr=False)
    vocab_size: int
    max_tokens: int
    first_position: int = 0
    lowercase: bool
    pooling: tuple[str, ...] = ()
    tail: Tail = ()
    dims: int = 0
    prompts: dict[str, str]
    default_prompt: str | None
    skips_unknown: bool = False
    task: Task = "embed"
    scores: Classifier | YesNo | None = None
    sparse: Splade | TokenWeights | None = None
    late: Late | None = None
    mark: Mark | None = None

    @property
    def outputs(self) -> tuple[Output, ...]:
        """What it can be asked for; the first is what it is for."""
        rows: dict[Output, bool] = {
            "dense": self.dims > 0,
            "scores": self.scores is not None,
            "sparse": self.sparse is not None,
            "multi": self.late is not None or (self.dims > 0 and self.family != STATIC),
        }
        return tuple(output for output, given in rows.items() if given)

    @property
    def native(self) -> tuple[Output, ...]:
        """What it gives in one pass: all that it was trained for."""
        return self.outputs if self.late and self.dims else self.outputs[:1]

    def width(self, output: Output) -> int:
        """Numbers of a value of an output; 0 where they differ."""
        widths: dict[Output, int] = {"dense": self.dims, "scores": len(self.scores.labels) if self.scores else 0}
        return widths.get(output, 0)

    @property
    def normalized(self) -> bool:
        """Whether the model itself returns rows of length 1."""
        return bool(self.tail) and isinstance(self.tail[-1], Normalize)


def unscaled(spec: ModelSpec) -> ModelSpec:
    """The model without its last Normalize: whoever serves it scales its vectors where a request wants that."""
    return replace(spec, tail=spec.tail[:-1]) if spec.normalized else spec


def read_spec(folder: Path, task: Task | None = None) -> ModelSpec:
    """Read a checkpoint folder.

    Args:
        folder: Where it is.
        task: What it is to answer; None leaves that to what it was trained for.

    Raises:
        MissingFile: A file or a key that is needed is absent.
        CorruptFile: A file is not JSON or says something that cannot be.
        UnsupportedModel: The chain holds a module that vecmill does not know, or the task is none that is served.
    """
    with settings_of(folder):
        return _read_spec(folder, task)


def _read_spec(folder: Path, task: Task | None) -> ModelSpec:
    modules = read_modules(folder)
    if place := find_static(folder, modules):
        return _read_static(folder, place, modules)
    transformer = folder / modules[0][1]
    config = read_json(transformer / "config.json")
    stated = read_stated(transformer)
    prompts = read_json(folder / "config_sentence_transformers.json", optional=True)
    common = ModelSpec(
        folder=folder,
        transformer=transformer,
        family=_family(config, transformer),
        config=config,
        vocab_size=positive(config, "vocab_size", transformer),
        max_tokens=max_tokens(config, stated.max_tokens, transformer),
        first_position=first_position(config, transformer),
        lowercase=stated.lowercase,
        prompts=_prompts(prompts, folder),
        default_prompt=prompts.get("default_prompt_name"),
        task=task or detect(folder, config, modules),
    )
    return HEADS[common.task](common, modules)


def _embedder(spec: ModelSpec, modules: list[tuple[str, str]]) -> ModelSpec:
    check_states(read_stated(spec.transformer))
    width = next((name for name in WIDTHS if name in spec.config), WIDTHS[0])
    numbers = positive(spec.config, width, spec.transformer)
    bare = _bare_pooling(spec.config, spec.transformer)
    pooling, include_prompt, rest = read_pooling(spec.folder, modules[1:], bare)
    tail = tuple(read_tail(spec.folder, kind, path) for kind, path in rest)
    return replace(
        spec,
        pooling=pooling,
        tail=tail,
        dims=_dims(spec.folder, numbers * len(pooling), tail),
        mark=None if include_prompt or not any(spec.prompts.values()) else "prompt",
        sparse=read_token_weights(spec.folder, spec.transformer),
        late=read_m3(spec.folder),
    )


def _scorer(spec: ModelSpec, modules: list[tuple[str, str]]) -> ModelSpec:
    scores = read_scores(spec.folder, spec.config, modules)
    return replace(
        spec, scores=scores, mark="second" if has_types(spec.family, spec.config, spec.transformer) else None
    )


def _weigher(spec: ModelSpec, modules: list[tuple[str, str]]) -> ModelSpec:
    return replace(spec, sparse=read_splade(spec.folder, modules))


def _interactor(spec: ModelSpec, modules: list[tuple[str, str]]) -> ModelSpec:
    stated = read_stated(spec.transformer)
    check_states(stated)
    late = read_late(spec.folder, spec.config, modules, stated.raw)
    late = replace(late, limits=side_limits(late, spec.max_tokens, spec.config, spec.transformer))
    return replace(
        spec,
        late=late,
        max_tokens=max(late.limits.values()),
        prompts=late.prompts,
        default_prompt=DOCUMENT,
        mark="seen" if late.unseen else None,
    )


HEADS: dict[Task, Callable[[ModelSpec, list[tuple[str, str]]], ModelSpec]] = {
    "embed": _embedder,
    "classify": _scorer,
    "rerank": _scorer,
    "sparse": _weigher,
    "multi": _interactor,
}
"""Task to what the checkpoint says of its head."""


def _bare_pooling(config: dict[str, Any], folder: Path) -> str:
    """What a transformer alone is pooled with: the last token of a language model whose tokens see only the past."""
    causal = next(iter(architectures(config, folder)), "").endswith("ForCausalLM") and config.get("is_causal", True)
    return "lasttoken" if causal else "mean"


def _read_static(folder: Path, place: Path, modules: list[tuple[str, str]]) -> ModelSpec:
    table, config = read_table(place), read_json(place / "config.json", optional=True)
    by_chain = (folder / "modules.json").is_file()
    normalize = (Normalize(),) if config.get("normalize") else ()
    tail = tuple(read_tail(folder, kind, path) for kind, path in modules[1:]) if by_chain else normalize
    prompts = read_json(folder / "config_sentence_transformers.json", optional=True)
    return ModelSpec(
        folder=folder,
        transformer=place,
        family=STATIC,
        config=config,
        vocab_size=table.tokens,
        max_tokens=read_limit(place, config, by_chain=by_chain),
        lowercase=False,
        pooling=("mean",),
        tail=tail,
        dims=_dims(folder, table.dims, tail),
        prompts=_prompts(prompts, folder),
        default_prompt=prompts.get("default_prompt_name"),
        skips_unknown=not by_chain,
    )


def _dims(folder: Path, width: int, tail: Tail) -> int:
    for module in tail:
        if isinstance(module, Dense):
            if module.in_features != width:
                raise CorruptFile(f"{module.folder}: takes {module.in_features} numbers, gets {width} in {folder}")
            width = module.out_features
        if isinstance(module, LayerNorm) and module.dims != width:
            raise CorruptFile(f"{module.folder}: takes {module.dims} numbers, gets {width} in {folder}")
    return width


def _family(config: dict[str, Any], folder: Path) -> str:
    family = config.get("model_type")
    if not isinstance(family, str):
        raise MissingFile(f"{folder / 'config.json'}: no model_type")
    # Jina's own code goes by BERT's name.
    return "jina_bert" if (family, config.get("position_embedding_type")) == ("bert", "alibi") else family


def _prompts(settings: dict[str, Any], folder: Path) -> dict[str, str]:
    """Prompt by name; a null is an empty prompt, and so are `query` and `document` where one of them is the default."""
    path = folder / "config_sentence_transformers.json"
    prompts = settings.get("prompts") or {}
    if not isinstance(prompts, dict) or not all(isinstance(text, str | None) for text in prompts.values()):
        raise CorruptFile(f"{path}: prompts is no object of texts")
    default = settings.get("default_prompt_name")
    if not isinstance(default, str | None):
        raise CorruptFile(f"{path}: default_prompt_name is {default!r}, a name is needed")
    if default in IMPLIED_PROMPTS:
        prompts = {default: "", **prompts}
    if default is not None and default not in prompts:
        raise CorruptFile(f"{path}: no prompt of the default name {default!r}")
    return {name: text or "" for name, text in prompts.items()}
