"""The exploration as one page that needs no network."""
