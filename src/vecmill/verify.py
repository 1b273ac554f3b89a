"""What a smaller precision costs a model, on the user's own pairs of texts, before anyone trusts it."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from vecmill.config import FetchSettings
from vecmill.core import Pair
from vecmill.engine.base import Batch, Engine, choose, load_engine, numbers
from vecmill.errors import BadSettings, MissingFile, UnsupportedModel
from vecmill.model.source import resolve
from vecmill.model.spec import ModelSpec, read_spec
from vecmill.model.tasks import Task
from vecmill.model.tokenizer import Tokenizer

REFERENCE = "float32"

SMALLER = ("int8", "int4", "bfloat16", "float16")
"""What is measured beside it where nothing is named."""

BATCH_TOKENS = 512

TINY = 1e-30
"""Rows of zeros, as a sparse model may give them, are divided by this."""

Ids = NDArray[np.int32]
Row = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Judged:
    """Two texts, and how alike a person found them, if known."""

    first: str
    second: str
    gold: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One precision, measured.

    Attributes:
        precision: What the weights were kept in.
        spearman: Rank correlation of the pairs' similarities, or scores, with those of float32.
        gold_spearman: The same with the persons' scores; None where the pairs have none.
        mean_cosine: Of each text's numbers with those of float32, in the mean.
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
    model: str,
    precisions: Sequence[str],
    pairs: Sequence[Judged],
    settings: FetchSettings,
    *,
    threads: int = 0,
    task: Task | None = None,
) -> list[Finding]:
    """Measure a model in float32 and in each of the precisions, by what it is for: vectors, weights or scores.

    Args:
        model: As `vecmill serve` takes it.
        precisions: What to measure; float32 comes first anyway. None named means all that the model has.
        pairs: At least two.
        settings: Where the model comes from.
        threads: Threads to compute with; 0 means as many as this process may use.
        task: What the model is to answer; None leaves that to what it was trained for.

    Raises:
        LoadError: The model cannot be loaded, or not in a precision that is named.
        BadSettings: There are fewer than two pairs.
    """
    if len(pairs) < 2:
        raise BadSettings(f"{len(pairs)} pairs; a rank correlation needs at least 2")
    spec = read_spec(resolve(model, settings).folder, task)
    ids, marks = _tokens(spec, pairs)
    findings: list[Finding] = []
    reference: list[Row] = []
    for precision in dict.fromkeys([REFERENCE, *(precisions or SMALLER)]):
        started = time.perf_counter()
        try:
            engine = load_engine(choose(spec), spec, threads=threads, precision=precision)
        except (UnsupportedModel, MissingFile):
            if precision == REFERENCE or precisions:
                raise
            continue  # nobody asked for it, and the model has it not
        load_s = time.perf_counter() - started
        rows, tokens_per_s = _run(engine, Batch.pack(ids, marks), spec)
        reference = reference or rows
        findings.append(_compare(precision, rows, reference, pairs, (engine.weight_bytes, tokens_per_s, load_s)))
        engine.close()
    return findings


def read_pairs(path: Path | None) -> list[Judged]:
    """Pairs of a file, a line each: `text TAB text` or `text TAB text TAB score`; of our own sentences without a file.

    Raises:
        BadSettings: The file is not there, or a line is not of this form.
    """
    if path is None:
        lines = files("vecmill").joinpath("sentences.txt").read_text(encoding="utf-8").splitlines()
        return [Judged(first, second) for number, first in enumerate(lines) for second in lines[:number]]
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


def _pair(row: list[str], where: str) -> Judged:
    if len(row) not in {2, 3} or not row[0] or not row[1]:
        raise BadSettings(f"{where}: a line holds two texts and perhaps a score, separated by tabs")
    try:
        return Judged(row[0], row[1], float(row[2]) if len(row) == 3 else None)
    except ValueError as error:
        raise BadSettings(f"{where}: the score {row[2]!r} is no number") from error


def _tokens(spec: ModelSpec, pairs: Sequence[Judged]) -> tuple[list[Ids], list[int] | None]:
    """Ids and marks of the texts, two to a pair; of the pairs themselves where the model reads two texts together."""
    tokenizer, prompt = Tokenizer(spec), spec.prompts.get(spec.default_prompt or "", "")
    if spec.task == "rerank":
        tokens = tokenizer.encode_pairs([Pair(pair.first, pair.second) for pair in pairs], prompt=prompt)
    else:
        texts = [text for pair in pairs for text in (pair.first, pair.second)]
        tokens = tokenizer.encode(texts, prompt)
    return [one.ids for one in tokens], [one.mark for one in tokens] if spec.mark else None


def _run(engine: Engine, inputs: Batch, spec: ModelSpec) -> tuple[list[Row], float]:
    """What the model is for, as a row of numbers for each input, and tokens a second."""
    starts, lengths, output = inputs.offsets, inputs.lengths, spec.outputs[:1]
    order = np.argsort(lengths, kind="stable")
    rows: dict[int, Row] = {}
    engine.compute(_some(inputs, order[:1]), output)
    started, at = time.perf_counter(), 0
    while at < len(order):
        length = int(lengths[order[at]])
        some = [n for n in order[at : at + max(1, BATCH_TOKENS // length)] if lengths[n] == length]
        (column,) = engine.compute(_some(inputs, np.array(some)), output)
        rows |= {n: numbers(value, spec.vocab_size) for n, value in zip(some, column, strict=True)}
        at += len(some)
    return [rows[number] for number in range(len(order))], int(starts[-1]) / (time.perf_counter() - started)


def _some(inputs: Batch, places: NDArray[np.intp]) -> Batch:
    """The inputs at these places as a batch."""
    rows = [inputs.ids[inputs.offsets[place] : inputs.offsets[place + 1]] for place in places]
    return Batch.pack(rows, None if inputs.marks is None else inputs.marks[places].tolist())


def _compare(
    precision: str,
    rows: Sequence[Row],
    reference: Sequence[Row],
    pairs: Sequence[Judged],
    cost: tuple[int, float, float],
) -> Finding:
    likeness, wanted = _likeness(rows, pairs), _likeness(reference, pairs)
    gold = [pair.gold for pair in pairs if pair.gold is not None]
    cosines = np.array([_cosine(row, one) for row, one in zip(rows, reference, strict=True)])
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


def _likeness(rows: Sequence[Row], pairs: Sequence[Judged]) -> NDArray[np.float64]:
    """A number for each pair: its score, or the cosine of its two texts, whose rows alternate."""
    if len(rows) == len(pairs):
        return np.array([row[0] for row in rows], dtype=np.float64)
    return np.array([_cosine(first, second) for first, second in zip(rows[0::2], rows[1::2], strict=True)])


def _cosine(first: Row, second: Row) -> float:
    one, two = first.astype(np.float64), second.astype(np.float64)
    return float(one @ two) / max(float(np.linalg.norm(one) * np.linalg.norm(two)), TINY)


def _ranks(values: NDArray[np.float64]) -> NDArray[np.float64]:
    _, where, counts = np.unique(values, return_inverse=True, return_counts=True)
    ends = np.cumsum(counts, dtype=np.float64)
    ranks: NDArray[np.float64] = (ends - (counts - 1) / 2)[where]
    return ranks
