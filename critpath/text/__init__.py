"""Facts -> the sentences that people read."""
