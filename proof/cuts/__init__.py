"""Every command that a process sends to Redis is cut once: what comes of it?"""
