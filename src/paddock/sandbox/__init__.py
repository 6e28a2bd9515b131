"""Boxes: the contract, the backends that keep it, and the images they start from."""
