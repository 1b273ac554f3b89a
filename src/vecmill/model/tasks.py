"""What a checkpoint was trained to answer, and the settings of each answer.

The chain of modules says it where there is one, then `architectures` of config.json, then, for the few kinds that no
file tells from their neighbours, the name. `--task` overrides all of it.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from vecmill.errors import CorruptFile, UnsupportedModel
from vecmill.model.jsonfile import architectures, read_json
from vecmill.model.late import LIBRARIES, MASK, STANFORD

Task = Literal["embed", "classify", "rerank", "sparse", "multi"]
TASKS: tuple[Task, ...] = ("embed", "classify", "rerank", "sparse", "multi")

Mark = Literal["second", "prompt", "seen"]
"""A place in each input that a graph wants to know: where the second text begins, whose tokens have another type; where
the prompt ends, which the pooling leaves out; where the tokens end that others see."""

CLASSIFIER = "ForSequenceClassification"
LANGUAGE_MODEL = "ForCausalLM"

UNANSWERED = {
    "ForTokenClassification": "a token tagger",
    "ForQuestionAnswering": "a question answerer",
    "ForMultipleChoice": "a chooser of answers",
}
"""Endings of `architectures` that vecmill does not answer for."""

TYPES = {"bert": 2, "electra": 2, "albert": 2, "nomic_bert": 2, "jina_bert": 2, "new": 1, "gte": 1, "deberta-v2": 0}
"""Families whose graphs take token types, and how many there are where config.json does not say."""

UNTYPED = {
    *("camembert", "distilbert", "modernbert", "mpnet", "roberta", "xlm-roberta"),
    *("gemma3_text", "llama", "mistral", "qwen2", "qwen3"),
}
"""Families whose graphs take none. What other families take the torch engine asks transformers."""


@dataclass(frozen=True, slots=True)
class Classifier:
    """Scores of labels from the family's own classification head.

    Attributes:
        labels: Names by number, as `id2label` has them.
        activation: What makes probabilities of scores: "sigmoid" for one label or for many at once, else "softmax";
            "none" where the model answers numbers that are no probabilities.
    """

    labels: tuple[str, ...]
    activation: str


@dataclass(frozen=True, slots=True)
class YesNo:
    """The score of a reranker that is a language model: its logit of one token less that of another.

    Attributes:
        true: The token that says yes.
        false: The token that says no; None leaves it at the first logit.
        template: What the two texts are put into.
    """

    true: int
    false: int | None
    template: "Template"

    labels = ("relevance",)
    activation = "sigmoid"


@dataclass(frozen=True, slots=True)
class Template:
    """Frame and body of a prompt, the body with {instruction}, {first} and {second}; only the body is ever cut."""

    head: str
    body: str
    tail: str
    instruction: str


@dataclass(frozen=True, slots=True)
class Splade:
    """Weights of vocabulary entries from the masked language model (Formal et al., arXiv 2109.10086).

    Attributes:
        pooling: "max" or "sum" over tokens.
        twice: log1p is applied twice, as OpenSearch's models have it (arXiv 2504.14839).
    """

    pooling: str = "max"
    twice: bool = False


@dataclass(frozen=True, slots=True)
class TokenWeights:
    """Weights of an input's own tokens, the largest of each (BGE-M3, arXiv 2402.03216).

    Attributes:
        file: A file of PyTorch with the linear layer that weighs a state.
        ignored: Ids of special tokens, which have no weight.
    """

    file: Path
    ignored: frozenset[int]


QWEN3 = Template(
    head="<|im_start|>system\nJudge whether the Document meets the requirements based on the Query and the Instruct "
    'provided. Note that the answer can only be "yes" or "no".<|im_end|>\n<|im_start|>user\n',
    body="<Instruct>: {instruction}\n<Query>: {first}\n<Document>: {second}",
    tail="<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n",
    instruction="Given a web search query, retrieve relevant passages that answer the query",
)
"""How Qwen3-Reranker is asked (its model card)."""

TRAINED = {"SentenceTransformer", "CrossEncoder", "SparseEncoder", "None"}
"""`model_type` of a library that the chain of modules says as well."""

BARE = {"Transformer", "MLMTransformer"}
"""Modules that say nothing of a task."""

Modules = Sequence[tuple[str, str]]
Evidence = Callable[[str, str, frozenset[str], int], bool]
"""Whether files speak for a task, by the name, the architecture, the kinds of modules and the number of labels."""

EVIDENCE: tuple[tuple[Task, Evidence], ...] = (
    ("multi", lambda _name, made, kinds, _labels: bool(kinds & {MASK, *LIBRARIES}) or made == STANFORD),
    ("sparse", lambda _name, _made, kinds, _labels: "SpladePooling" in kinds),
    ("rerank", lambda _name, _made, kinds, _labels: "LogitScore" in kinds),
    ("embed", lambda _name, _made, kinds, _labels: bool(kinds - BARE)),
    ("rerank", lambda _name, made, _kinds, labels: made.endswith(CLASSIFIER) and labels == 1),
    ("classify", lambda _name, made, _kinds, _labels: made.endswith(CLASSIFIER)),
    ("rerank", lambda name, made, _kinds, _labels: made.endswith(LANGUAGE_MODEL) and "rerank" in name),
    ("sparse", lambda name, made, _kinds, _labels: made.endswith("ForMaskedLM") and "splade" in name),
    ("embed", lambda _name, _made, _kinds, _labels: True),
)
"""Task to what speaks for it; the first row that holds counts."""


def detect(folder: Path, config: dict[str, Any], modules: Modules) -> Task:
    """The task of a checkpoint.

    Raises:
        UnsupportedModel: It was trained for something that vecmill does not answer.
    """
    architecture = _architecture(config, folder)
    library = str(read_json(folder / "config_sentence_transformers.json", optional=True).get("model_type"))
    kinds = frozenset(kind for kind, _ in modules)
    for ending, what in UNANSWERED.items():
        if kinds <= BARE and architecture.endswith(ending):
            tasks = ", ".join(TASKS)
            raise UnsupportedModel(f"{folder}: {architecture} is {what}; served are: {tasks}")
    name = _name(folder).lower()
    count = len(labels(config, folder)) if architecture.endswith(CLASSIFIER) else 0
    return next(task for task, holds in EVIDENCE if holds(name, architecture, kinds | {library} - TRAINED, count))


MOST_LABELS = 1_000_000
"""More than any head has; a larger number is a mistake that would fill the memory with names."""


def _name(folder: Path) -> str:
    """What a checkpoint is called: its folder, or in a hub's cache (models--OWNER--NAME/snapshots/COMMIT) two above."""
    cached = folder.parent.name == "snapshots" and folder.parent.parent.name.startswith("models--")
    return folder.parent.parent.name.split("--", 2)[-1] if cached else folder.name


def labels(config: dict[str, Any], folder: Path) -> tuple[str, ...]:
    """Names of labels by number; transformers' own where config.json has none.

    Raises:
        CorruptFile: The numbers are not 0, 1, 2 ...
    """
    named, path = config.get("id2label"), folder / "config.json"
    if not isinstance(named, dict) or not named:
        count = config.get("num_labels") or 2
        if type(count) is not int or not 0 < count <= MOST_LABELS:
            raise CorruptFile(f"{path}: num_labels is {count!r}, a number of labels is needed")
        return tuple(f"LABEL_{number}" for number in range(count))
    try:
        by_number = {int(number): str(label) for number, label in named.items()}
    except ValueError as error:
        raise CorruptFile(f"{path}: id2label names labels by {', '.join(named)}, numbers are needed") from error
    if sorted(by_number) != list(range(len(by_number))):
        numbers = ", ".join(map(str, sorted(by_number)))
        raise CorruptFile(f"{path}: id2label names the numbers {numbers}, wanted 0, 1, 2 ...")
    return tuple(by_number[number] for number in range(len(by_number)))


def read_classifier(config: dict[str, Any], folder: Path) -> Classifier:
    """Labels, and what their scores become: what is stated, else what transformers' pipeline makes of `problem_type`.

    One label is how well texts fit, for which all servers have the sigmoid.

    Raises:
        UnsupportedModel: The activation that is stated is unknown.
    """
    names = labels(config, folder)
    if len(names) == 1:
        return Classifier(names, "sigmoid")
    stated = _activation(config, folder)
    if stated.startswith("torch.") and stated.rsplit(".", 1)[-1] not in ACTIVATIONS:
        supported = ", ".join(ACTIVATIONS)
        raise UnsupportedModel(
            f"{folder}: the activation {stated!r} of labels is not supported; supported: {supported}"
        )
    otherwise = PROBLEMS.get(str(config.get("problem_type")), "softmax")
    # What is not of torch is code, which sentence-transformers does not run either.
    return Classifier(names, ACTIVATIONS.get(stated.rsplit(".", 1)[-1], otherwise) if stated else otherwise)


ACTIVATIONS = {"Sigmoid": "sigmoid", "Softmax": "softmax", "Identity": "none"}
"""Classes of torch that a cross-encoder may state for its labels."""

PROBLEMS = {"multi_label_classification": "sigmoid", "regression": "none"}
"""Values of `problem_type` that say what scores become."""


def _activation(config: dict[str, Any], folder: Path) -> str:
    """The class that files of sentence-transformers name; since version 5 in its own file, before in config.json."""
    library = read_json(folder / "config_sentence_transformers.json", optional=True)
    own = config.get("sentence_transformers")
    places = (
        library.get("activation_fn"),
        own.get("activation_fn") if isinstance(own, dict) else None,
        config.get("sbert_ce_default_activation_function"),
    )
    return str(next(filter(None, places), ""))


def read_scores(folder: Path, config: dict[str, Any], modules: Modules) -> Classifier | YesNo:
    """How a classifier or reranker scores.

    Raises:
        UnsupportedModel: A language model without the tokens "yes" and "no", or asked in an unknown way.
    """
    place = next((path for kind, path in modules if kind == "LogitScore"), None)
    if place is None and not _architecture(config, folder).endswith(LANGUAGE_MODEL):
        return read_classifier(config, folder)
    if place is None:
        words = read_json(folder / modules[0][1] / "tokenizer.json").get("model", {}).get("vocab", {})
        if not isinstance(words, dict) or "yes" not in words or "no" not in words:
            raise UnsupportedModel(f"{folder}: the tokenizer has no tokens 'yes' and 'no', with which it would score")
        return YesNo(int(words["yes"]), int(words["no"]), QWEN3)
    settings = read_json(folder / place / "config.json")
    if "Judge whether the Document meets" not in chat_template(folder):
        raise UnsupportedModel(f"{folder}: a reranker whose chat template is not Qwen3-Reranker's is not supported")
    return YesNo(int(settings["true_token_id"]), settings.get("false_token_id"), QWEN3)


def chat_template(folder: Path) -> str:
    """How the checkpoint writes conversations; "" where it does not say."""
    file = folder / "chat_template.jinja"
    if file.is_file():
        return file.read_text(encoding="utf-8")
    return str(read_json(folder / "tokenizer_config.json", optional=True).get("chat_template") or "")


def read_splade(folder: Path, modules: Modules) -> Splade:
    """How weights are pooled; SPLADE's own way where no module says.

    Raises:
        UnsupportedModel: A setting is unknown.
    """
    place = next((path for kind, path in modules if kind == "SpladePooling"), None)
    settings = {} if place is None else read_json(folder / place / "config.json")
    pooling, activation = settings.get("pooling_strategy", "max"), settings.get("activation_function", "relu")
    if pooling not in {"max", "sum"} or activation not in {"relu", "log1p_relu"}:
        raise UnsupportedModel(f"{folder}: SPLADE with {pooling!r} and {activation!r} is not supported")
    return Splade(pooling, twice=activation == "log1p_relu")


def read_token_weights(folder: Path, transformer: Path) -> TokenWeights | None:
    """How BGE-M3 weighs tokens; None where it is another model."""
    file = folder / "sparse_linear.pt"
    if not file.is_file():
        return None
    special = read_json(transformer / "tokenizer.json").get("added_tokens") or []
    return TokenWeights(file, frozenset(int(token["id"]) for token in special if token["content"] in SPECIAL))


SPECIAL = {"<s>", "</s>", "<pad>", "<unk>"}


def has_types(family: str, config: dict[str, Any], folder: Path) -> bool:
    """Whether the second text of a pair has a type of its own, which tokenizer_config.json may deny."""
    named = read_json(folder / "tokenizer_config.json", optional=True).get("model_input_names")
    given = not isinstance(named, list) or "token_type_ids" in named
    types = config.get("type_vocab_size", TYPES.get(family, 0))
    if type(types) is not int:
        raise CorruptFile(f"{folder / 'config.json'}: type_vocab_size is {types!r}, a number is needed")
    return given and family not in UNTYPED and types > 1


def _architecture(config: dict[str, Any], folder: Path) -> str:
    return next(iter(architectures(config, folder)), "")
