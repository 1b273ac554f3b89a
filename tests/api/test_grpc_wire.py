"""The messages of the gRPC service: each field has the number and the type that TEI's clients have compiled in."""

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest
from google.protobuf import descriptor_pb2

import vecmill
from vecmill.api.grpc import tei_pb2 as pb
from vecmill.api.grpc.health import ANSWERS
from vecmill.api.grpc.rpcs import ROWS, RPCS, SERVICES

SOURCES = Path(vecmill.__file__).parents[1]
PROTO = "vecmill/api/grpc/tei.proto"

CUT = "truncate {0} bool, truncation_direction {1} TruncationDirection"
MESSAGES = {
    "InfoRequest": "",
    "InfoResponse": "version 1 string, sha 2 string?, docker_label 3 string?, model_id 4 string, model_sha 5 string?, "
    "model_dtype 6 string, model_type 7 ModelType, max_concurrent_requests 8 uint32, max_input_length 9 uint32, "
    "max_batch_tokens 10 uint32, max_batch_requests 11 uint32?, max_client_batch_size 12 uint32, "
    "tokenization_workers 13 uint32",
    "Metadata": "compute_chars 1 uint32, compute_tokens 2 uint32, total_time_ns 3 uint64, "
    "tokenization_time_ns 4 uint64, queue_time_ns 5 uint64, inference_time_ns 6 uint64",
    "EmbedRequest": f"inputs 1 string, {CUT.format(2, 4)}, normalize 3 bool?, prompt_name 5 string?, "
    "dimensions 6 uint32?",
    "EmbedResponse": "embeddings 1 float*, metadata 2 Metadata?",
    "EmbedSparseRequest": f"inputs 1 string, {CUT.format(2, 3)}, prompt_name 4 string?",
    "SparseValue": "index 1 uint32, value 2 float",
    "EmbedSparseResponse": "sparse_embeddings 1 SparseValue*, metadata 2 Metadata?",
    "EmbedAllRequest": f"inputs 1 string, {CUT.format(2, 3)}, prompt_name 4 string?",
    "TokenEmbedding": "embeddings 1 float*",
    "EmbedAllResponse": "token_embeddings 1 TokenEmbedding*, metadata 2 Metadata?",
    "PredictRequest": f"inputs 1 string, raw_scores 3 bool, {CUT.format(2, 4)}",
    "PredictPairRequest": f"inputs 1 string*, raw_scores 3 bool, {CUT.format(2, 4)}",
    "Prediction": "score 1 float, label 2 string",
    "PredictResponse": "predictions 1 Prediction*, metadata 2 Metadata?",
    "RerankRequest": "query 1 string, texts 2 string*, raw_scores 4 bool, return_text 5 bool, " + CUT.format(3, 6),
    "RerankStreamRequest": "query 1 string, text 2 string, raw_scores 4 bool, return_text 5 bool, " + CUT.format(3, 6),
    "Rank": "index 1 uint32, text 2 string?, score 3 float",
    "RerankResponse": "ranks 1 Rank*, metadata 2 Metadata?",
    "EncodeRequest": "inputs 1 string, add_special_tokens 2 bool, prompt_name 3 string?",
    "SimpleToken": "id 1 uint32, text 2 string, special 3 bool, start 4 uint32?, stop 5 uint32?",
    "EncodeResponse": "tokens 1 SimpleToken*",
    "DecodeRequest": "ids 1 uint32*, skip_special_tokens 2 bool",
    "DecodeResponse": "text 1 string",
}
"""Message to its fields: name, number, type, with * where it is repeated and ? where it may be absent."""

STREAMS = {
    "Info": "Info",
    "Embed": "Embed EmbedStream+ EmbedSparse EmbedSparseStream+ EmbedAll EmbedAllStream+",
    "Predict": "Predict PredictPair PredictStream+ PredictPairStream+",
    "Rerank": "Rerank RerankStream-",
    "Tokenize": "Tokenize TokenizeStream+ Decode DecodeStream+",
}
"""Service to its rpcs, with + where both sides stream, and - where the caller does."""

SCALARS = {1: "double", 2: "float", 4: "uint64", 8: "bool", 9: "string", 13: "uint32"}


def field_of(field: descriptor_pb2.FieldDescriptorProto) -> str:
    """A field as `MESSAGES` has it."""
    kind = SCALARS.get(field.type) or field.type_name.removeprefix(".tei.v1.")
    single = field.proto3_optional or field.type == field.TYPE_MESSAGE
    mark = "*" if field.label == field.LABEL_REPEATED else "?" if single else ""
    return f"{field.name} {field.number} {kind}{mark}"


def compiled() -> descriptor_pb2.FileDescriptorProto:
    """The committed messages."""
    file: descriptor_pb2.FileDescriptorProto = descriptor_pb2.FileDescriptorProto.FromString(
        pb.DESCRIPTOR.serialized_pb
    )
    return file


def test_there_are_these_messages() -> None:
    """No message more or less, in TEI's package."""
    assert compiled().package == "tei.v1"
    assert sorted(message.name for message in compiled().message_type) == sorted(MESSAGES)


@pytest.mark.parametrize("name", MESSAGES)
def test_fields_are_teis(name: str) -> None:
    """Each field has its number, type and presence."""
    (message,) = [one for one in compiled().message_type if one.name == name]
    assert sorted(map(field_of, message.field)) == sorted(filter(None, MESSAGES[name].split(", ")))


def test_enums_are_teis() -> None:
    """Each value has its number."""
    assert {one.name: [(value.name, value.number) for value in one.value] for one in compiled().enum_type} == {
        "ModelType": [("MODEL_TYPE_EMBEDDING", 0), ("MODEL_TYPE_CLASSIFIER", 1), ("MODEL_TYPE_RERANKER", 2)],
        "TruncationDirection": [("TRUNCATION_DIRECTION_RIGHT", 0), ("TRUNCATION_DIRECTION_LEFT", 1)],
    }


def test_rpcs_are_teis() -> None:
    """Each service has its rpcs, which stream where TEI's do; each has a row, and no row is left over."""
    marks = {(False, False): "", (True, True): "+", (True, False): "-"}
    found: dict[str, list[str]] = {}
    for rpc in RPCS:
        found.setdefault(rpc.service.removeprefix("tei.v1."), []).append(rpc.name + marks[rpc.many, rpc.answers])
    assert {name: sorted(rpcs) for name, rpcs in found.items()} == {
        name: sorted(rpcs.split()) for name, rpcs in STREAMS.items()
    }
    assert {rpc.name.removesuffix("Stream") for rpc in RPCS} == set(ROWS)
    assert set(ANSWERS) == set(SERVICES)


def test_bytes_of_a_client() -> None:
    """What a client of TEI sends is read, and absent differs from false where TEI tells them apart."""
    asked = pb.EmbedRequest.FromString(b"\x0a\x02hi\x10\x01\x18\x00\x20\x01\x30\x04")
    assert (asked.inputs, asked.truncate, asked.normalize, asked.truncation_direction, asked.dimensions) == (
        *("hi", True, False, 1, 4),
    )
    assert asked.HasField("normalize")
    assert not pb.EmbedRequest.FromString(b"\x0a\x02hi").HasField("normalize")


@pytest.mark.skipif(not importlib.util.find_spec("grpc_tools"), reason="needs grpcio-tools")
def test_the_committed_messages_are_those_of_the_proto(tmp_path: Path) -> None:
    """`make proto` would change nothing that matters."""
    out = tmp_path / "set"
    command = [sys.executable, "-m", "grpc_tools.protoc", "-I", str(SOURCES), f"--descriptor_set_out={out}"]
    subprocess.run([*command, str(SOURCES / PROTO)], check=True)
    (file,) = descriptor_pb2.FileDescriptorSet.FromString(out.read_bytes()).file
    for field in (field for message in file.message_type for field in message.field):
        field.ClearField("json_name")  # protoc writes it here and not there
    assert file == compiled()
