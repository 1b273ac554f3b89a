"""What a model is, from its files."""
