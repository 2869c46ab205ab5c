"""Reports of a comparison: its document, and a folder for each kind of output, with a door each."""
