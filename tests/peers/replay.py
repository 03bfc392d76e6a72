"""Makes every version of a run again from what the aggregator stored: a second implementation.

usage: replay.py GATEWAY_STATE MODEL.onnx [MAX_NORM [trust|- [OPTIMIZER [KEY=VALUE...]]]]

All are values of the job: MAX_NORM of limits.max_norm (10 when not given, 0 for no limit), trust where
limits.trust_groups is true, server.optimizer, and other keys below server. robust.KEY=VALUE is a key below
robust, seed=NUMBER the job's seed, and stay=PATTERNS the tensors that never travel, with commas between them;
small=sign is update.small.
async=BUFFER/QUORUM: the rounds are asynchronous.
With the word ledger in place of MAX_NORM, each round has the job that the ledger has for it. Runs with control
variates or normalized steps need that.

Written from aggregator/README.md, runtime/update/UPDATE.md and the headers they name. Each version, the
frame that makes it and what that frame left out are compared with the stored files byte for byte, and their
digests with the ledger. All sums are whole numbers.
"""

import builtins
import fnmatch
import math
import os
import sys
from typing import NamedTuple

import control
import ledger_settings
import update
from formats import (check_versions, digest_of, layout_of, make_graph, make_version, open_ledger, read_file,
                     read_model, read_version, statistics_of, variances_of)
from normalize import Normalize
from robust import Robust, quotient
from server_optimizer import Server
from update import Refused, floats, refuse

FIX = 1 << 27


def norm_of(fixes):
    """The L2 norm, rounded up."""
    squares = sum(fix * fix for fix in fixes)
    return math.isqrt(squares - 1) + 1 if squares else 0


class Parts:
    """Which coordinates have norms of their own: the trained values, and the statistics."""

    def __init__(self, count, statistics, older):
        """older: an older program accepted an update, which has one norm of all values."""
        kept = set() if older else set(statistics)
        self.parts = [[at for at in range(count) if at not in kept], sorted(kept)]
        self.least = 3 if older else 1

    def norms(self, fixes):
        return [norm_of([fixes[at] for at in part]) for part in self.parts]

    def scaled(self, fixes, largest, stale=256):
        """The values in units of 2^-27, scaled down to the largest norms (None: no limit) and to stale of 256."""
        result = list(fixes)
        for part, norm, most in zip(self.parts, self.norms(fixes), largest):
            factor = 2**32 if most is None or norm <= most else (most << 32) // norm
            factor = factor * stale // 256
            for at in part:
                result[at] = abs(fixes[at]) * factor // 2**32 * (1 if fixes[at] > 0 else -1)
        return result


def middle(numbers):
    return sorted(numbers)[(len(numbers) - 1) // 2]


def limits_of(norms, largest, least):
    """(what is scaled down to, what is left out above) of the norms of a part; None: no limit."""
    moving = sorted(norm for norm in norms if norm)
    if len(moving) < least:
        return largest, None
    above = moving[len(moving) - 1 - len(moving) // 4]
    limit = middle(moving) + middle(moving) // 4
    return limit if largest is None else min(limit, largest), above + above // 4 * 3


def capped(updates, largest, ruled, parts):
    """(group, weight, values, stale) of each update (group, weight, boards, values, stale) after the caps by the round's
    medians, and the norms of the trained values of all by group, as far as the caps leave them."""
    norms = [parts.norms(fixes) for _, _, _, fixes, _ in updates]
    each = max(1, middle([weight // boards for _, weight, boards, _, _ in updates]))
    most, above = limits_of([trained for trained, _ in norms], largest, parts.least)
    statistics_most, statistics_above = limits_of([statistics for _, statistics in norms], None, parts.least)
    counted = []
    for (group, weight, boards, fixes, stale), (trained, statistics) in zip(updates, norms):
        if above is not None and trained > above:
            continue
        out = statistics_above is not None and statistics > statistics_above
        fixes = parts.scaled(fixes, (most, 0 if out else statistics_most), stale if ruled else 256)
        counted.append((group, min(weight, each * boards), fixes, stale))
    return counted, {update[0]: norm if most is None else min(norm, most) for update, (norm, _) in zip(updates, norms)}


def limited(fixes, variances, parent):
    """What is taken from a variance is at most what it has."""
    for at in variances:
        fixes[at] = max(fixes[at], -max(-2**31, min(2**31, math.floor(parent[at] * FIX))))
    return fixes


def check_flags(header, layout, what):
    """The flags that say how tensors travel are those of the job."""
    refuse(header.flags & (update.STAY | update.SMALL_SIGNS) != update.flags_of(layout), "tensors of " + what)


def layout_with(model, patterns, small):
    """The layout. Tensors that a pattern names are marked as those that never travel, and small ones as signs."""
    named = [any(fnmatch.fnmatchcase(tensor.name, each) for each in patterns) for tensor in read_model(model)]
    return [(count, kind + update.STAYS * mark
             + update.SIGNS * (small == "sign" and kind == update.PARAM and count < update.SMALL))
            for (count, kind), mark in zip(layout_of(model), named)]


STALE = [256, 181, 148, 128, 114, 105, 97, 91, 85]  # of 256, by the number of versions behind


def read_updates(contributions, directory, run, number, bases, layout):
    """(group, weight, boards, whole numbers, staleness) of each, by group. bases: the digests of the versions."""
    updates = []
    ones = 256 if any(round != number for *_, round in contributions) else 1
    for group, digest, size, weight, boards, _, round in sorted(contributions):
        frame = read_file(directory, "round-%d-%s.update" % (round, group))
        refuse(len(frame) != size or digest_of(frame) != digest, "the update of %s" % group)
        header, values = update.decode(frame, layout)
        refuse((header.run, header.round, header.base, header.group) != (run, round, bases[round - 1], group),
               "header of the update of %s" % group)
        refuse(weight > header.weight, "an update counts for more than it says")
        check_flags(header, layout, "the update of %s" % group)
        updates.append((group, min(weight, 2**31 // ones // len(contributions)), boards,
                        [builtins.round(each * FIX) for each in values], STALE[number - round]))
    return updates


def mean_of(updates, steps, job, variances, statistics, older, parent, number, center):
    """(mean, center after it, weight); older: an older program accepted an update of the round"""
    parts = Parts(len(parent), statistics, older)
    largest = math.floor(job.max_norm * FIX) if job.max_norm else None
    trusted = job.trust or len(updates) < 3 or not all(boards for _, _, boards, _, _ in updates)
    ruled = job.robust.rule != "none" and not trusted and (not job.clip or len(updates) >= job.robust.needs())
    norms = None
    if trusted:
        counted = [(group, weight, parts.scaled(fixes, (largest, None)), stale)
                   for group, weight, _, fixes, stale in updates]
    else:
        counted, norms = capped(updates, largest, ruled, parts)
    counted = [(group, weight, limited(list(fixes), variances, parent), stale) for group, weight, fixes, stale in counted]
    total = sum(weight for _, weight, _, _ in counted)
    if job.normalize and all(steps.values()):
        mean, total = job.normalize.mean([each[:3] for each in counted], steps, norms, statistics)
        return mean, center, total
    if ruled:
        return (*job.robust.mean([each[:3] for each in counted], number, center, parts.parts[0]), total)
    ones = 256 if any(stale != 256 for *_, stale in updates) else 1
    shares = [weight * stale * ones // 256 for _, weight, _, stale in counted]
    sums = [sum(share * each for share, each in zip(shares, values))
            for values in zip(*(fixes for _, _, fixes, _ in counted))]
    return floats(quotient(each, total * ones * FIX) for each in sums), center, total


class Job(NamedTuple):
    """The values of a job that versions depend on; clip is robust.short: clip."""
    max_norm: float = 10.0
    trust: bool = False
    server: Server = Server()
    robust: Robust = Robust()
    clip: bool = False
    normalize: Normalize | None = None
    correction: control.Control | None = None


def updates_with_values(contributions, directory, layout):
    """(values, steps) of the updates that change control variates."""
    frames = [(update.decode(read_file(directory, "round-%d-%s.update" % (round, group)), layout), steps)
              for group, _, _, _, _, steps, round in sorted(contributions)]
    return [(values, steps) for (header, values), steps in frames if header.mode != update.SKIP]


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


def check_version(number, residual, rows, made, files, digest, state_digest):
    """The version that was made, after all that belongs to it is equal to what is stored."""
    refuse(residual.tobytes() != read_file(files, "version-%d.residual" % number), "residual %d" % number)
    state = b"".join(row.tobytes() for row in rows)
    refuse(state and state != read_file(files, "version-%d.state" % number), "state %d" % number)
    refuse(state_digest not in (None, digest_of(residual.tobytes() + state)), "digest of state %d" % number)
    refuse(made != read_file(files, "version-%d.full" % number), "version %d" % number)
    base = read_version(made)
    refuse(base.digest != digest, "the digest of version %d" % number)
    return base


def replay_ruling(ruling, number, job, base, residual, rows, center, model, files, digests, follower):
    """(version, residual, rows, center) of a version that the gate or a person decided about."""
    (kind, source), (graph, layout, run), (digest, delta_digest, state_digest) = ruling, model, digests
    refuse(kind not in (ledger_settings.REFUSED, ledger_settings.ROLLED_BACK), "the ruling about version %d" % number)
    weights = base.values
    if kind == ledger_settings.REFUSED:
        frame = ledger_settings.empty_frame(run, number, base.digest, layout)
        refuse(frame != read_file(files, "version-%d.delta" % number), "delta %d" % number)
        refuse(digest_of(frame) != delta_digest, "digest of delta %d" % number)
    else:
        weights = read_version(read_file(files, "version-%d.full" % source)).values
        residual, rows, center = ledger_settings.rolled_back(job, len(base.values))
    if follower and kind == ledger_settings.REFUSED:
        follower.begin(number, base)
    elif follower:
        follower.roll_back()
    made = make_version(graph, base.digest, weights)
    state = [*rows, *center, *([follower.server] if follower else [])]
    return check_version(number, residual, state, made, files, digest, state_digest), residual, rows, center


def replay(gateway, model_path, max_norm, trust=False, server=Server(), robust=Robust(), clip=False, stay=(),
           normalize=None, correction=None, small="q8"):
    job = Job(max_norm, trust, server, robust, clip, normalize, correction)
    model, ledger, files = read_file(model_path), open_ledger(gateway), os.path.join(gateway, "files")
    layout, graph, variances = layout_with(model, stay, small), digest_of(make_graph(model)), variances_of(model)
    check_versions(gateway, model, ledger)
    run = ledger.execute("SELECT run FROM meta").fetchone()[0] % 2**64
    versions = ledger.execute("SELECT number, digest, delta_digest, delta_size, state_digest FROM version "
                              "WHERE number > 0 ORDER BY number").fetchall()
    base = read_version(read_file(files, "version-0.full"))
    residual, rows = floats([0.0]) * len(base.values), server.begin(len(base.values))
    center = robust.begin(len(base.values))
    statistics, bases = statistics_of(model), [base.digest]
    jobs = ledger_settings.read_jobs(ledger) if max_norm == "ledger" else None
    rulings, downlinks = ledger_settings.read_rulings(ledger), ledger_settings.read_downlinks(ledger)
    variates = control.Follower(ledger, layout, run)
    for number, digest, delta_digest, delta_size, state_digest in versions:
        if jobs:
            job, rows, center = ledger_settings.take_over(jobs, number, job, rows, center, len(base.values))
        follower = variates if job.correction else None
        if number in rulings:
            base, residual, rows, center = replay_ruling(rulings[number], number, job, base, residual, rows, center,
                                                         (graph, layout, run), files, (digest, delta_digest, state_digest),
                                                         follower)
            bases.append(base.digest)
            continue
        delta = read_file(files, "version-%d.delta" % number)
        refuse(len(delta) != delta_size or digest_of(delta) != delta_digest, "delta %d" % number)
        rule = update.decode(delta, layout)[0]
        check_flags(rule, layout, "delta %d" % number)
        if jobs:
            ledger_settings.check_rule(rule, number, jobs, downlinks)
        contributions = ledger.execute("SELECT grp, digest, size, weight, boards, steps, round FROM contribution "
                                       "WHERE version = ?", (number,)).fetchall()
        older = ledger.execute("SELECT count(*) FROM contribution WHERE version = ? AND caps < 2", (number,)).fetchone()[0]
        limits = variances if all(row[4] for row in contributions) else []  # 0: an older program's
        updates = read_updates(contributions, files, run, number, bases, layout)
        steps = {row[0]: row[5] for row in contributions}
        mean, center, total = mean_of(updates, steps, job, limits, statistics, older, base.values, number, center)
        refuse((rule.run, rule.round, rule.group, rule.weight) != (run, number, "", total), "header of delta %d" % number)
        step, rows = job.server.step(mean, rows, statistics)
        weights, residual, frame = merge(base.values, residual, step, rule, base.digest, layout, limits)
        refuse(frame != delta, "version %d has another delta" % number)
        if follower:
            follower.follow(job.correction, number, base, updates_with_values(contributions, files, layout))
        state = [*rows, *center, *([follower.server] if follower else [])]
        base = check_version(number, residual, state, make_version(graph, base.digest, weights), files, digest,
                             state_digest)
        bases.append(base.digest)
    return len(versions), base.digest


def main(gateway, model_path, max_norm="10", trust="", optimizer="fedavg", *values):
    pairs = dict(each.split("=") for each in values)
    rule = {key[7:]: pairs.pop(key) for key in list(pairs) if key.startswith("robust.")}
    buffer, quorum = map(int, pairs.pop("async", "1/1").split("/"))
    stay = pairs.pop("stay").split(",") if "stay" in pairs else ()
    small = pairs.pop("small", "q8")
    clip, seed = rule.pop("short", "wait") == "clip", int(pairs.pop("seed", 1))
    robust = Robust(rule.get("rule", "none"), rule.get("mix", "none"), int(rule.get("tolerate", 1)), seed)
    server = Server(optimizer, **{key: float(value) for key, value in pairs.items()}).asynchronous(buffer, quorum)
    max_norm = max_norm if max_norm == "ledger" else float(max_norm)
    count, digest = replay(gateway, model_path, max_norm, trust == "trust", server, robust, clip, stay, small=small)
    print("%d versions made again, the last is %s" % (count, digest.hex()))


if __name__ == "__main__":
    try:
        main(*sys.argv[1:])
    except Refused as error:
        sys.exit("replay: %s" % error)
