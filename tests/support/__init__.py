"""What the tests stand on: real servers, real processes, and what they left behind."""
