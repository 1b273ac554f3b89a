"""Texts for trained models, and questions of which it is known what answers them."""

from pathlib import Path

import vecmill

SENTENCES = Path(vecmill.__file__).with_name("sentences.txt").read_text(encoding="utf-8").splitlines()
"""Forty English sentences, of which each two say nearly the same."""

LONG = " ".join(SENTENCES * 2)
"""Over 800 tokens: beyond the limit of every BERT."""

TEXTS = [*SENTENCES, "a", LONG, "Ünïcödé 中文 😀", "Was ist das?", "你好 世界"]
"""From one letter to beyond most limits, in several scripts."""

PASSAGES = {
    "how many people live in berlin": [
        "Berlin has a population of 3,520,031 registered inhabitants in an area of 891.82 square kilometers.",
        "Berlin is well known for its museums.",
        "The parliament of New Zealand sits in Wellington.",
    ],
    "what causes the tides": [
        "Wine is made of grapes that are left to ferment.",
        "Tides are the rise and fall of sea levels caused by the gravity of the moon and the sun.",
        "A tide table lists when ships may enter a harbour.",
    ],
    "boiling point of water": [
        "Cooks add salt to water before it boils.",
        "The kettle was invented in the 19th century.",
        "Water boils at 100 degrees Celsius at sea level.",
    ],
}
TRUE = [0, 1, 2]
"""The passage that answers each question."""

TRANSLATED = {
    "German": ["Wie viele Menschen leben in Berlin?", "Was verursacht Ebbe und Flut?", "Siedepunkt von Wasser"],
    "Chinese": ["柏林有多少居民", "潮汐是什么引起的", "水的沸点"],
}
"""The questions in other languages."""
