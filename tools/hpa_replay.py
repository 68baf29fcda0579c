#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""hpa_replay.py - what deploy/kubernetes/hpa.yaml would do with a load: Kubernetes' formula over recorded numbers.

    tools/hpa_replay.py LOAD.txt               # a line a second: the load, in servers that it keeps wholly busy
    tools/hpa_replay.py --step 1 8             # an hour that goes from one server's work to eight's, and back

A server's rate: tokens a second that it embeds when it is busy (fletch_tokens_total, or fletch embed --stats); the load
is rate(tokens asked for) / that. Servers are alike, requests go to all of them, and a new one is ready after --start
seconds. Prometheus scrapes every --period seconds and its rates are those of a minute; the HPA looks every --period
seconds, too. Prints one line of JSON: the servers, what waited, and how often it went down and, within five
minutes, up again ("flaps"). --trace writes second, load, servers, backlog."""
import argparse
import collections
import json
import math
import sys

FLAP = 300  # seconds


class Fleet:
    """Servers that share a queue, second by second, and what Prometheus saw of them."""

    def __init__(self, given: argparse.Namespace) -> None:
        self.given, self.wanted = given, given.least
        self.ready_at = [0] * given.least  # a server each
        self.backlog = self.busy = 0.0  # seconds of one server's work; work done
        self.slots = 0
        self.seen: collections.deque[tuple[int, float]] = collections.deque(maxlen=60 // given.period + 1)

    def second(self, now: int, load: float) -> None:
        self.slots = sum(at <= now for at in self.ready_at)
        done = min(self.slots, load + self.backlog)
        self.backlog += load - done
        self.busy += done

    def scrape(self, now: int) -> tuple[float, float]:
        """fletch:busy:ratio and fletch:backlog:seconds of deploy/alerts.yml."""
        self.seen.append((now, self.busy))
        first, last = self.seen[0], self.seen[-1]
        rate = (last[1] - first[1]) / max(1, last[0] - first[0])
        return rate / max(1, self.slots), self.backlog / rate if rate > 0 else 0.0

    def scale(self, now: int, count: int) -> None:
        self.wanted = count
        self.ready_at = sorted(self.ready_at)[:count] + [now + self.given.start] * (count - len(self.ready_at))


class Scaler:
    """The HPA: ceil(servers x metric / target), the larger of the two, then its behaviour."""

    def __init__(self, given: argparse.Namespace) -> None:
        self.given = given
        self.asked: collections.deque[tuple[int, int]] = collections.deque()  # what it would have, over the down window
        self.counts: collections.deque[tuple[int, int]] = collections.deque()  # servers, over the longest policy

    def desired(self, now: int, servers: int, metrics: tuple[float, float]) -> int:
        given, wants = self.given, []
        for value, target in zip(metrics, (given.busy, given.backlog)):
            ratio = value / target
            wants.append(servers if abs(ratio - 1) <= 0.1 else math.ceil(servers * ratio))
        want = min(max(*wants, given.least), given.most)
        self.asked.append((now, want))
        while self.asked[0][0] < now - given.down_window:
            self.asked.popleft()
        self.counts.append((now, servers))
        while self.counts[0][0] < now - 60:
            self.counts.popleft()
        then = next(count for at, count in self.counts if at >= now - 15)
        up = max(then + math.ceil(then * given.up_percent / 100), then + given.up_pods)
        down = math.floor(self.counts[0][1] * (1 - given.down_percent / 100))
        if want > servers:
            return max(servers, min(want, up))
        return min(servers, max(want, down, *(asked for _, asked in self.asked)))


def replay(load: list[float], given: argparse.Namespace) -> dict[str, object]:
    fleet, scaler = Fleet(given), Scaler(given)
    metrics, worst, late, pods, most = (0.0, 0.0), 0.0, 0, 0, given.least
    moves: list[tuple[int, int]] = []  # second, direction
    for now, asked in enumerate(load):
        fleet.second(now, asked)
        if now % given.period == 0:
            metrics = fleet.scrape(now)
        if now % given.period == given.period // 2:
            count = scaler.desired(now, fleet.wanted, metrics)
            if count != fleet.wanted:
                moves.append((now, 1 if count > fleet.wanted else -1))
                fleet.scale(now, count)
        waits = fleet.backlog / max(1, fleet.slots)
        worst, late, pods = max(worst, waits), late + (waits > 2), pods + len(fleet.ready_at)
        most = max(most, fleet.wanted)
        if given.trace:
            print(f"{now} {asked:.3f} {fleet.slots} {waits:.2f}", file=given.trace)
    flaps = sum(a[1] < 0 < b[1] and b[0] - a[0] < FLAP for a, b in zip(moves, moves[1:]))
    return {"seconds": len(load), "most": most, "moves": len(moves), "flaps": flaps,
            "worst_backlog_seconds": round(worst, 1), "seconds_above_2": late, "server_hours": round(pods / 3600, 2),
            "needed_hours": round(sum(load) / 3600, 2)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("load", nargs="?", type=argparse.FileType(), help="numbers, one a line")
    parser.add_argument("--step", nargs=2, type=float, metavar=("FROM", "TO"))
    for name, default, text in (("busy", 0.7, "target of fletch:busy:ratio"), ("backlog", 1.0, "target of fletch:backlog:seconds")):
        parser.add_argument(f"--{name}", type=float, default=default, help=f"{text} (default: {default})")
    for name, default, text in (
            ("least", 2, "minReplicas"), ("most", 20, "maxReplicas"), ("up-percent", 300, "scaleUp, in 15 seconds"),
            ("up-pods", 4, "scaleUp, in 15 seconds"), ("down-percent", 25, "scaleDown, in 60 seconds"),
            ("down-window", 1800, "scaleDown.stabilizationWindowSeconds"), ("start", 5, "seconds until a new server is ready"),
            ("period", 15, "seconds between scrapes, and between looks of the HPA")):
        parser.add_argument(f"--{name}", type=int, default=default, help=f"{text} (default: {default})")
    parser.add_argument("--trace", type=argparse.FileType("w"))
    given = parser.parse_args()
    if (given.load is None) == (given.step is None):
        parser.error("a file of loads, or --step FROM TO")
    if min(given.least, given.period, given.busy, given.backlog) <= 0 or given.most < given.least:
        parser.error("numbers are positive, and --most is not below --least")
    if min(given.start, given.down_window, given.up_percent, given.up_pods) < 0 or not 0 <= given.down_percent <= 100:
        parser.error("times and policies are numbers from 0, --down-percent is at most 100")
    if given.period > 30:
        parser.error("--period is at most 30: the rate of a minute needs two scrapes")
    if given.step:
        low, high = given.step
        load = [low] * 1200 + [high] * 1200 + [low] * 1200
    else:
        try:
            load = [float(line) for line in given.load if line.strip()]
        except ValueError as error:
            parser.error(f"{given.load.name}: {error}")
    if not load or min(load) < 0:
        parser.error("a load is a number from 0, and there is at least one")
    print(json.dumps(replay(load, given)))


if __name__ == "__main__":
    sys.exit(main())
