"""The ground: what is declared once, as data.  It imports nothing of critpath."""
