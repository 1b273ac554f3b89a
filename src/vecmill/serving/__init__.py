"""Who waits for what: models by name, queues, runners, and what a request wishes of its rows."""
