"""Critical paths -> Alignment (MUSCLE-style)."""
