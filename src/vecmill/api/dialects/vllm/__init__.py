"""The API of vLLM's pooling models (its server of 2026), as its clients send and read it.

Refused by name: images, chat templates, and leaving out special tokens. A conversation is its messages one after
another. A long text is an error unless `truncate_prompt_tokens` says how much is kept; -1 is as much as the model
takes.
"""
