"""Tokenizer classes that keep only the vocabulary of tokenizer.json, as transformers 5 has them.

Such a class has rules of its own for normalising and splitting, set by tokenizer_config.json, and special tokens of its
own around a text; what tokenizer.json says of these is not heeded. All other classes take the file as it is.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers, processors

Settings = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Rules:
    """What a class does.

    Attributes:
        model: The kind of vocabulary that it is for; a tokenizer of another kind is left alone.
        split: Sets the normaliser and the splitting.
        frame: The special tokens before and after a text, as setting and default; None keeps those of tokenizer.json.
        pair: What follows the first of two texts, of the same two tokens.
    """

    model: type[models.Model]
    split: Callable[[Tokenizer, Settings], None]
    frame: tuple[tuple[str, str], tuple[str, str]] | None
    pair: str = "{last} $B:1 {last}:1"


def class_name(family: str, stated: str | None) -> str:
    """The class, without `Fast`, that transformers takes for a family whose files state one or none."""
    return ALWAYS.get(family) or (stated or CLASSES.get(family, "")).removesuffix("Fast")


def apply_class(native: Tokenizer, kind: str, settings: Settings, learn: Callable[[], None] = lambda: None) -> None:
    """Make the tokenizer what transformers makes of it.

    Args:
        native: The tokenizer of tokenizer.json; changed in place.
        kind: Name of the class, without `Fast`.
        settings: tokenizer_config.json.
        learn: Adds tokens, which are normalised as the class has it and may be the special tokens around a text.

    Raises:
        TypeError: A setting is of a wrong type.
    """
    rules = RULES.get(kind)
    if rules is None or not isinstance(native.model, rules.model):
        return learn()
    rules.split(native, settings)
    learn()
    if rules.frame is not None:
        first, last = (token_text(settings, name, default) for name, default in rules.frame)
        _frame(native, first, last, rules.pair)
    return None


def token_text(settings: Settings, name: str, default: str) -> str:
    """The text of a special token, which files give plain or as an object."""
    token = settings.get(name) or default
    return str(token["content"] if isinstance(token, dict) else token)


def _frame(native: Tokenizer, first: str, last: str, pair: str) -> None:
    """Put these tokens around a text, and around two, where the vocabulary has them."""
    special = [(token, native.token_to_id(token)) for token in (first, last)]
    if all(number is not None for _, number in special):
        both = [first, "$A", *pair.format(last=last).split()]
        native.post_processor = processors.TemplateProcessing(
            single=[first, "$A", last], pair=both, special_tokens=special
        )


def _words(native: Tokenizer, settings: Settings) -> None:
    """BERT's words and punctuation."""
    native.normalizer = normalizers.BertNormalizer(
        lowercase=settings.get("do_lower_case", True),
        strip_accents=settings.get("strip_accents"),
        handle_chinese_chars=settings.get("tokenize_chinese_chars", True),
    )
    native.pre_tokenizer = pre_tokenizers.BertPreTokenizer()


def _bytes(native: Tokenizer, settings: Settings) -> None:
    """GPT-2's bytes; a space belongs to the word after it."""
    native.normalizer = None
    native.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=settings.get("add_prefix_space", False))


def _qwen_bytes(native: Tokenizer, settings: Settings) -> None:
    """Bytes of words, single digits, punctuation with the line ends after it, and white space."""
    native.normalizer = normalizers.NFC()
    prefix = settings.get("add_prefix_space") or False
    native.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(QWEN_PIECES), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=prefix, use_regex=False),
        ]
    )


def _llama_text(native: Tokenizer, settings: Settings) -> None:
    """SentencePiece without splitting and ▁ before the text; files of bytes (Llama 3) are taken as they are."""
    if "ByteLevel" in f"{native.pre_tokenizer} {native.decoder}":
        return
    scheme = "always" if settings.get("legacy", False) else "first"
    if settings.get("add_prefix_space") is False:
        scheme = "never"
    native.normalizer = None
    native.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme=scheme, split=False)


def _gemma_text(native: Tokenizer, _settings: Settings) -> None:
    """SentencePiece without splitting and with nothing before the text."""
    native.normalizer = normalizers.Replace(" ", "▁")
    native.pre_tokenizer = pre_tokenizers.Split(" ", "merged_with_previous")


def _pieces(native: Tokenizer, settings: Settings) -> None:
    """SentencePiece: its own table of characters where the file has one, and ▁ before each word."""
    native.normalizer = _character_table(native.normalizer)
    _split_pieces(native, settings)


def _folded_pieces(native: Tokenizer, settings: Settings) -> None:
    """As `_pieces`, in lower case and without accents."""
    steps: list[normalizers.Normalizer] = [normalizers.Replace("``", '"'), normalizers.Replace("''", '"')]
    if not settings.get("keep_accents", False):
        steps += [normalizers.NFKD(), normalizers.StripAccents()]
    if settings.get("do_lower_case", True):
        steps.append(normalizers.Lowercase())
    table = _character_table(native.normalizer)
    native.normalizer = normalizers.Sequence([*steps, table] if table else steps)
    _split_pieces(native, settings)


def _spaced_pieces(native: Tokenizer, settings: Settings) -> None:
    """SentencePiece without its table of characters: runs of white space are one space, and none is left at the end."""
    steps: list[normalizers.Normalizer] = [normalizers.Lowercase()] if settings.get("do_lower_case", False) else []
    runs = normalizers.Replace(Regex(r"\s{2,}|[\n\r\t]"), " ")
    native.normalizer = normalizers.Sequence([*steps, runs, normalizers.NFC(), normalizers.Strip(left=False)])
    scheme = "always" if settings.get("add_prefix_space", True) else "first"
    split = [pre_tokenizers.Punctuation("isolated")] if settings.get("split_by_punct", False) else []
    native.pre_tokenizer = pre_tokenizers.Sequence([*split, pre_tokenizers.Metaspace(prepend_scheme=scheme)])


def _split_pieces(native: Tokenizer, settings: Settings) -> None:
    scheme = "always" if settings.get("add_prefix_space", True) else "never"
    native.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace(prepend_scheme=scheme)]
    )


def _character_table(normalizer: normalizers.Normalizer | None) -> normalizers.Precompiled | None:
    """SentencePiece's table of characters among the steps of a normaliser."""
    steps = [normalizer]
    if isinstance(normalizer, normalizers.Sequence):
        steps = [normalizer[number] for number in range(len(normalizer))]
    return next((step for step in steps if isinstance(step, normalizers.Precompiled)), None)


_BERT = Rules(models.WordPiece, _words, (("cls_token", "[CLS]"), ("sep_token", "[SEP]")))
_TWICE = "{last} {last} $B {last}"
_XLM_ROBERTA = Rules(models.Unigram, _pieces, (("bos_token", "<s>"), ("eos_token", "</s>")), _TWICE)

QWEN_PIECES = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
"""Where Qwen splits text before merging; part of the vocabulary's definition, as its merges are."""

RULES = {
    "AlbertTokenizer": Rules(models.Unigram, _folded_pieces, None),
    "BertTokenizer": _BERT,
    "CamembertTokenizer": _XLM_ROBERTA,
    "DebertaV2Tokenizer": Rules(models.Unigram, _spaced_pieces, (("cls_token", "[CLS]"), ("sep_token", "[SEP]"))),
    "DistilBertTokenizer": _BERT,
    "ElectraTokenizer": _BERT,
    "GPT2Tokenizer": Rules(models.BPE, _bytes, None),
    "GemmaTokenizer": Rules(models.BPE, _gemma_text, None),
    "LlamaTokenizer": Rules(models.BPE, _llama_text, None),
    "MPNetTokenizer": Rules(models.WordPiece, _words, (("cls_token", "<s>"), ("sep_token", "</s>")), _TWICE),
    "Qwen2Tokenizer": Rules(models.BPE, _qwen_bytes, None),
    "RobertaTokenizer": Rules(models.BPE, _bytes, (("cls_token", "<s>"), ("sep_token", "</s>")), _TWICE),
    "XLMRobertaTokenizer": _XLM_ROBERTA,
}

CLASSES = {
    "albert": "AlbertTokenizer",
    "bert": "BertTokenizer",
    "camembert": "CamembertTokenizer",
    "deberta-v2": "DebertaV2Tokenizer",
    "distilbert": "BertTokenizer",
    "electra": "BertTokenizer",
    "gemma3_text": "GemmaTokenizer",
    "gte": "XLMRobertaTokenizer",
    "jina_bert": "BertTokenizer",
    "mpnet": "MPNetTokenizer",
    "nomic_bert": "BertTokenizer",
    "qwen3": "Qwen2Tokenizer",
    "roberta": "RobertaTokenizer",
    "xlm-roberta": "XLMRobertaTokenizer",
}
"""The class that transformers takes for a family whose files name none."""

ALWAYS = {"mistral": "TokenizersBackend", "modernbert": "TokenizersBackend", "qwen2": "Qwen2Tokenizer"}
"""The class that transformers takes for a family whatever its files name."""
