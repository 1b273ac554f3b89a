"""What a checkpoint is, with the file that each fact comes from, and whether its numbers can be trusted."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vecmill.config import FetchSettings
from vecmill.engine.base import Batch, Engine, choose, load_engine, numbers
from vecmill.model.jsonfile import architectures
from vecmill.model.onnxfile import choose_onnx, onnx_files, size_bytes
from vecmill.model.source import Checkpoint, resolve
from vecmill.model.spec import Dense, ModelSpec, read_json, read_spec
from vecmill.model.stated import read_stated
from vecmill.model.static import MAX_TOKENS, STATIC
from vecmill.model.tasks import Splade, Task
from vecmill.model.tokenizer import Tokenizer
from vecmill.model.weights import read_weights

Ids = NDArray[np.int32]

TOLERANCE = 1e-5
"""Most that a number of a vector may move with its batch mates."""

WORDS = "time is a river that carries everything away and brings it back".split()  # noqa: SIM905 (a sentence)


@dataclass(frozen=True, slots=True)
class Fact:
    """One thing that is known of a checkpoint, and from where."""

    name: str
    value: str
    source: str


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that was tried."""

    claim: str
    passed: bool
    detail: str


def examine(
    model: str,
    settings: FetchSettings,
    *,
    precision: str = "float32",
    threads: int = 0,
    task: Task | None = None,
) -> tuple[list[Fact], list[Check]]:
    """Read a checkpoint, load it and try it.

    Args:
        model: As `vecmill serve` takes it.
        settings: Where it comes from.
        precision: What its weights are kept in.
        threads: Threads to compute with; 0 means as many as this process may use.
        task: What it is to answer; None leaves that to what it was trained for.

    Raises:
        LoadError: It cannot be read or loaded; the message says why.
    """
    checkpoint = resolve(model, settings)
    spec = read_spec(checkpoint.folder, task)
    kind = choose(spec)
    engine = load_engine(kind, spec, threads=threads, precision=precision)
    subject = Subject(engine, spec, Tokenizer(spec))
    checks = [check(subject) for check in CHECKS]
    engine.close()
    return facts(checkpoint, spec, kind, precision), checks


def facts(checkpoint: Checkpoint, spec: ModelSpec, kind: str, precision: str) -> list[Fact]:
    """What the files say, and which engine of `ENGINES` that makes it."""
    chain = _chain_source(spec)
    tokenizer = "tokenizer.json" if (spec.transformer / "tokenizer.json").is_file() else "vocab.txt"
    static = spec.family == STATIC
    prompts = ", ".join(f"{name}={text!r}" for name, text in spec.prompts.items()) or "none"
    after = [
        f"Dense {m.in_features}x{m.out_features} {m.activation}" if isinstance(m, Dense) else "Normalize"
        for m in spec.tail
    ]
    return [
        Fact("folder", str(checkpoint.folder), checkpoint.revision),
        Fact("architecture", spec.family, "its modules, or model2vec" if static else "config.json: model_type"),
        Fact("engine", kind, "architecture, and which weights there are"),
        _exported_file(spec.transformer, precision) if kind == "exported" else _weights(spec.transformer),
        Fact("vocabulary", str(spec.vocab_size), f"{'the table' if static else 'config.json'}; tokens by {tokenizer}"),
        Fact("most tokens", str(spec.max_tokens), limit_source(spec)),
        Fact("task", spec.task, _task_source(spec)),
        Fact("gives", " and ".join(spec.outputs), "the task"),
        *(head(spec, chain, ", ".join(after) or "nothing") if (head := HEADS.get(spec.task)) else []),
        Fact("prompts", prompts, "config_sentence_transformers.json"),
        Fact("default prompt", spec.default_prompt or "none", "config_sentence_transformers.json"),
    ]


def _task_source(spec: ModelSpec) -> str:
    architecture = next(iter(architectures(spec.config, spec.transformer)), "none")
    return "modules.json" if (spec.folder / "modules.json").is_file() else f"config.json: architectures {architecture}"


def _of_embedder(spec: ModelSpec, chain: str, after: str) -> list[Fact]:
    return [
        Fact("pooling", "+".join(spec.pooling), chain),
        Fact("after pooling", after, chain),
        Fact("dimensions", str(spec.dims), "pooling and Dense"),
    ]


def _of_scorer(spec: ModelSpec, _chain: str, _after: str) -> list[Fact]:
    if spec.scores is None:
        return []
    types = "of its own" if spec.mark == "second" else "the same"
    return [
        Fact("labels", ", ".join(spec.scores.labels), "config.json: id2label"),
        Fact("probabilities", spec.scores.activation, "its activation_fn, config.json: problem_type, number of labels"),
        Fact("second text", f"token type {types}", "config.json: type_vocab_size; tokenizer_config.json"),
    ]


def _of_weigher(spec: ModelSpec, chain: str, _after: str) -> list[Fact]:
    splade = spec.sparse if isinstance(spec.sparse, Splade) else Splade()
    return [Fact("pooling", f"SPLADE, {splade.pooling} over tokens", chain)]


def _of_interactor(spec: ModelSpec, chain: str, _after: str) -> list[Fact]:
    if spec.late is None:
        return []
    longer = spec.late.expansion
    expansion = f"to {longer.length} tokens, {'seen' if longer.attend else 'unseen'}" if longer else "none"
    skipped = " ".join(spec.late.skipped) or "none"
    return [Fact("queries made longer", expansion, chain), Fact("tokens left out", skipped, chain)]


HEADS: dict[Task, Callable[[ModelSpec, str, str], list[Fact]]] = {
    "embed": _of_embedder,
    "classify": _of_scorer,
    "rerank": _of_scorer,
    "sparse": _of_weigher,
    "multi": _of_interactor,
}
"""Task to the facts of its head."""


def _chain_source(spec: ModelSpec) -> str:
    if (spec.folder / "modules.json").is_file():
        return "modules.json"
    return "config.json of model2vec" if spec.family == STATIC else "no modules.json: sentence-transformers' default"


def limit_source(spec: ModelSpec) -> str:
    """The file and key that decided the limit: the least of those that are stated."""
    if spec.family == STATIC:
        stated_in = "config.json: max_length" if spec.skips_unknown else "tokenizer.json: truncation"
        return stated_in if spec.max_tokens < MAX_TOKENS else "vecmill's own for static models"
    folder = spec.transformer
    first = read_stated(folder)
    stated: dict[str, Any] = {}
    if first.max_tokens:
        stated = {f"{first.path.name}: {first.limit_key}": first.max_tokens}
    else:
        length = read_json(folder / "tokenizer_config.json", optional=True).get("model_max_length")
        stated = {"tokenizer_config.json: model_max_length": length}
    return next((key for key, value in stated.items() if value == spec.max_tokens), "config.json: positions")


def _weights(folder: Path) -> Fact:
    weights = read_weights(folder)
    stored = Counter(tensor.dtype for tensor in weights.values())
    files = sorted({tensor.path.name for tensor in weights.values()})
    return Fact("weights", ", ".join(f"{count} {dtype}" for dtype, count in stored.most_common()), ", ".join(files))


def _exported_file(folder: Path, precision: str) -> Fact:
    file = choose_onnx(onnx_files(folder), precision) or ""
    return Fact("weights", f"{size_bytes(folder, file) / 1e6:.1f} MB", file)


def report(found: Sequence[Fact], tried: Sequence[Check]) -> str:
    """Facts and checks as lines of text."""
    lines = [f"{fact.name:>14}  {fact.value}  ({fact.source})" for fact in found]
    lines += ["", *(f"{'ok' if check.passed else 'FAILED':>14}  {check.claim}  ({check.detail})" for check in tried)]
    return "\n".join(lines)


@dataclass(frozen=True, slots=True)
class Subject:
    """A loaded model to be tried by what it is for."""

    engine: Engine
    spec: ModelSpec
    tokenizer: Tokenizer

    def rows(self, texts: Sequence[Ids]) -> list[NDArray[np.float32]]:
        """A row of numbers for each text, all in one batch."""
        (column,) = self.engine.compute(Batch.pack(texts), self.spec.outputs[:1])
        return [numbers(value, self.spec.vocab_size) for value in column]


def _numbers(subject: Subject) -> Check:
    """One token, a few, and as many as the model takes."""
    rows = subject.rows(_texts(subject.tokenizer, [1, len(WORDS), 4 * subject.tokenizer.max_tokens]))
    vectors = "dense" in subject.spec.outputs
    good = all(bool(np.isfinite(row).all() and (np.any(row) or not vectors)) for row in rows)
    claim = "vectors are finite and not zero" if vectors else f"{subject.spec.outputs[0]} are finite"
    return Check(f"{claim}, from one word to the longest input", good, f"{len(rows[0])} numbers")


def _in_a_batch(subject: Subject) -> Check:
    """The same text alone and among others of its length."""
    (text,) = _texts(subject.tokenizer, [len(WORDS)])
    others = [np.roll(text, number) for number in (1, 2, 3)]
    return _same("a text has one answer, alone and in a batch", subject, text, others)


def _beside_longer(subject: Subject) -> Check:
    """The same text alone and beside the longest input."""
    text, longest = _texts(subject.tokenizer, [3, 4 * subject.tokenizer.max_tokens])
    return _same("a text has one answer, alone and beside longer ones", subject, text, [longest])


def _apart(subject: Subject) -> Check:
    """Other texts have other answers."""
    short, long = subject.rows(_texts(subject.tokenizer, [2, len(WORDS)]))
    apart = float(np.abs(short - long).max() / max(np.abs(short).max(), np.abs(long).max(), TINY))
    return Check("other texts have other answers", apart > TOLERANCE, f"apart by {apart:.1e} of the largest number")


CHECKS: tuple[Callable[[Subject], Check], ...] = (_numbers, _in_a_batch, _beside_longer, _apart)

TINY = 1e-30


def _texts(tokenizer: Tokenizer, words: Sequence[int]) -> list[Ids]:
    """Texts of so many words, cut to the limit."""
    texts = [" ".join(WORDS[number % len(WORDS)] for number in range(count)) for count in words]
    return [tokens.ids for tokens in tokenizer.encode(texts)]


def _same(claim: str, subject: Subject, text: Ids, mates: Sequence[Ids]) -> Check:
    alone, beside = subject.rows([text])[0], subject.rows([*mates, text])[-1]
    if alone.tobytes() == beside.tobytes():
        return Check(claim, passed=True, detail="the same bytes")
    moved = float(np.abs(alone - beside).max())
    return Check(claim, moved <= TOLERANCE, f"differs by {moved:.1e}")
