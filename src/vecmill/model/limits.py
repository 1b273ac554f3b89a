"""How long an input may be, and where its positions start."""

from pathlib import Path
from typing import Any

from vecmill.errors import CorruptFile, MissingFile, UnsupportedModel
from vecmill.model.jsonfile import read_json
from vecmill.model.late import QUERY, SIDES, Late

POSITIONS = ("max_position_embeddings", "max_trained_positions", "n_positions")
"""What config.json calls the number of positions."""

UNTABLED = ("gemma3_text", "gte", "llama", "mistral", "modernbert", "new", "nomic_bert", "qwen2", "qwen3")
"""Families that have no row for each position: the number that they name is of those they were trained with."""

ROTARY = ("rope_parameters", "rope_scaling", "rope_theta")
"""Keys of config.json by which other families without rows are known; ALiBi (arXiv 2108.12409) has none either."""

AFTER_PADDING = (
    *("roberta", "xlm-roberta", "camembert", "mpnet"),
    *("data2vec-text", "ibert", "lilt", "longformer", "luke", "roberta-prelayernorm", "xlm-roberta-xl", "xmod"),
)
"""Families that number positions from the padding's id + 1, as fairseq does: earlier rows of the table are unused."""

FAIRSEQ_PADDING = 1
"""The padding's id where config.json gives none."""


def max_tokens(config: dict[str, Any], stated: int | None, folder: Path) -> int:
    """The limit that the model states, never beyond the rows of its position table.

    Where there is no such table, what the first module states counts for itself, and what tokenizer_config.json states
    only up to the positions of config.json, as in sentence-transformers. That believes `max_seq_length` even beyond a
    position table, and then fails on long inputs.

    Args:
        config: config.json.
        stated: By the settings of the first module.
        folder: Where they are.

    Raises:
        MissingFile: No file states a limit.
        CorruptFile: There are no positions.
    """
    tokenizer = read_json(folder / "tokenizer_config.json", optional=True)
    positions = _rows(config, folder) if stated else _positions(config, folder)
    limit = stated or tokenizer.get("model_max_length")
    limits = [value for value in (limit, positions) if isinstance(value, int) and value > 0]
    if not limits:
        raise MissingFile(f"{folder}: no maximum length (max_seq_length, model_max_length or max_position_embeddings)")
    return min(limits)


def side_limits(late: Late, stated: int, config: dict[str, Any], folder: Path) -> dict[str, int]:
    """Most tokens of each side: what is said of it, else what the transformer says, never beyond the positions.

    Args:
        late: What a late-interaction model says.
        stated: What its transformer says.
        config: config.json.
        folder: Where it is.

    Raises:
        UnsupportedModel: Queries are made longer than there are positions.
    """
    said = {side: late.limits.get(side, stated) for side in SIDES}
    length = late.expansion.length if late.expansion else 0
    if late.expansion and late.expansion.fixed:
        said[QUERY] = length
    elif late.expansion and QUERY in late.limits:
        said[QUERY] = max(length, said[QUERY])
    positions = _rows(config, folder) or max(length, *said.values())
    if length > positions:
        raise UnsupportedModel(f"{folder}: queries are made {length} tokens long, and there are {positions} positions")
    return {side: min(limit, positions) for side, limit in said.items()}


def first_position(config: dict[str, Any], folder: Path) -> int:
    """Where positions start: at 0, or after the padding's id.

    Raises:
        CorruptFile: The padding's id is no number.
    """
    if config.get("model_type") not in AFTER_PADDING:
        return 0
    padding = config.get("pad_token_id", FAIRSEQ_PADDING)
    if not isinstance(padding, int) or padding < 0:
        raise CorruptFile(f"{folder / 'config.json'}: pad_token_id is {padding!r}, a number is needed")
    return padding + 1


def _rows(config: dict[str, Any], folder: Path) -> int:
    """How many positions an input can have at most; 0 where nothing bounds it."""
    family, kind = config.get("model_type"), config.get("position_embedding_type")
    # The scaling of the original nomic-embed does nothing up to the trained positions; beyond, it is not supported.
    untabled = (family in UNTABLED and not config.get("rotary_scaling_factor")) or kind in {"alibi", "rotary"}
    unbiased = family == "deberta-v2" and config.get("position_biased_input") is False
    if untabled or unbiased or any(key in config for key in ROTARY):
        return 0
    return _positions(config, folder)


def _positions(config: dict[str, Any], folder: Path) -> int:
    """How many positions there are; 0 where config.json does not say."""
    rows = next((config[name] for name in POSITIONS if name in config), 0)
    first = first_position(config, folder)
    if not isinstance(rows, int) or rows <= 0:
        return 0
    if rows <= first:
        path = folder / "config.json"
        raise CorruptFile(f"{path}: max_position_embeddings = {rows} leaves no position, as the first is {first}")
    return rows - first
