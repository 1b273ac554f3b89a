"""Late interaction: what a checkpoint of ColBERT (arXiv 2004.12832, 2112.01488) says of queries and of documents.

Three layouts are read: sentence-transformers' MultiVectorEncoder, PyLate's, and Stanford's own (`artifact.metadata`,
the projection beside the encoder). They mean what sentence-transformers 6 makes of them.
"""

import string
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from vecmill.errors import CorruptFile
from vecmill.model.jsonfile import architectures, read_json
from vecmill.model.modules import TOKENS, Module, Normalize, Projection, read_tail

QUERY, DOCUMENT = "query", "document"
SIDES = (QUERY, DOCUMENT)
"""The sides, which are the names of their prompts."""

STANFORD = "HF_ColBERT"
LIBRARY = "MultiVectorEncoder"
LIBRARIES = ("ColBERT", LIBRARY)
"""`model_type` of config_sentence_transformers.json: PyLate's, sentence-transformers'."""

MASK = "MultiVectorMask"
"""The module that says which tokens count."""

OLD_KEYS = ("do_query_expansion", "attend_to_expansion_tokens", "query_prefix", "document_prefix", "skiplist_words")
"""Keys of config_sentence_transformers.json by which PyLate's queries are known, which are longer than their text."""

DEFAULT_LENGTH = 32


@dataclass(frozen=True, slots=True)
class Expansion:
    """Queries are made longer with tokens that stand for what is not said.

    Attributes:
        length: Tokens that a query has at least.
        fixed: It has no more either.
        attend: The other tokens see them.
        token: The text of the token; None is the tokenizer's mask, or else its end.
        counts: Their vectors are answered.
    """

    length: int
    fixed: bool
    attend: bool
    token: str | None = None
    counts: bool = True


@dataclass(frozen=True, slots=True)
class Late:
    """How tokens become vectors, and which of them count.

    Attributes:
        tail: Modules on each token's state, in order.
        prompts: Side to what goes before its texts.
        markers: Of these, what is one token where the vocabulary has it.
        limits: Side to its most tokens, where it is said; they count for more than what the transformer says.
        expansion: What is added to queries.
        skipped: Words whose tokens do not count, as punctuation.
        skips: Sides on which they do not.
        only: Ids of the tokens of documents that alone count; none for all.
        drops_first: The first token does not count.
    """

    tail: tuple[Module, ...]
    prompts: dict[str, str]
    markers: tuple[str, ...]
    limits: dict[str, int]
    expansion: Expansion | None = None
    skipped: tuple[str, ...] = ()
    skips: tuple[str, ...] = (DOCUMENT,)
    only: tuple[int, ...] = ()
    drops_first: bool = False

    @property
    def unseen(self) -> bool:
        """Whether some tokens see others that do not see them."""
        return self.expansion is not None and not self.expansion.attend


def read_late(
    folder: Path, config: dict[str, Any], modules: Sequence[tuple[str, str]], settings: dict[str, Any]
) -> Late:
    """Read a checkpoint.

    Args:
        folder: Where it is.
        config: Its config.json.
        modules: Its chain.
        settings: Of the first module.

    Raises:
        MissingFile: A file that the chain names is absent.
        CorruptFile: A setting is none.
        UnsupportedModel: A module is not known.
    """
    if STANFORD in architectures(config, folder) and len(modules) == 1:
        return _read_stanford(folder)
    library = read_json(folder / "config_sentence_transformers.json", optional=True)
    tail = tuple(read_tail(folder, kind, path, TOKENS) for kind, path in modules[1:] if kind != MASK)
    mask = next((read_json(folder / path / "config.json") for kind, path in modules if kind == MASK), None)
    masked = mask is not None
    if mask is None and library.get("model_type") == LIBRARY:
        mask = {}
    elif mask is None:  # PyLate masks and normalises without saying so
        words = library.get("skiplist_words")
        mask, masked = {"skiplist_words": list(string.punctuation) if words is None else words}, True
        tail = (*tail, Normalize())
    prefixes = {side: library.get(f"{side}_prefix") or "" for side in SIDES}
    said = library.get("prompts") or {}
    prompts = {side: prefix + str(said.get(side) or "").removeprefix(prefix) for side, prefix in prefixes.items()}
    stated = {key: value for key, value in library.items() if value is not None or key == "query_expansion"} | settings
    limits = {side: int(stated[f"{side}_length"]) for side in SIDES if stated.get(f"{side}_length")}
    expansion = _expansion(folder, library, stated)
    if expansion is not None:
        expansion = replace(expansion, counts=masked or expansion.attend)
        if "query_expansion" not in stated:
            limits.pop(QUERY, None)  # PyLate's query_length is the length that queries are made
    tasks = mask.get("skiplist_tasks") or [DOCUMENT]
    return Late(
        tail,
        prompts,
        markers=tuple(filter(None, prefixes.values())),
        limits=limits,
        expansion=expansion,
        skipped=tuple(mask.get("skiplist_words") or ()),
        skips=(tasks,) if isinstance(tasks, str) else tuple(tasks),
        only=tuple(mask.get("keep_only_token_ids") or ()),
    )


def _expansion(folder: Path, library: dict[str, Any], stated: dict[str, Any]) -> Expansion | None:
    if "query_expansion" in stated:
        said = stated["query_expansion"]
        if said is None:
            return None
        length, strategy = said.get("length"), said.get("strategy")
        if not isinstance(length, int) or length < 1 or strategy not in {"fixed", "min"}:
            raise CorruptFile(f"{folder}: query_expansion is {said!r}; a strategy (fixed, min) and a length are needed")
        return Expansion(length, strategy == "fixed", bool(said.get("attend")), said.get("token"))
    known = any(key in library for key in (*OLD_KEYS, "query_length", "document_length", "attend_to_mask_tokens"))
    if not known or library.get("do_query_expansion") is False:
        return None
    attend = library.get("attend_to_expansion_tokens", library.get("attend_to_mask_tokens"))
    return Expansion(int(library.get("query_length") or DEFAULT_LENGTH), fixed=True, attend=bool(attend))


def _read_stanford(folder: Path) -> Late:
    """Metadata, or Stanford's own defaults; the projection's size is its tensor's."""
    data = read_json(folder / "artifact.metadata", optional=True)
    prompts = {
        QUERY: f"{data.get('query_token_id') or '[unused0]'} ",
        DOCUMENT: f"{data.get('doc_token_id') or '[unused1]'} ",
    }
    limits = {DOCUMENT: int(data["doc_maxlen"])} if data.get("doc_maxlen") else {}
    attend = bool(data.get("attend_to_mask_tokens"))
    expansion = Expansion(int(data.get("query_maxlen") or DEFAULT_LENGTH), fixed=True, attend=attend)
    skipped = tuple(string.punctuation) if data.get("mask_punctuation", True) else ()
    tail = (Projection(folder, "linear.weight"), Normalize())
    return Late(tail, prompts, tuple(prompts.values()), limits, expansion, skipped)


def read_m3(folder: Path) -> Late | None:
    """The late interaction of BGE-M3 (arXiv 2402.03216), whose projection lies beside the encoder; None without it.

    The first token has no vector (FlagEmbedding's model is the reference).
    """
    file = folder / M3_TOKENS
    if not file.is_file():
        return None
    return Late((Projection(file, "weight", "bias"), Normalize()), {}, (), {}, drops_first=True)


M3_TOKENS = "colbert_linear.pt"
