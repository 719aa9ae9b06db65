"""The demo: real processes, real kills, and a report that checks what happened.

It drives the example project from outside, with the commands that its owner would use, and it
knows what happened only from the project's own database and from Redis.
"""
