"""Two commands in random blocks -> whether the second is slower than the first."""
