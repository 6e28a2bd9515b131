"""Those who do the thinking, behind one interface."""
