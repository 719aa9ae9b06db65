"""The example project and its demo, run as their readers run them."""
