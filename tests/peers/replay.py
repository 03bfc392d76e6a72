"""Makes every version of a run again from what the aggregator stored: a second implementation.

usage: replay.py GATEWAY_STATE MODEL.onnx [MAX_NORM [trust|- [OPTIMIZER [KEY=VALUE...]]]]

All are values of the job: MAX_NORM of limits.max_norm (10 when not given, 0 for no limit), trust where
limits.trust_groups is true, server.optimizer, and other keys below server. robust.KEY=VALUE is a key below
robust, and seed=NUMBER the job's seed.

Written from aggregator/README.md, runtime/update/UPDATE.md and the headers they name. Each version, the
frame that makes it and what that frame left out are compared with the stored files byte for byte, and their
digests with the ledger. All sums are whole numbers.
"""

import math
import os
import sys
from typing import NamedTuple

import update
from formats import (check_versions, digest_of, layout_of, make_graph, make_version, open_ledger, read_file,
                     read_version, statistics_of, variances_of)
from robust import Robust, quotient
from server_optimizer import Server
from update import Refused, floats, refuse

FIX = 1 << 27


def norm_of(fixes):
    """The L2 norm, rounded up."""
    squares = sum(fix * fix for fix in fixes)
    return math.isqrt(squares - 1) + 1 if squares else 0


def scaled(fixes, largest):
    """The values in units of 2^-27, scaled down to the largest norm; None: no limit."""
    norm = norm_of(fixes)
    if largest is None or norm <= largest:
        return fixes
    factor = (largest << 32) // norm
    return [abs(fix) * factor // 2**32 * (1 if fix > 0 else -1) for fix in fixes]


def capped(updates, largest):
    """(group, weight, values) of each update (group, weight, boards, values) after the caps by the round's medians."""
    middle = lambda numbers: sorted(numbers)[(len(numbers) - 1) // 2]
    norms = [norm_of(fixes) for _, _, _, fixes in updates]
    moving = sorted(norm for norm in norms if norm)
    each = max(1, middle([weight // boards for _, weight, boards, _ in updates]))
    above = None
    if len(moving) >= 3:
        largest = min(value for value in (largest, middle(moving) + middle(moving) // 4) if value is not None)
        above = moving[len(moving) - 1 - len(moving) // 4]
        above += above // 4 * 3
    return [(group, min(weight, each * boards), scaled(fixes, largest))
            for (group, weight, boards, fixes), norm in zip(updates, norms) if above is None or norm <= above]


def limited(fixes, variances, parent):
    """What is taken from a variance is at most what it has."""
    for at in variances:
        fixes[at] = max(fixes[at], -max(-2**31, min(2**31, math.floor(parent[at] * FIX))))
    return fixes


def read_updates(contributions, directory, expected, layout):
    """(group, weight, boards, whole numbers) of each, by group."""
    updates = []
    for group, digest, size, weight, boards in sorted(contributions):
        frame = read_file(directory, "round-%d-%s.update" % (expected["round"], group))
        refuse(len(frame) != size or digest_of(frame) != digest, "the update of %s" % group)
        header, values = update.decode(frame, layout)
        refuse((header.run, header.round, header.base, header.group) !=
               (expected["run"], expected["round"], expected["base"], group), "header of the update of %s" % group)
        refuse(weight > header.weight, "an update counts for more than it says")
        updates.append((group, min(weight, 2**31 // len(contributions)), boards, [round(each * FIX) for each in values]))
    return updates


def mean_of(updates, job, variances, parent, number, center):
    """(mean, center after it, weight)"""
    largest = math.floor(job.max_norm * FIX) if job.max_norm else None
    trusted = job.trust or len(updates) < 3 or not all(boards for _, _, boards, _ in updates)
    if trusted:
        counted = [(group, weight, scaled(fixes, largest)) for group, weight, _, fixes in updates]
    else:
        counted = capped(updates, largest)
    counted = [(group, weight, limited(list(fixes), variances, parent)) for group, weight, fixes in counted]
    total = sum(weight for _, weight, _ in counted)
    if job.robust.rule != "none" and not trusted and (not job.clip or len(updates) >= job.robust.needs()):
        return (*job.robust.mean(counted, number, center), total)
    sums = [sum(weight * each for (_, weight, _), each in zip(counted, values))
            for values in zip(*(fixes for _, _, fixes in counted))]
    return floats(quotient(each, total * FIX) for each in sums), center, total


class Job(NamedTuple):
    """The values of a job that versions depend on; clip is robust.short: clip."""
    max_norm: float = 10.0
    trust: bool = False
    server: Server = Server()
    robust: Robust = Robust()
    clip: bool = False


def merge(parent, residual, step, rule, base, layout, variances):
    """(weights, residual, frame) of the next version."""
    step = floats(s + r for s, r in zip(step, residual))
    step = floats(max(-update.LARGEST, min(update.LARGEST, each)) for each in step)
    frame = update.encode(rule._replace(base=base), layout, step)
    sent = update.decode(frame, layout)[1]
    if rule.flags & update.ROUNDED:
        weights = update.use(rule._replace(base=base), sent, layout, parent, variances)
        moved = floats(w - p for w, p in zip(weights, parent))
        return weights, floats(s - m for s, m in zip(step, moved)), frame
    return update.use(rule, sent, layout, parent, variances), floats(s - d for s, d in zip(step, sent)), frame


def replay(gateway, model_path, max_norm, trust=False, server=Server(), robust=Robust(), clip=False):
    job = Job(max_norm, trust, server, robust, clip)
    model, ledger, files = read_file(model_path), open_ledger(gateway), os.path.join(gateway, "files")
    layout, graph, variances = layout_of(model), digest_of(make_graph(model)), variances_of(model)
    check_versions(gateway, model, ledger)
    run = ledger.execute("SELECT run FROM meta").fetchone()[0] % 2**64
    versions = ledger.execute("SELECT number, digest, delta_digest, delta_size, state_digest FROM version "
                              "WHERE number > 0 ORDER BY number").fetchall()
    base = read_version(read_file(files, "version-0.full"))
    residual, rows = floats([0.0]) * len(base.values), server.begin(len(base.values))
    center = robust.begin(len(base.values))
    statistics = statistics_of(model)
    for number, digest, delta_digest, delta_size, state_digest in versions:
        delta = read_file(files, "version-%d.delta" % number)
        refuse(len(delta) != delta_size or digest_of(delta) != delta_digest, "delta %d" % number)
        rule = update.decode(delta, layout)[0]
        contributions = ledger.execute("SELECT grp, digest, size, weight, boards FROM contribution WHERE round = ?",
                                       (number,)).fetchall()
        limits = variances if all(row[4] for row in contributions) else []  # 0: an older program's
        expected = {"run": run, "round": number, "base": base.digest}
        updates = read_updates(contributions, files, expected, layout)
        mean, center, total = mean_of(updates, job, limits, base.values, number, center)
        refuse((rule.run, rule.round, rule.group, rule.weight) != (run, number, "", total), "header of delta %d" % number)
        step, rows = server.step(mean, rows, statistics)
        weights, residual, frame = merge(base.values, residual, step, rule, base.digest, layout, limits)
        refuse(frame != delta, "version %d has another delta" % number)
        refuse(residual.tobytes() != read_file(files, "version-%d.residual" % number), "residual %d" % number)
        state = b"".join(row.tobytes() for row in [*rows, *center])
        refuse(state and state != read_file(files, "version-%d.state" % number), "state %d" % number)
        refuse(state_digest not in (None, digest_of(residual.tobytes() + state)), "digest of state %d" % number)
        made = make_version(graph, base.digest, weights)
        refuse(made != read_file(files, "version-%d.full" % number), "version %d" % number)
        base = read_version(made)
        refuse(base.digest != digest, "the digest of version %d" % number)
    return len(versions), base.digest


def main(gateway, model_path, max_norm="10", trust="", optimizer="fedavg", *values):
    pairs = dict(each.split("=") for each in values)
    rule = {key[7:]: pairs.pop(key) for key in list(pairs) if key.startswith("robust.")}
    clip, seed = rule.pop("short", "wait") == "clip", int(pairs.pop("seed", 1))
    robust = Robust(rule.get("rule", "none"), rule.get("mix", "none"), int(rule.get("tolerate", 1)), seed)
    server = Server(optimizer, **{key: float(value) for key, value in pairs.items()})
    count, digest = replay(gateway, model_path, float(max_norm), trust == "trust", server, robust, clip)
    print("%d versions made again, the last is %s" % (count, digest.hex()))


if __name__ == "__main__":
    try:
        main(*sys.argv[1:])
    except Refused as error:
        sys.exit("replay: %s" % error)
