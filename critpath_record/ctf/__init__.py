"""What a recorder knows -> a trace as LTTng writes it."""
