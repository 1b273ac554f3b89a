"""One file a family: `states(graph, spec, weights)` emits the encoder and returns its last hidden states."""
