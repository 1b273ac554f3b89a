"""The API of vLLM's pooling models (its server of 2026), as its clients send and read it.

Refused by name: conversations (`messages`), images, big-endian or binary answers, and leaving out special tokens. A
long text is an error unless `truncate_prompt_tokens` says how much is kept; -1 is as much as the model takes.
"""
