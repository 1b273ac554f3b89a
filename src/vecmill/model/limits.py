"""How long an input may be, and where its positions start."""

from pathlib import Path
from typing import Any

from vecmill.errors import CorruptFile, MissingFile, UnsupportedModel
from vecmill.model.jsonfile import read_json
from vecmill.model.late import QUERY, SIDES, Late

POSITIONS = ("max_position_embeddings", "max_trained_positions", "n_positions")
"""What config.json calls the number of positions. The original nomic-embed turns beyond those it was trained with."""

AFTER_PADDING = (
    *("roberta", "xlm-roberta", "camembert", "mpnet"),
    *("data2vec-text", "ibert", "lilt", "longformer", "luke", "roberta-prelayernorm", "xlm-roberta-xl", "xmod"),
)
"""Families that number positions from the padding's id + 1, as fairseq does: earlier rows of the table are unused."""

FAIRSEQ_PADDING = 1
"""The padding's id where config.json gives none."""


def max_tokens(config: dict[str, Any], settings: dict[str, Any], folder: Path) -> int:
    """The limit that the model states, never beyond the positions that it has.

    sentence-transformers believes `max_seq_length` even beyond the position table, and then fails on long inputs.

    Args:
        config: config.json.
        settings: Of the first module.
        folder: Where they are.

    Raises:
        MissingFile: No file states a limit.
        CorruptFile: There are no positions.
    """
    tokenizer = read_json(folder / "tokenizer_config.json", optional=True)
    stated = settings.get("max_seq_length") or tokenizer.get("model_max_length")
    limits = [limit for limit in (stated, _positions(config, folder)) if isinstance(limit, int) and limit > 0]
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
    positions = _positions(config, folder) or max(length, *said.values())
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
