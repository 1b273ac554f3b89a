"""A fleet on paper: the scheduler, cost model and admission that serve, on a virtual clock, without an engine."""
