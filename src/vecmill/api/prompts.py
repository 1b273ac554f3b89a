"""What texts are for, in every dialect's words, and the prompts that models have for it.

A role takes the first of its prompts that the model has. A model that has none of them gets the text as it is, without
its default prompt: the caller said what the text is for, and the model was not taught to be told.
"""

from vecmill.errors import InvalidRequest

PROMPTS: dict[str, tuple[str, ...]] = {
    "query": ("query", "search_query", "retrieval.query", "Retrieval-query", "s2p_query"),
    "document": ("document", "passage", "search_document", "retrieval.passage", "Retrieval-document"),
    "classification": ("classification", "Classification"),
    "clustering": ("clustering", "Clustering"),
    "similarity": ("similarity", "STS", "text-matching", "s2s_query"),
    "separation": ("separation", "Clustering", "clustering"),
    "code query": ("code.query", "InstructionRetrieval", "query", "search_query"),
    "code document": ("code.passage", "document", "passage", "search_document"),
}
"""Role to the names that models give its prompt, as their cards have them."""

ROLES: dict[str, str] = {
    "query": "query",
    "document": "document",
    "passage": "document",
    "search_query": "query",
    "search_document": "document",
    "classification": "classification",
    "clustering": "clustering",
    "retrieval.query": "query",
    "retrieval.passage": "document",
    "text-matching": "similarity",
    "separation": "separation",
    "code.query": "code query",
    "code.passage": "code document",
    "nl2code.query": "code query",
    "nl2code.passage": "code document",
    "RETRIEVAL_QUERY": "query",
    "RETRIEVAL_DOCUMENT": "document",
    "SEMANTIC_SIMILARITY": "similarity",
    "CLASSIFICATION": "classification",
    "CLUSTERING": "clustering",
    "QUESTION_ANSWERING": "query",
    "FACT_VERIFICATION": "query",
    "CODE_RETRIEVAL_QUERY": "code query",
}
"""Spelling to role: `input_type` of Cohere, Voyage and NVIDIA, `task` of Jina, `taskType` of Google."""


def prompts_for(spelling: str | None, field: str) -> tuple[str, ...]:
    """Names of prompts in the order of preference; none where nothing is said.

    Args:
        spelling: A key of `ROLES`.
        field: What the dialect calls it, for the error.

    Raises:
        InvalidRequest: No dialect says it like that.
    """
    if spelling is None:
        return ()
    if spelling not in ROLES:
        raise InvalidRequest(f"{field} is {spelling!r}; known: {', '.join(ROLES)}", param=field)
    return PROMPTS[ROLES[spelling]]
