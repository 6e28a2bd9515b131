"""Results of runs: deliverables, checks, the conversation and the folder of a run."""
