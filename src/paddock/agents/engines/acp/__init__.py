"""Agent programs in a sandbox, spoken to over ACP, the Agent Client Protocol."""
