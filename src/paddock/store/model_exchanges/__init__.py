"""SQL stores of model exchanges, their search index and usage sums."""
