"""Tools of sessions: sandbox tools, session tools, client tools and their results."""
