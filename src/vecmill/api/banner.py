"""What the command prints when it is ready."""

from vecmill import __version__
from vecmill.serving.served import ServedModel


def banner(url: str, models: list[ServedModel], grpc: str = "", workers: int = 1) -> str:
    """What is served and how to ask it."""
    lines = [f"vecmill {__version__} is ready on {url} (documentation: {url}/docs)"]
    lines += [f"gRPC (tei.v1) is ready on {grpc}"] if grpc else []
    lines += [f"{workers} workers share the port", ""] if workers > 1 else [""]
    for model in models:
        spec = model.spec
        facts = [f"{spec.dims} dimensions" if spec.dims else TASKS[spec.task], f"up to {spec.max_tokens} tokens"]
        facts += [f"labels {', '.join(spec.scores.labels)}"] if spec.task == "classify" and spec.scores else []
        facts += ["+".join(spec.pooling)] if spec.pooling else []
        facts += ["normalized"] if spec.normalized else []
        lines.append(f"  {model.name}: {', '.join([*facts, model.precision])}")
    path, fields = EXAMPLES[models[0].spec.task]
    body = f'{{"model": "{models[0].name}", {fields}}}'
    lines += ["", f"  curl {url}{path} -H 'content-type: application/json' -d '{body}'", ""]
    return "\n".join(lines)


TASKS = {
    "embed": "vectors",
    "rerank": "a reranker",
    "classify": "a classifier",
    "sparse": "sparse vectors",
    "multi": "vectors of tokens",
}
"""Task in words."""

EXAMPLES = {
    "embed": ("/v1/embeddings", '"input": "hello world"'),
    "rerank": ("/v1/rerank", '"query": "hello", "documents": ["hello world", "goodbye"]'),
    "classify": ("/classify", '"input": ["hello world"]'),
    "sparse": ("/embed_sparse", '"inputs": "hello world"'),
    "multi": ("/embed_all", '"inputs": "hello world"'),
}
"""Task to a first request."""
