"""Faults of scripts that the check of traces has to find, each in the scenes of one group."""

from __future__ import annotations

from typing import NamedTuple


class Mutant(NamedTuple):
    """What of which script is something else, and which scenes show it."""

    script: str
    group: str
    old: str
    new: str

    def applied(self, text: str) -> str:
        """Return the script with this fault; raises LookupError if it is not as expected."""
        if text.count(self.old) != 1:
            raise LookupError(f"{self.script} has this {text.count(self.old)} times: {self.old}")
        return text.replace(self.old, self.new)

    def __str__(self) -> str:
        return f"{self.script}: {self.old[:40]}"


MUTANTS = [
    Mutant("record", "stories", "if state and found[2] == ARGV[2] then", "if false then"),
    Mutant("record", "stories", "found[4] ~= ARGV[10] then", "false then"),
    Mutant("claim", "stories", "if found[4] == ARGV[5] then", "if false then"),
    Mutant("claim", "stories", "redis.call('HSET', KEYS[5], ARGV[1], claim)", ""),
    Mutant("claim", "claim", "elseif found[7] then", "elseif false then"),
    Mutant("claim", "claim_struck", "and not order.ended_ms", "and false"),
    Mutant("settle", "settle", "or found[2] ~= ARGV[2] or found[3] ~= ARGV[3] then", "then"),
    Mutant("settle", "stories", "redis.call('HDEL', KEYS[3], ARGV[1])", ""),
    Mutant("lose", "stories", "losses > max_losses\n", "losses >= max_losses\n"),
    Mutant("lose", "lose", "redis.call('HSET', KEYS[1], 'suspect', 'ran')", ""),
    Mutant("declare", "stories", "elseif claims == 1 then", "elseif false then"),
    Mutant("deregister", "stories", "if claims > 0 or tonumber(ARGV[2]) > 0 then", "if false then"),
    Mutant(
        "heartbeat",
        "stories",
        "'ZADD', KEYS[2], 'GT', 'CH', now_ms + ARGV[2]",
        "'ZADD', KEYS[2], 'GT', 'CH', 1",
    ),
    Mutant("resend", "resend", "if found[4] then", "if false then"),
    Mutant("bury", "stories", "redis.call('DEL', KEYS[5])", ""),
    Mutant("replay", "replay", "'losses', 0,", ""),
    Mutant("discard", "stories", "(ARGV[2] ~= '' and found[2] ~= ARGV[2])", "false"),
    Mutant("withdraw", "withdraw", "or found[3] or found[4]", ""),
    Mutant("release", "stories", "'spent', string", "'unspent', string"),
    Mutant("lock", "stories", "return {'held', value}", "value = nil"),
    Mutant(
        "unlock",
        "stories",
        "if redis.call('GET', KEYS[1]) ~= ARGV[2] .. ':' .. ARGV[1] then",
        "if false then",
    ),
    Mutant("place", "stories", "redis.call('SET', KEYS[at], attempt .. ':' .. id)", ""),
    Mutant(
        "outlive",
        "resend",
        "if redis.call('HGET', KEYS[2], 'state') == 'alive' then",
        "if false then",
    ),
    Mutant("blame", "stories", "losses, openings = losses + openings, 0", "losses = losses"),
    Mutant("acknowledge", "stories", "redis.call('HDEL', KEYS[1], ARGV[1])", ""),
    Mutant("reserve", "stories", "if moment == now_us then", "if true then"),
]
