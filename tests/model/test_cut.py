"""Where the caller says how two texts are cut."""

from dataclasses import replace

import pytest

from checkpoints import VOCABULARY
from vecmill.core import Pair
from vecmill.model.spec import ModelSpec
from vecmill.model.tasks import Classifier, Template, YesNo
from vecmill.model.tokenizer import Tokenizer
from vecmill.model.tokens import Cut

NAMES = {number: word for word, number in VOCABULARY.items()}
PAIR = Pair("the cat", "a dog sat on the mat")
TEMPLATE = Template(head="query", body="{instruction} {first} {second}", tail="passage", instruction="walk")


def words(tokenizer: Tokenizer, cut: Cut) -> str:
    """What of the pair goes through the model."""
    (tokens,) = tokenizer.encode_pairs([PAIR], cut=cut)
    return " ".join(NAMES[number] for number in tokens.ids.tolist())


@pytest.mark.parametrize(
    ("cut", "kept"),
    [
        (Cut(), "[CLS] the cat [SEP] a dog sat on the mat [SEP]"),
        (Cut(second_tokens=2), "[CLS] the cat [SEP] a dog [SEP]"),
        (Cut("left", second_tokens=2), "[CLS] the cat [SEP] the mat [SEP]"),
        (Cut(max_tokens=8), "[CLS] the cat [SEP] a dog sat [SEP]"),
        (Cut("left", max_tokens=8), "[CLS] the cat [SEP] on the mat [SEP]"),
        (Cut(max_tokens=8, second_tokens=1), "[CLS] the cat [SEP] a [SEP]"),
        (Cut(max_tokens=100, second_tokens=100), "[CLS] the cat [SEP] a dog sat on the mat [SEP]"),
    ],
)
def test_the_second_text_is_cut(tiny_spec: ModelSpec, cut: Cut, kept: str) -> None:
    """Of a pair the second text is cut, to its own number of tokens and to that of both, at the end that is named."""
    tokenizer = Tokenizer(replace(tiny_spec, scores=Classifier(("x",), "sigmoid")))
    assert words(tokenizer, cut) == kept
    assert tokenizer.encode_pairs([PAIR], cut=cut)[0].truncated is (kept != words(tokenizer, Cut()))


@pytest.mark.parametrize(
    ("cut", "kept"),
    [
        (Cut(), "query walk the cat a dog sat on the mat passage"),
        (Cut(second_tokens=2), "query walk the cat a dog passage"),
        (Cut(max_tokens=7), "query walk the cat a dog passage"),
    ],
)
def test_a_language_models_question_is_cut(tiny_spec: ModelSpec, cut: Cut, kept: str) -> None:
    """In a language model's question the second text is cut the same way, and the frame around it stays whole."""
    tokenizer = Tokenizer(replace(tiny_spec, scores=YesNo(5, 6, TEMPLATE)))
    assert words(tokenizer, cut) == kept
    assert tokenizer.encode_pairs([PAIR], cut=cut)[0].truncated is (cut != Cut())
