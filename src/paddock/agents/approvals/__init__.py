"""Tool calls, each run once: policy rules, approvals and summaries of calls."""
