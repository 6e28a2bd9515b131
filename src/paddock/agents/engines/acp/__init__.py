"""Engine for agent programs in a sandbox, over ACP, the Agent Client Protocol."""
