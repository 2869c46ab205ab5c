"""critpath: tells why a program became slower, from the kernel's scheduling events."""

__version__ = "0.1.0"
