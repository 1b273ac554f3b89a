"""Text Embeddings Inference's gRPC service, `tei.v1`: what its HTTP dialect asks, in messages, on another port."""
