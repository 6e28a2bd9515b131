"""Agent engines, behind one interface."""
