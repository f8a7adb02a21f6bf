"""The losses as operations on rows of logits: a plain reference, and faster forms of the same meaning."""
