"""Makes every version of a run again from what the aggregator stored: a second implementation.

usage: replay.py GATEWAY_STATE MODEL.onnx [MAX_NORM [trust|- [OPTIMIZER [KEY=VALUE...]]]]

All are values of the job: MAX_NORM of limits.max_norm (10 when not given, 0 for no limit), trust where
limits.trust_groups is true, server.optimizer, and other keys below server.

Written from aggregator/README.md, runtime/update/UPDATE.md and the headers they name. Each version, the
frame that makes it and what that frame left out are compared with the stored files byte for byte, and their
digests with the ledger. All sums are whole numbers.
"""

import math
import os
import sys

import update
from formats import (check_versions, digest_of, layout_of, make_graph, make_version, open_ledger, read_file,
                     read_version, statistics_of, variances_of)
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


def quotient(numerator, denominator):
    """The nearest float32 to a quotient of whole numbers, ties to even; results stay above 2^-126."""
    if not numerator:
        return 0.0
    size = abs(numerator)
    shift = 25 - (size.bit_length() - denominator.bit_length())
    size, denominator = size << max(shift, 0), denominator << max(-shift, 0)
    digits, rest = divmod(size, denominator)
    drop = digits.bit_length() - 24
    low = digits & ((1 << drop) - 1)
    digits >>= drop
    half = 1 << (drop - 1)
    if low > half or low == half and (rest or digits & 1):
        digits += 1
    return math.copysign(math.ldexp(digits, drop - shift), numerator)


def capped(updates, largest):
    """(weight, values) of each update (weight, boards, values) after the caps by the round's medians."""
    middle = lambda numbers: sorted(numbers)[(len(numbers) - 1) // 2]
    norms = [norm_of(fixes) for _, _, fixes in updates]
    moving = sorted(norm for norm in norms if norm)
    each = max(1, middle([weight // boards for weight, boards, _ in updates]))
    above = None
    if len(moving) >= 3:
        largest = min(value for value in (largest, middle(moving) + middle(moving) // 4) if value is not None)
        above = moving[len(moving) - 1 - len(moving) // 4]
        above += above // 4 * 3
    return [(min(weight, each * boards), scaled(fixes, largest))
            for (weight, boards, fixes), norm in zip(updates, norms) if above is None or norm <= above]


def limited(fixes, variances, parent):
    """What is taken from a variance is at most what it has."""
    for at in variances:
        fixes[at] = max(fixes[at], -max(-2**31, min(2**31, math.floor(parent[at] * FIX))))
    return fixes


def mean_of(contributions, directory, expected, layout, max_norm, trust, variances, parent):
    updates = []
    for group, digest, size, weight, boards in contributions:
        frame = read_file(directory, "round-%d-%s.update" % (expected["round"], group))
        refuse(len(frame) != size or digest_of(frame) != digest, "the update of %s" % group)
        header, values = update.decode(frame, layout)
        refuse((header.run, header.round, header.base, header.group) !=
               (expected["run"], expected["round"], expected["base"], group), "header of the update of %s" % group)
        refuse(weight > header.weight, "an update counts for more than it says")
        updates.append((weight, boards, [round(value * FIX) for value in values]))
    updates = [(min(weight, 2**31 // len(updates)), boards, fixes) for weight, boards, fixes in updates]
    largest = math.floor(max_norm * FIX) if max_norm else None
    if trust or len(updates) < 3 or not all(boards for _, boards, _ in updates):
        counted = [(weight, scaled(fixes, largest)) for weight, _, fixes in updates]
    else:
        counted = capped(updates, largest)
    total, sums = 0, [0] * sum(count for count, _ in layout)
    for weight, fixes in counted:
        fixes = limited(list(fixes), variances, parent)
        total += weight
        sums = [each + weight * fix for each, fix in zip(sums, fixes)]
    return floats(quotient(each, total * FIX) for each in sums), total


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


def replay(gateway, model_path, max_norm, trust=False, server=Server()):
    model, ledger, files = read_file(model_path), open_ledger(gateway), os.path.join(gateway, "files")
    layout, graph, variances = layout_of(model), digest_of(make_graph(model)), variances_of(model)
    check_versions(gateway, model, ledger)
    run = ledger.execute("SELECT run FROM meta").fetchone()[0] % 2**64
    versions = ledger.execute("SELECT number, digest, delta_digest, delta_size, state_digest FROM version "
                              "WHERE number > 0 ORDER BY number").fetchall()
    base = read_version(read_file(files, "version-0.full"))
    residual, rows = floats([0.0]) * len(base.values), server.begin(len(base.values))
    statistics = statistics_of(model)
    for number, digest, delta_digest, delta_size, state_digest in versions:
        delta = read_file(files, "version-%d.delta" % number)
        refuse(len(delta) != delta_size or digest_of(delta) != delta_digest, "delta %d" % number)
        rule = update.decode(delta, layout)[0]
        contributions = ledger.execute("SELECT grp, digest, size, weight, boards FROM contribution WHERE round = ?",
                                       (number,)).fetchall()
        limits = variances if all(row[4] for row in contributions) else []  # 0: an older program's
        expected = {"run": run, "round": number, "base": base.digest}
        mean, total = mean_of(contributions, files, expected, layout, max_norm, trust, limits, base.values)
        refuse((rule.run, rule.round, rule.group, rule.weight) != (run, number, "", total), "header of delta %d" % number)
        step, rows = server.step(mean, rows, statistics)
        weights, residual, frame = merge(base.values, residual, step, rule, base.digest, layout, limits)
        refuse(frame != delta, "version %d has another delta" % number)
        refuse(residual.tobytes() != read_file(files, "version-%d.residual" % number), "residual %d" % number)
        state = b"".join(row.tobytes() for row in rows)
        refuse(state and state != read_file(files, "version-%d.state" % number), "state %d" % number)
        refuse(state_digest not in (None, digest_of(residual.tobytes() + state)), "digest of state %d" % number)
        made = make_version(graph, base.digest, weights)
        refuse(made != read_file(files, "version-%d.full" % number), "version %d" % number)
        base = read_version(made)
        refuse(base.digest != digest, "the digest of version %d" % number)
    return len(versions), base.digest


def main(gateway, model_path, max_norm="10", trust="", optimizer="fedavg", *values):
    server = Server(optimizer, **{key: float(value) for key, value in (each.split("=") for each in values)})
    count, digest = replay(gateway, model_path, float(max_norm), trust == "trust", server)
    print("%d versions made again, the last is %s" % (count, digest.hex()))


if __name__ == "__main__":
    try:
        main(*sys.argv[1:])
    except Refused as error:
        sys.exit("replay: %s" % error)
