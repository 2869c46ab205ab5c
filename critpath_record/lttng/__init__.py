"""Recording with LTTng's kernel tracer, through its own command line."""
