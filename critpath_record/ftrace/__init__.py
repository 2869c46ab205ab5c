"""Recording through tracefs, without any dependency: raw ring-buffer pages to CTF."""
