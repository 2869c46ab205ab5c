"""A comparison told: the document, and a folder for each kind of reader."""
