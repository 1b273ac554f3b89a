"""What the ONNX engine promises beyond the contract."""

import subprocess
import sys
import weakref
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from checkpoints import write_bert, write_modules
from vecmill.engine.base import Batch
from vecmill.engine.onnx import OnnxEngine
from vecmill.model.spec import POOLINGS, ModelSpec, read_spec

LENGTHS = (1, 2, 7, 16, 33, 64, 100, 129)


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("shape", [(16, 4, 32), (20, 5, 36), (36, 2, 52)])
@pytest.mark.parametrize("mode", POOLINGS)
def test_bytes_do_not_depend_on_mates(tmp_path: Path, mode: str, shape: tuple[int, int, int], threads: int) -> None:
    """A text's row has the same bytes alone and in a batch, with every pooling, a Dense, and widths that are not round.

    ONNX Runtime's ReduceMean would break this: it adds in another order when there is one row.
    """
    sizes: dict[str, Any] = dict(zip(("hidden_size", "num_attention_heads", "intermediate_size"), shape, strict=True))
    folder = write_bert(tmp_path, max_position_embeddings=max(LENGTHS), **sizes)
    dense = {"out_features": 7, "activation_function": "torch.nn.modules.activation.GELU"}
    spec = read_spec(write_modules(folder, pooling={"pooling_mode": mode}, dense=dense))
    engine = OnnxEngine(spec, threads=threads)
    rng = np.random.default_rng(0)
    for length in LENGTHS:
        texts = list(rng.integers(0, spec.vocab_size, (9, length)).astype(np.int32))
        alone = np.concatenate([engine.run(Batch.pack([ids])) for ids in texts])
        for size in (2, 3, 9):
            assert np.array_equal(engine.run(Batch.pack(texts[:size])), alone[:size]), (length, size)


def test_bytes_do_not_depend_on_threads(tiny_spec: ModelSpec) -> None:
    """A row has the same bytes however many threads compute it."""
    texts = list(np.random.default_rng(0).integers(0, tiny_spec.vocab_size, (16, 40)).astype(np.int32))
    one, three = (OnnxEngine(tiny_spec, threads=threads).run(Batch.pack(texts)) for threads in (1, 3))
    assert np.array_equal(one, three)


@pytest.mark.parametrize(("changes", "wanted"), [({}, 16), ({"dense": {"out_features": 5}}, 5)])
def test_width(tmp_path: Path, changes: dict[str, Any], wanted: int) -> None:
    """Rows are as wide as the last module makes them, for batches of one length and of several."""
    engine = OnnxEngine(read_spec(write_modules(write_bert(tmp_path), **changes)), threads=1)
    for lengths in ([4, 4], [4, 6]):
        assert engine.run(Batch.pack([np.ones(size, dtype=np.int32) for size in lengths])).shape == (2, wanted)


def test_close_gives_the_session_back(tiny_spec: ModelSpec) -> None:
    """Closing frees the session, and with it the memory of the weights."""
    engine = OnnxEngine(tiny_spec, threads=1)
    session = weakref.ref(engine._sessions[("dense",)])
    engine.close()
    assert session() is None


def test_memory_of_long_inputs_is_given_back(tmp_path: Path) -> None:
    """After a burst of long inputs the process is about as large as before it: their scores took 500 MB."""
    program = """
import sys, numpy as np
import subprocess
import sys
from pathlib import Path
from vecmill.engine.base import Batch, load_engine
from vecmill.model.spec import read_spec

def resident_mb():
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096 / 2**20

engine = load_engine("onnx", read_spec(Path(sys.argv[1])), threads=2)
engine.run(Batch.pack([np.ones(16, np.int32)]))
before = resident_mb()
for length in (1024, 2048, 4000, 3000):
    engine.run(Batch.pack([np.ones(length, np.int32)]))
print(resident_mb() - before)
"""
    folder = write_bert(tmp_path / "long", hidden_size=64, num_attention_heads=8, max_position_embeddings=4000)
    done = subprocess.run([sys.executable, "-c", program, str(folder)], capture_output=True, text=True, check=True)
    assert float(done.stdout) < 100
