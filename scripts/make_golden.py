"""Encodes the texts of `tests/golden/texts.json` with sentence-transformers: what `tests/golden` compares with.

    python scripts/make_golden.py [FOLDER [tests/golden/all-MiniLM-L6-v2.json]]

FOLDER holds the checkpoint, the demo model's unless given; the environment is that of `make test-reference`. Each text
is encoded alone, in float32 on the CPU. The result holds the versions that made it, the sha256 of the weights, the
limit in tokens, and for each text its vector: base64 of little-endian float32.
"""

import base64
import hashlib
import json
import sys
from importlib.metadata import version
from pathlib import Path

from vecmill.config import DEFAULT_MODEL
from vecmill.model.source import resolve

GOLDEN = Path(__file__).parents[1] / "tests" / "golden"
LIBRARIES = ("sentence-transformers", "transformers", "tokenizers", "torch")


def make(folder: Path) -> dict[str, object]:
    """The content of the result."""
    from sentence_transformers import SentenceTransformer

    model = SentenceTransformer(str(folder), device="cpu", model_kwargs={"dtype": "float32"})
    texts: dict[str, str] = json.loads((GOLDEN / "texts.json").read_text())
    rows = {name: model.encode([text], convert_to_numpy=True)[0] for name, text in texts.items()}
    return {
        "versions": {name: version(name) for name in LIBRARIES},
        "weights_sha256": hashlib.sha256((folder / "model.safetensors").read_bytes()).hexdigest(),
        "max_tokens": model.max_seq_length,
        "dims": model.get_embedding_dimension(),
        "rows": {name: base64.b64encode(row.astype("<f4").tobytes()).decode() for name, row in rows.items()},
    }


def main(folder: str = "", target: str = str(GOLDEN / "all-MiniLM-L6-v2.json")) -> None:
    """Write the result."""
    place = Path(folder) if folder else resolve(DEFAULT_MODEL).folder
    Path(target).write_text(json.dumps(make(place), indent=1) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
