"""Text to token ids: prompt, truncation, special tokens. Safe to call from several threads; releases the GIL."""

from collections.abc import Iterable
from pathlib import Path

import msgspec
import numpy as np
import tokenizers

from vecmill.core import Pair
from vecmill.errors import CorruptFile, InvalidRequest, UnsupportedModel
from vecmill.model.jsonfile import settings_of
from vecmill.model.late import SIDES
from vecmill.model.pairs import PairFrame
from vecmill.model.sides import Sides
from vecmill.model.spec import ModelSpec
from vecmill.model.static import STATIC
from vecmill.model.tasks import Template, YesNo
from vecmill.model.tokenizer_files import read_settings, read_tokenizer
from vecmill.model.tokens import OWN, Cut, Tokens

CHARS_PER_TOKEN = 24
"""Much longer texts are first cut to this many characters a token of the limit: 10 MB need no reading to keep 256."""

BREAKS = (" ", "\n", "\t", "\r", "\u3000")
"""White space at which every tokenizer splits. Others are not: BERT drops a form feed, which joins its neighbours."""


class Tokenizer:
    """The model's tokenizer with its frame of special tokens and its limit.

    Args:
        spec: The model.

    Raises:
        MissingFile: There is no tokenizer in the folder.
        CorruptFile: It does not parse.
        UnsupportedModel: It puts special tokens elsewhere than at the ends.
    """

    def __init__(self, spec: ModelSpec) -> None:
        with settings_of(spec.folder):
            self._read(spec)

    def _read(self, spec: ModelSpec) -> None:
        self.native, side = read_tokenizer(spec)
        self._keeps_end = side == "left"
        self.max_tokens = spec.max_tokens
        self.vocab_size = spec.vocab_size
        self.head, self._tail = _frame(self.native, spec.transformer) if spec.family != STATIC else ([], [])
        self._pairs = PairFrame.read(self.native) if spec.scores else None
        self._template = spec.scores.template if isinstance(spec.scores, YesNo) else None
        self._mark = spec.mark
        self._skipped = _unknown(self.native) if spec.skips_unknown else None
        self.framed = len(self.head) + len(self._tail)
        self._room = spec.max_tokens - self.framed
        settings = read_settings(spec.transformer) if spec.late else {}
        self._sides = Sides.read(self.native, spec.late, spec, settings) if spec.late else None
        least = min(map(self.limit, SIDES))
        if least <= self.framed:
            raise CorruptFile(f"{spec.folder}: a limit of {least} tokens leaves no room for text")
        self.rowless = self._check_vocabulary(spec)

    @property
    def least_tokens(self) -> int:
        """Tokens that leave room for something of a text, and of both texts of a pair."""
        return max(self.framed + 1, self._pairs.size + 2 if self._pairs else 0)

    def encode(self, texts: list[str], prompt: str = "", cut: Cut = OWN, side: str | None = None) -> list[Tokens]:
        """Tokens of each text with the prompt before it, cut to the limit on the side that the model's files name.

        Args:
            texts: What to read.
            prompt: What goes before each.
            cut: How long ones are cut.
            side: Whether they are queries or documents, where the model tells them apart.
        """
        prefixed = [prompt + text for text in texts] if prompt else texts
        bare = self._bare_ids(prefixed, keeps_end=self._cuts_left(cut))
        return self.between(bare, prompt, cut, side)

    def encode_ids(
        self, arrays: list[list[int]], prompt: str = "", cut: Cut = OWN, side: str | None = None
    ) -> list[Tokens]:
        """Token ids of the model's own vocabulary; the special tokens are added where the caller left them out."""
        before = self.native.encode(prompt, add_special_tokens=False).ids if prompt else []
        return self.between([before + self._bare(ids) for ids in arrays], prompt, cut, side)

    def whole(self, given: str | list[int], prompt: str = "") -> list[int]:
        """All ids of a text or of an array with the prompt before them, uncut and without special tokens."""
        texts = [prompt + given] if isinstance(given, str) else [prompt]
        (found,) = self.native.encode_batch_fast(texts, add_special_tokens=False)
        ids = found.ids if isinstance(given, str) else found.ids + self._bare(given)
        return ids if self._skipped is None else [token for token in ids if token != self._skipped]

    def limit(self, side: str | None = None) -> int:
        """Most tokens of an input, special tokens included; of a side, where the model tells them apart."""
        if self._sides is None:
            return self.max_tokens
        return min(self.max_tokens, self._sides.limit(side) or self.max_tokens)

    def between(self, texts: list[list[int]], prompt: str, cut: Cut, side: str | None) -> list[Tokens]:
        """Ids of texts, the prompt included, between the special tokens and cut to the limit."""
        end, own = self._end_of(prompt), self.limit(side)
        room, left = min(own, cut.max_tokens or own) - self.framed, self._cuts_left(cut)
        fitted = [self._fit(ids, end, room, keeps_end=left) for ids in texts]
        return fitted if self._sides is None else [self._sides.finish(tokens, side) for tokens in fitted]

    def encode_pairs(
        self, pairs: list[Pair], instruction: str | None = None, cut: Cut = OWN, prompt: str = ""
    ) -> list[Tokens]:
        """Tokens of two texts together. The second one is cut to the limit; the first only where it leaves it no room.

        Args:
            pairs: The texts.
            instruction: For a language model, what to look for; None is its own default.
            cut: The side is the second text's; a language model's question is always cut at its end.
            prompt: What goes before each first text; to a language model it is the instruction where none is given.
        """
        if self._template is not None:
            return self._fill(self._template, pairs, instruction or prompt, cut)
        frame = self._pairs or PairFrame([], [], [], typed=False)
        once = list(dict.fromkeys(pair.first for pair in pairs))  # a query is one string beside all its documents
        firsts = dict(zip(once, self._bare_ids([prompt + first for first in once]), strict=True))
        seconds = self._bare_ids([pair.second for pair in pairs], keeps_end=cut.side == "left")
        return [self._join(frame, firsts[pair.first], second, cut) for pair, second in zip(pairs, seconds, strict=True)]

    def _join(self, frame: PairFrame, first: list[int], second: list[int], cut: Cut) -> Tokens:
        room = self._limit(cut) - frame.size
        kept = first if len(first) < room else first[: room // 2]
        head = [*frame.head, *kept, *frame.middle]
        size = min(room - len(kept), cut.second_tokens or room)
        rest = second[max(0, len(second) - size) :] if cut.side == "left" else second[:size]
        ids = np.array([*head, *rest, *frame.tail], dtype=np.int32)
        lost = len(kept) + len(rest) < len(first) + len(second)
        return Tokens(ids, truncated=lost, mark=len(head) if frame.typed else len(ids))

    def _fill(self, template: Template, pairs: list[Pair], instruction: str | None, cut: Cut) -> list[Tokens]:
        """A language model is asked; of the question only the end, which is the second text's, is cut."""
        wish = instruction or template.instruction
        seconds = [self._leading(pair.second, cut.second_tokens) for pair in pairs]
        bodies = [
            template.body.format(instruction=wish, first=pair.first, second=second)
            for pair, second in zip(pairs, seconds, strict=True)
        ]
        head, tail = self._bare_ids([template.head, template.tail])
        room = max(1, self._limit(cut) - len(head) - len(tail))
        return [
            Tokens(
                np.array([*head, *ids[:room], *tail], dtype=np.int32),
                truncated=len(ids) > room or len(second) < len(pair.second),
            )
            for ids, pair, second in zip(self._bare_ids(bodies), pairs, seconds, strict=True)
        ]

    def _leading(self, text: str, max_tokens: int | None) -> str:
        """The characters of the first tokens of a text."""
        if max_tokens is None:
            return text
        spans = self.native.encode(self._shorten(text), add_special_tokens=False).offsets
        return text if len(spans) <= max_tokens else text[: spans[max_tokens - 1][1]]

    def _bare_ids(self, texts: list[str], *, keeps_end: bool = False) -> list[list[int]]:
        """Ids of each text without special tokens."""
        if not keeps_end:
            usual = 2 * self.max_tokens * CHARS_PER_TOKEN
            texts = [text if len(text) <= usual else self._shorten(text) for text in texts]
        return [encoding.ids for encoding in self.native.encode_batch_fast(texts, add_special_tokens=False)]

    def _limit(self, cut: Cut) -> int:
        return min(self.max_tokens, cut.max_tokens or self.max_tokens)

    def _cuts_left(self, cut: Cut) -> bool:
        return self._keeps_end if cut.side is None else cut.side == "left"

    def _end_of(self, prompt: str) -> int:
        """The mark of a text alone: where its prompt ends, special tokens included; its end for want of a second."""
        if self._mark == "second":
            return self.max_tokens
        if self._mark is None or not prompt:
            return 0
        return len(self.head) + len(self.native.encode(prompt, add_special_tokens=False).ids)

    def _fit(self, ids: list[int], end: int, room: int, *, keeps_end: bool) -> Tokens:
        start = max(0, len(ids) - room) if keeps_end else 0
        kept = self.head + ids[start : start + room] + self._tail
        if self._skipped is not None:
            kept = [token for token in kept if token != self._skipped]
        # A pooling that leaves the prompt out has at least the last token.
        mark = min(end, len(kept) - 1) if self._mark == "prompt" else end
        return Tokens(np.array(kept, dtype=np.int32), truncated=len(ids) > room, mark=mark)

    def _bare(self, ids: list[int]) -> list[int]:
        head, tail = len(self.head), len(self._tail)
        framed = len(ids) > head + tail and ids[:head] == self.head and ids[len(ids) - tail :] == self._tail
        return ids[head : len(ids) - tail] if framed else ids

    def _shorten(self, text: str) -> str:
        """A prefix that surely holds more tokens than the limit, or the whole text.

        The cut falls before white space, where every tokenizer splits, so the tokens before it are those of the whole
        text.
        """
        size = self.max_tokens * CHARS_PER_TOKEN
        while len(text) > 2 * size:
            cut = max(text.rfind(space, 1, size) for space in BREAKS)
            if cut > 0 and len(self.native.encode(text[:cut], add_special_tokens=False).ids) > self._room:
                return text[:cut]
            size *= 4
        return text

    def check(self, ids: Iterable[int], where: str) -> None:
        """Refuse ids of tokens that were added to the tokenizer alone, as Gemma 3's `<image_soft_token>`.

        Raises:
            InvalidRequest: There is one; `where` it is comes first in the message.
        """
        strange = next((number for number in ids if number >= self.vocab_size), None) if self.rowless else None
        if strange is not None:
            token = self.native.id_to_token(int(strange))
            message = f"{where} holds the token {token!r} (id {strange}), for which the model has no vector"
            raise InvalidRequest(message, param="input")

    def _check_vocabulary(self, spec: ModelSpec) -> bool:
        """Whether tokens were added that the model has no rows for; those of the vocabulary itself need one."""
        own, all_of_them = (self.native.get_vocab(with_added_tokens=added) for added in (False, True))
        added = self.native.get_added_tokens_decoder()
        largest = max((number for number in own.values() if number not in added), default=-1)
        frame = self.head + self._tail + (self._pairs.ids if self._pairs else [])
        largest = max(largest, *frame, self._sides.filler if self._sides else -1)
        if largest >= spec.vocab_size:
            raise CorruptFile(
                f"{spec.folder}: the tokenizer has {len(all_of_them)} tokens with ids up to {largest}, "
                f"the model an embedding table of {spec.vocab_size} rows"
            )
        return max(all_of_them.values(), default=-1) >= spec.vocab_size


def _unknown(native: tokenizers.Tokenizer) -> int | None:
    """The id of the unknown token, wherever the kind of tokenizer keeps it (`_get_unk_token_id` of model2vec 0.10)."""
    model = native.model
    if hasattr(model, "unk_token"):
        return native.token_to_id(model.unk_token) if model.unk_token else None
    number = msgspec.json.decode(native.to_str())["model"].get("unk_id")
    return int(number) if number is not None else None


def _frame(native: tokenizers.Tokenizer, folder: Path) -> tuple[list[int], list[int]]:
    """The special tokens that go before and after a text."""
    probe = native.encode("a", add_special_tokens=False).ids
    framed = native.encode("a", add_special_tokens=True).ids
    for start in range(len(framed) - len(probe) + 1):
        if probe and framed[start : start + len(probe)] == probe:
            return framed[:start], framed[start + len(probe) :]
    raise UnsupportedModel(f"{folder}: the tokenizer changes a text when it adds the special tokens")
