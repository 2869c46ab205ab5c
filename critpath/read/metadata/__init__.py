"""The metadata of a trace, CTF 1.8 (TSDL) or CTF 2 (JSON) -> how its events are laid out."""
