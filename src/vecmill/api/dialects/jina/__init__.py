"""Jina's embeddings, rerank and classification API, as its clients send and read it.

Late chunking, images and trained classifiers (`classifier_id`) are refused. Of several embedding types each stands
under its name. Unlike Jina's, a long text is cut unless `truncate` is false.
"""
