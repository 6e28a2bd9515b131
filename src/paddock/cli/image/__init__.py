"""Commands on images and sandbox kinds: `paddock image` and `paddock kind`."""
