"""What a running flight recorder measures, for other programs: OpenMetrics and OTLP."""
