"""What a smaller precision costs a model, on the user's own pairs of texts, before anyone trusts it."""

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from vecmill.config import FetchSettings
from vecmill.engine.base import Batch, Engine, choose, load_engine
from vecmill.errors import BadSettings
from vecmill.model.source import resolve
from vecmill.model.spec import ModelSpec, read_spec
from vecmill.model.tokenizer import Tokenizer

REFERENCE = "float32"

BATCH_TOKENS = 512

Rows = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Pair:
    """Two texts, and how alike a person found them, if known."""

    first: str
    second: str
    gold: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One precision, measured.

    Attributes:
        precision: What the weights were kept in.
        spearman: Rank correlation of the pairs' similarities with those of float32.
        gold_spearman: The same with the persons' scores; None where the pairs have none.
        mean_cosine: Of each text's vector with its float32 vector, in the mean.
        worst_cosine: The least of them.
        weights_mb: What the weights take, in 10^6 bytes.
        tokens_per_s: Speed over the texts of the pairs, in batches of equal length.
        load_s: Seconds from files to an engine.
    """

    precision: str
    spearman: float
    gold_spearman: float | None
    mean_cosine: float
    worst_cosine: float
    weights_mb: float
    tokens_per_s: float
    load_s: float


def verify(
    model: str, precisions: Iterable[str], pairs: Sequence[Pair], settings: FetchSettings, *, threads: int = 0
) -> list[Finding]:
    """Measure a model in float32 and in each of the precisions.

    Args:
        model: As `vecmill serve` takes it.
        precisions: Of `vecmill.graph.quantize.PRECISIONS`; float32 comes first anyway.
        pairs: At least two.
        settings: Where the model comes from.
        threads: Threads to compute with; 0 means as many as this process may use.

    Raises:
        LoadError: The model cannot be loaded.
        BadSettings: There are fewer than two pairs.
    """
    if len(pairs) < 2:
        raise BadSettings(f"{len(pairs)} pairs; a rank correlation needs at least 2")
    spec = read_spec(resolve(model, settings).folder)
    texts = [text for pair in pairs for text in (pair.first, pair.second)]
    ids = [tokens.ids for tokens in Tokenizer(spec).encode(texts, spec.prompts.get(spec.default_prompt or "", ""))]
    findings: list[Finding] = []
    reference: Rows | None = None
    for precision in dict.fromkeys([REFERENCE, *precisions]):
        started = time.perf_counter()
        engine = load_engine(choose(spec), spec, threads=threads, precision=precision)
        load_s = time.perf_counter() - started
        rows, tokens_per_s = _embed(engine, ids, spec)
        reference = rows if reference is None else reference
        findings.append(_compare(precision, rows, reference, pairs, (engine.weight_bytes, tokens_per_s, load_s)))
        engine.close()
    return findings


def read_pairs(path: Path | None) -> list[Pair]:
    """Pairs of a file, a line each: `text TAB text` or `text TAB text TAB score`; of our own sentences without a file.

    Raises:
        BadSettings: The file is not there, or a line is not of this form.
    """
    if path is None:
        lines = files("vecmill").joinpath("sentences.txt").read_text(encoding="utf-8").splitlines()
        return [Pair(first, second) for number, first in enumerate(lines) for second in lines[:number]]
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise BadSettings(f"--pairs {path}: {error}") from error
    return [_pair(line.split("\t"), f"{path}:{number}") for number, line in enumerate(lines, 1) if line.strip()]


def spearman(first: NDArray[np.float64], second: NDArray[np.float64]) -> float:
    """Rank correlation; equal values share the mean of their ranks."""
    return float(np.corrcoef(_ranks(first), _ranks(second))[0, 1])


def table(findings: Sequence[Finding]) -> str:
    """The findings as lines of text."""
    gold = findings[0].gold_spearman is not None
    heads = [
        "precision",
        "Spearman",
        *(["gold"] if gold else []),
        "mean cos",
        "worst cos",
        "weights MB",
        "tokens/s",
        "load s",
    ]
    lines = [heads]
    for one in findings:
        scores = [one.spearman, *([one.gold_spearman or 0.0] if gold else [])]
        lines.append(
            [
                one.precision,
                *(f"{score:.4f}" for score in scores),
                f"{one.mean_cosine:.4f}",
                f"{one.worst_cosine:.4f}",
                f"{one.weights_mb:.1f}",
                f"{one.tokens_per_s:.0f}",
                f"{one.load_s:.2f}",
            ]
        )
    return "\n".join("  ".join(f"{cell:>10}" for cell in line) for line in lines)


def _pair(row: list[str], where: str) -> Pair:
    if len(row) not in {2, 3} or not row[0] or not row[1]:
        raise BadSettings(f"{where}: a line holds two texts and perhaps a score, separated by tabs")
    try:
        return Pair(row[0], row[1], float(row[2]) if len(row) == 3 else None)
    except ValueError as error:
        raise BadSettings(f"{where}: the score {row[2]!r} is no number") from error


def _embed(engine: Engine, ids: Sequence[NDArray[np.int32]], spec: ModelSpec) -> tuple[Rows, float]:
    """Rows in the order of the texts, each distinct text once, and tokens a second."""
    order = sorted(range(len(ids)), key=lambda number: (len(ids[number]), ids[number].tobytes()))
    rows = np.empty((len(ids), spec.dims), dtype=np.float32)
    engine.run(Batch.pack([ids[order[0]]]))
    started, tokens, at = time.perf_counter(), 0, 0
    while at < len(order):
        length = len(ids[order[at]])
        some = [n for n in order[at : at + max(1, BATCH_TOKENS // length)] if len(ids[n]) == length]
        rows[some] = engine.run(Batch.pack([ids[number] for number in some]))
        tokens += length * len(some)
        at += len(some)
    return rows, tokens / (time.perf_counter() - started)


def _compare(
    precision: str, rows: Rows, reference: Rows, pairs: Sequence[Pair], cost: tuple[int, float, float]
) -> Finding:
    likeness, wanted = _similarities(rows), _similarities(reference)
    gold = [pair.gold for pair in pairs if pair.gold is not None]
    cosines = _cosines(rows, reference)
    weight_bytes, tokens_per_s, load_s = cost
    return Finding(
        precision=precision,
        spearman=spearman(likeness, wanted),
        gold_spearman=spearman(likeness, np.array(gold)) if len(gold) == len(pairs) else None,
        mean_cosine=float(cosines.mean()),
        worst_cosine=float(cosines.min()),
        weights_mb=weight_bytes / 1e6,
        tokens_per_s=tokens_per_s,
        load_s=load_s,
    )


def _similarities(rows: Rows) -> NDArray[np.float64]:
    """Cosine of each pair; rows alternate."""
    return _cosines(rows[0::2], rows[1::2])


def _cosines(first: Rows, second: Rows) -> NDArray[np.float64]:
    products: NDArray[np.float64] = np.einsum("ij,ij->i", first, second, dtype=np.float64)
    cosines: NDArray[np.float64] = products / (np.linalg.norm(first, axis=1) * np.linalg.norm(second, axis=1))
    return cosines


def _ranks(values: NDArray[np.float64]) -> NDArray[np.float64]:
    _, where, counts = np.unique(values, return_inverse=True, return_counts=True)
    ends = np.cumsum(counts, dtype=np.float64)
    ranks: NDArray[np.float64] = (ends - (counts - 1) / 2)[where]
    return ranks
