"""Numbers in, numbers out: engines know token ids and rows, not texts, requests or tasks."""
