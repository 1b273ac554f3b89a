"""Text Embeddings Inference's HTTP API (its router of version 1.9), as its clients send and read it.

Where it differs on purpose: token ids are read as the other dialects read them, not decoded and encoded again; equal
scores keep their order; an error of the body's shape has TEI's own body, where TEI sends a line of text; `model` names
one of several models, and `return_tokens` asks for the number of tokens. Null means absent.
"""
