"""Token ids in a request: whose vocabulary they are in, and their text where it is OpenAI's `cl100k_base`.

Some clients tokenise with tiktoken whatever server they talk to (LangChain's `OpenAIEmbeddings`), others send the ids
of the model's own tokenizer. Both are plain arrays of numbers, and numbers of one vocabulary taken for the other are
silent garbage, so under the policy "auto" each vocabulary must explain the ids of the whole request, in two ways:

- The round trip. Ids are a tokenisation exactly when decoding and encoding them gives them back. Necessary, but weak:
  two thirds of BERT's 10-token arrays survive it in cl100k too, two fifths of cl100k's in XLM-R.
- The likelihood. Where the round trip holds, ln P(ids | vocabulary) is ln P(decoded text), under one model of text
  for both (`likelihood.py`). The difference in nats decides, and a middle is refused rather than guessed.

Figures for requests of one array, over starts of English sentences, of interface texts in nine other languages, of
Python code and of package descriptions (the model of text was counted on others, the thresholds were chosen on these);
percent read right / refused / wrong, for any client and for one that is likely to tokenise with tiktoken:

    tokens                       2-3                 4-7                8-30         4-7, tiktoken
    BERT   with special   100   / 0   / 0     100   / 0   / 0     100   / 0   / 0     100   / 0   / 0
           without         57.5 / 42.5/ 0.05   92.5 / 7.5 / 0.03   99.5 / 0.5 / 0      84.5 / 14.2/ 1.23
           cl100k          91.7 / 8.3 / 0      99.4 / 0.6 / 0     100   / 0   / 0      99.8 / 0.2 / 0
    XLM-R  with special   100   / 0   / 0     100   / 0   / 0     100   / 0   / 0     100   / 0   / 0
           without         84.3 / 15.7/ 0      98.2 / 1.8 / 0.03   99.9 / 0.1 / 0      95.8 / 3.9 / 0.30
           cl100k          79.2 / 20.5/ 0.23   95.5 / 4.3 / 0.12   99.8 / 0.2 / 0.05   99.3 / 0.7 / 0.05

One token says little. Of any client 40 to 90 % are refused and at most 0.4 % are wrong. Of a tiktoken client cl100k is
right in 96 % (BERT) and 93 % (XLM-R) and otherwise refused; the model's own without special tokens is misread in 35 and
11 % (2-3 tokens: 8 and 2 %). Vocabularies that grew from cl100k's are harder: on Qwen's 4-7 tokens of a tiktoken client
are 94.8 / 5.1 / 0.07, and the model's own without special tokens 52 / 36 / 12. Ids of a third vocabulary (o200k_base)
are refused only where they make no text in these two.
"""

from dataclasses import dataclass

from tokenizers import Encoding, Tokenizer

from vecmill.errors import InvalidRequest
from vecmill.model import cl100k
from vecmill.model.likelihood import form_nats, rarity_nats

_UNDECIDED_NATS = {False: (-4.0, 4.0), True: (-6.0, -0.5)}
"""By `likely_tiktoken`: the lead of cl100k below which ids are native, and that above which they are cl100k."""

_MISFIT_NATS, _MISFIT_TOKEN_NATS = 4.0, 2.0
"""What a broken round trip costs an array and each token. It cannot win, but it can show that the other should not."""

_BROKEN_NATS = 5.0
"""What half a character at an end of an array costs: only a cut in a long text leaves one."""

_IMPLAUSIBLE_NATS = -1.0
"""Per token, by form alone: below it lies hardly any text, but most of what a third vocabulary's ids are in XLM-R's."""

_SAMPLE_TOKENS, _SAMPLE_ARRAYS = 2048, 64
"""What is weighed of a request: a few hundred tokens decide, and a request can have millions."""

_LONG, _SLACK = 32, 6
"""Arrays of `_LONG` tokens may be cuts of a longer text; their first and last `_SLACK` tokens may split otherwise."""

_LANGCHAIN = "LangChain: check_embedding_ctx_length=False"
_REMEDY = f"send text ({_LANGCHAIN}), or declare them with the header x-token-vocabulary: native or cl100k_base"


@dataclass(frozen=True, slots=True)
class Reading:
    """How the token ids of a request are to be read.

    Attributes:
        vocabulary: "native" or "cl100k_base".
        texts: The decoded texts where it is "cl100k_base"; None where it is "native": the ids are used as they are.
    """

    vocabulary: str
    texts: list[str] | None


@dataclass(frozen=True, slots=True)
class _Account:
    """How one vocabulary explains an array.

    Attributes:
        text: What the array decodes to.
        fits: Whether the round trip holds.
        nats: ln P of the array.
        form_nats: The part of it that the forms of the tokens account for.
        framed: Whether it has the special tokens that the model's tokenizer puts around a text.
    """

    text: str
    fits: bool
    nats: float
    form_nats: float
    framed: bool = False


def read_token_ids(arrays: list[list[int]], native: Tokenizer, *, policy: str, likely_tiktoken: bool) -> Reading:
    """Decides once for the whole request whether ids are the model's own or OpenAI's cl100k_base.

    `native` is the model's tokenizer without truncation and padding, `policy` one of `core.TOKEN_VOCABULARIES`. Under
    "auto" some 2,000 tokens of the request are weighed; that ids are known and decode is checked for all of them.
    Raises `InvalidRequest` for ids that the vocabulary lacks (naming array and position) or that decode to no text,
    and under "auto" also where neither vocabulary explains the ids or both do.
    """
    if policy == "reject":
        raise _refusal(f"token ids are not taken here: send text ({_LANGCHAIN})")
    if policy == "native" or (policy == "auto" and _is_native(arrays, native, likely_tiktoken=likely_tiktoken)):
        _check_native(arrays, native)
        return Reading("native", None)
    return Reading("cl100k_base", _decode_all(arrays))


def _refusal(message: str) -> InvalidRequest:
    return InvalidRequest(message, param="input")


def _unknown_position(ids: list[int], size: int) -> int | None:
    return next((at for at, token in enumerate(ids) if not 0 <= token < size), None)


def _check_native(arrays: list[list[int]], native: Tokenizer) -> None:
    size = native.get_vocab_size()
    for index, ids in enumerate(arrays):
        if (at := _unknown_position(ids, size)) is not None:
            raise _refusal(f"input[{index}][{at}]: {ids[at]} is no token id of the model: they are 0 to {size - 1}")


def _decode_all(arrays: list[list[int]]) -> list[str]:
    texts = [_decode(index, ids) for index, ids in enumerate(arrays)]
    if not any(texts):
        raise _refusal("the token ids decode, as cl100k_base, to no text")
    return texts


def _decode(index: int, ids: list[int]) -> str:
    if (at := cl100k.unknown_position(ids)) is not None:
        raise _refusal(f"input[{index}][{at}]: {ids[at]} is no token id of cl100k_base")
    text = cl100k.whole_text(cl100k.decode(ids))
    if text is None:
        raise _refusal(f"input[{index}]: the token ids decode, as cl100k_base, to bytes that are no UTF-8 text")
    return text


def _is_native(arrays: list[list[int]], native: Tokenizer, *, likely_tiktoken: bool) -> bool:
    """Which vocabulary explains `arrays`; raises where none or both do."""
    own, theirs = _accounts_native(arrays, native), _accounts_cl100k(arrays)
    if own and [each.text for each in own] == [each.text for each in theirs]:
        return True
    lead = _total_nats(theirs) - _total_nats(own)
    below, above = _UNDECIDED_NATS[likely_tiktoken]
    if lead > above and all(each.fits for each in theirs):
        return False
    if lead < below and all(each.fits for each in own) and _plausible(arrays, own):
        return True
    if own and theirs and below <= lead <= above:
        raise _refusal(f"the token ids could be the model's own or cl100k_base: {_REMEDY}")
    raise _refusal(f"the token ids are no tokenisation of a text in the model's vocabulary or cl100k_base: {_REMEDY}")


def _total_nats(accounts: list[_Account]) -> float:
    return sum(each.nats for each in accounts) if accounts else -1e9


def _plausible(arrays: list[list[int]], accounts: list[_Account]) -> bool:
    """False for ids of a third vocabulary that survive the round trip and decode to a jumble."""
    size = sum(len(ids) for ids in _sample(arrays))
    nats = sum(each.form_nats for each in accounts)
    return size < 8 or nats > _IMPLAUSIBLE_NATS * size or any(each.framed for each in accounts)


def _sample(arrays: list[list[int]]) -> list[list[int]]:
    length = max(_LONG, _SAMPLE_TOKENS // max(1, len(arrays)))
    return [ids[:length] for ids in arrays[:_SAMPLE_ARRAYS]]


def _accounts_cl100k(arrays: list[list[int]]) -> list[_Account]:
    """What cl100k makes of the sample; nothing where an array is not in it."""
    if any(cl100k.unknown_position(ids) is not None for ids in arrays):
        return []
    sample = _sample(arrays)
    accounts = [each for ids in sample if (each := _account_cl100k(ids))]
    return accounts if len(accounts) == len(sample) and any(each.text for each in accounts) else []


def _account_cl100k(ids: list[int]) -> _Account | None:
    data = cl100k.decode(ids)
    text = cl100k.whole_text(data)
    if text is None:
        return None
    whole = text.encode()
    head, tail = not data.startswith(whole), not data.endswith(whole)
    slack = _SLACK * (len(ids) >= _LONG)
    ordinary = [token for token in ids if token < cl100k.SIZE]
    fits = _agree(ordinary, cl100k.encode(text), slack or _SLACK * head, slack or _SLACK * tail)
    nats = _cl100k_nats(ordinary) - _BROKEN_NATS * (head + tail)
    return _Account(text, fits, nats - _misfit_nats(ids, fits), 0.0)


def _cl100k_nats(ids: list[int]) -> float:
    tokens = cl100k.tokens()
    return form_nats([tokens[token].decode(errors="ignore") for token in ids]) - rarity_nats(ids)


def _misfit_nats(ids: list[int], fits: bool) -> float:
    return 0.0 if fits else _MISFIT_NATS + _MISFIT_TOKEN_NATS * len(ids)


def _accounts_native(arrays: list[list[int]], native: Tokenizer) -> list[_Account]:
    """What the model's vocabulary makes of the sample; nothing where an id is not in it."""
    size = native.get_vocab_size()
    if any(_unknown_position(ids, size) is not None for ids in arrays):
        return []
    special = {token for token, added in native.get_added_tokens_decoder().items() if added.special}
    return [_account_native(ids, native, special) for ids in _sample(arrays)]


def _account_native(ids: list[int], native: Tokenizer, special: set[int]) -> _Account:
    start, stop, framed = _frame(ids, native)
    inner = ids[start:stop]
    text = native.decode(inner, skip_special_tokens=False)
    again = native.encode(text, add_special_tokens=False)
    slack = _SLACK * (len(ids) >= _LONG)
    fits = _agree(_apart(inner, special), _apart(again.ids, special), slack, slack) and (framed or bool(inner))
    forms = form_nats(_pieces(text, again, special))
    nats = max(forms - rarity_nats(again.ids), _cl100k_nats(cl100k.encode(text)))
    return _Account(text, fits, nats - _misfit_nats(ids, fits), forms, framed)


def _frame(ids: list[int], native: Tokenizer) -> tuple[int, int, bool]:
    """Where the text of `ids` starts and stops between special tokens, and whether it has all of those."""
    model = native.encode("a")
    head = model.ids[: _leading(model.special_tokens_mask)]
    tail = model.ids[len(model.ids) - _leading(model.special_tokens_mask[::-1]) :]
    has_head, has_tail = ids[: len(head)] == head, ids[len(ids) - len(tail) :] == tail
    start = len(head) if has_head else 0
    stop = max(start, len(ids) - len(tail)) if has_tail else len(ids)
    return start, stop, has_head and has_tail and bool(head or tail)


def _leading(flags: list[int]) -> int:
    return next((at for at, flag in enumerate(flags) if not flag), len(flags))


def _apart(ids: list[int], special: set[int]) -> list[int]:
    """Without special tokens inside (an unknown character is one) and their neighbours, which may split otherwise."""
    near = {at + step for at, token in enumerate(ids) if token in special for step in (-1, 0, 1)}
    return [token for at, token in enumerate(ids) if at not in near]


def _pieces(text: str, encoding: Encoding, special: set[int]) -> list[str | None]:
    """The text of each token, with the space before it where there is one."""
    return [
        None if token in special else text[start - 1 if text[start - 1 : start] == " " else start : stop]
        for token, (start, stop) in zip(encoding.ids, encoding.offsets, strict=True)
    ]


def _agree(ids: list[int], again: list[int], head: int, tail: int) -> bool:
    """Whether `again` is `ids`, but for so many tokens at the head and at the tail."""
    if ids == again:
        return True
    core = ids[head : len(ids) - tail]
    starts = range(3 * head + 1) if head else (0,)
    return bool(head or tail) and any(again[start : start + len(core)] == core for start in starts)
