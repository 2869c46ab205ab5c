"""User stacks beside a recording: where in the code threads slept, woke others and ran."""
