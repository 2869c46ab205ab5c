"""What CI systems read: JUnit, Markdown, annotations."""
