"""What the ledger of a run has besides updates: the jobs that held, and the versions that a ruling made.

Written from runtime/profile/job_text.h, aggregator/ledger/rulings.h and aggregator/merge/ruled.h.
"""

import sqlite3

import update
from control import Control
from normalize import Normalize
from robust import Robust
from server_optimizer import Server
from update import floats, refuse

REFUSED, ROLLED_BACK = 1, 2


def read_jobs(ledger):
    """[(first round, {key: value})], the newest first."""
    rows = ledger.execute("SELECT from_round, job FROM setting ORDER BY from_round DESC").fetchall()
    refuse(any(text is None for _, text in rows), "the ledger lacks the values of a job")
    return [(first, dict(line.split(": ", 1) for line in text.splitlines())) for first, text in rows]


def values_at(jobs, number):
    return next(values for first, values in jobs if first <= number)


def number_of(text):
    """The words of a profile stand for 0."""
    return 0 if text in ("none", "by optimizer") else float(text)


def steps_of(kind, values):
    """A kind of Control or Normalize with the values that say how far the steps of a round go."""
    return kind(learning_rate=number_of(values["train.learning_rate"]), momentum=number_of(values["train.momentum"]),
                proximal=number_of(values["train.proximal"]), nesterov=values["train.nesterov"] == "true")


def normalize_of(values):
    return steps_of(Normalize, values) if values.get("server.normalize") == "steps" else None


def correction_of(values):
    if values.get("train.correction", "none") == "none":
        return None
    refuse(values["train.schedule.kind"] != "constant" or number_of(values["train.schedule.warm_up"]),
           "learning rates of a schedule are not computed here")
    return steps_of(Control, values)


def server_of(values):
    server = Server(values["server.optimizer"], *(number_of(values["server." + key])
                                                  for key in ("learning_rate", "momentum", "beta1", "beta2", "epsilon")))
    if values.get("rounds.mode", "synchronous") == "synchronous":
        return server
    quorum, buffer = int(values["rounds.quorum"]), values["rounds.async.buffer"]
    # What earlier programs meant by it, which the digest tells, is not made again here.
    buffer = min(quorum, max(3, (5 * quorum + 7) // 8)) if buffer == "by quorum" else int(buffer)
    robust = robust_of(values)
    waits = robust.rule != "none" and values["robust.short"] == "wait"
    return server.asynchronous(max(buffer, robust.needs()) if waits else buffer, quorum)


def robust_of(values):
    return Robust(values["robust.rule"], values["robust.mix"], int(values["robust.tolerate"]), int(values["seed"]))


def job_of(values, job):
    """The given job with the values of the ledger."""
    return job._replace(max_norm=number_of(values["limits.max_norm"]), trust=values["limits.trust_groups"] == "true",
                        server=server_of(values), robust=robust_of(values), clip=values["robust.short"] == "clip",
                        normalize=normalize_of(values), correction=correction_of(values))


def take_over(jobs, number, job, rows, center, count):
    """(job, rows, center) of a round: rows stay as long as the optimizer does, the center if both rules have one."""
    values = values_at(jobs, number)
    before = values_at(jobs, max(1, number - 1))
    job = job_of(values, job)
    kept = number > 1 and values["server.optimizer"] == before["server.optimizer"]
    begun = job.robust.begin(count)
    return job, rows if kept else job.server.begin(count), center if kept and len(center) == len(begun) else begun


def read_rulings(ledger):
    """{version: (kind, source)}"""
    try:
        return {version: (kind, source) for version, kind, source in
                ledger.execute("SELECT version, kind, source FROM ruling")}
    except sqlite3.OperationalError:  # an older program's ledger
        return {}


def read_downlinks(ledger):
    """{version: (mode, density, value bits)} of versions for whose encoding the measured links decided"""
    try:
        return {version: tuple(rule) for version, *rule in
                ledger.execute("SELECT version, mode, density, value_bits FROM downlink")}
    except sqlite3.OperationalError:  # an older program's ledger
        return {}


def check_rule(header, number, jobs, downlinks):
    """A version is encoded by the rule of its job, or by the recorded one if that is automatic."""
    mode = values_at(jobs, number)["update.down.mode"]
    if mode != "auto":
        refuse(header.mode != update.MODES.index(mode), "the encoding of version %d" % number)
        return
    refuse(number not in downlinks, "the ledger lacks how version %d goes down" % number)
    mode, density, value_bits = downlinks[number]
    same = header.mode == mode and (mode != update.TOPK or
                                    (abs(header.density - density) < 1e-6 and header.value_bits == value_bits))
    refuse(not same, "the encoding of version %d" % number)


def empty_frame(run, number, base, layout):
    """The delta of a version that the gate refused: it changes nothing."""
    header = update.Header(update.SKIP, 0, "", number, run, 1, 0.0, base, update.flags_of(layout))
    return update.encode(header, layout, floats([0.0]) * sum(count for count, _ in layout))


def rolled_back(job, count):
    """(residual, rows, center) of a version that went back to an earlier one."""
    return floats([0.0]) * count, job.server.begin(count), job.robust.begin(count)
