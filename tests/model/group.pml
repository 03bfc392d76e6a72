/* group.pml - the epochs and steps of a group, for Spin: runtime/group/membership*.c, and what
 * runtime/round/epoch/epoch.c and session_step.c do in an epoch. README.md says what each part stands for,
 * what is left out and why that loses nothing.
 *
 * With CHAIN the model is cut into two parts (parallel.pipeline), and runtime/round/session/session_pipeline.c and
 * session_store.c are searched in place of a step that each member has whole.
 *
 * Each NO_... leaves out one protection; the search must then find a violated assertion.
 */

#ifndef N
#define N 3        /* members */
#endif
#ifndef F
#define F 2        /* kill -9, in all */
#endif
#ifndef STEPS
#define STEPS 2    /* of the round */
#endif
#ifndef EPOCHS
#define EPOCHS 3   /* numbers that leaders take */
#endif
#define COUNTERS EPOCHS /* epoch = N * counter + leader, counter from 1 */
#ifndef VETOES
#ifdef NO_VOTE
#define VETOES 1
#endif
#endif
#ifndef VETOES
#define VETOES 0   /* losses that are not finite */
#endif

#ifndef MIN_MEMBERS
#define MIN_MEMBERS 1 /* group.min_members */
#endif

#ifdef CHAIN
#define RESULTS (3 * N + 1) /* more than there are at a time */
#else
#define RESULTS (2 * N + 1)
#endif

#define NUMBERS (N * (COUNTERS + 1))
#define BIT(i) (1 << (i))
#define ALONE(i) (m[i].view == BIT(i))
#define SEND STEPS           /* state: all steps are done, the update waits in the outbox */
#define BASE (STEPS + 1)     /* state: the round is decided, or given up */

/* A training state: how far it is (the tag), and which result its last step has. Two runs of a step count as two
 * results, also where the code would get the same bits twice. */
typedef Training {
    byte step, result;
    byte fate                /* of the round's steps, once it is decided: below */
#ifdef CHAIN
    ; bool lacks             /* the other part is not in it */
#endif
};

#define OWN 1                /* the update that counts was made of them */
#define OTHER 2              /* another one counts, with the steps that both share */
#define PENDING 3            /* none counts: they wait in the residual, for the next round */

typedef Member {
    bool member;             /* else it announces itself */
    byte epoch;              /* highest accepted */
    byte proposal;           /* forming: the number of its PREPARE, or 0 */
    byte view, source;       /* member: the COMMIT that it follows */
    byte calls;              /* member: collective calls of the epoch that have returned here */
    bool summed;             /* member: it holds the sums of a step, */
    bool vetoes;             /* its loss is not finite, */
    bool secured;            /* all have the update on disk */
    Training now, saved;     /* saved and disk_epoch outlive the process */
    byte disk_epoch
#ifdef CHAIN
    ; byte step, result      /* of the part in its memory; now is the whole state, stored last */
    bool stores              /* the next call gathers the whole state */
#endif
};

/* COMMITs on their way: they arrive late or never. */
typedef Commit {
    byte view, source;
    byte stays               /* members that are still in the stay that it names */
};

Member m[N];
Commit commit[NUMBERS];
byte failures, vetoes, epochs;
byte accepted;               /* by the aggregator: the result that the round's update has, or 0 */
bool over;                   /* it has closed the round without one */
bool delivered;              /* steps of the round are in an update that counts */

hidden byte k, j, e, best, all, any; /* of no use between two moves: not part of a state */
hidden byte names[RESULTS + 1];

/* --- states --- */

inline copy_state(to, from) {
    to.step = from.step;
    to.result = from.result;
    to.fate = from.fate
#ifdef CHAIN
    ; to.lacks = from.lacks
#endif
}

/* Results are only told apart, so they are numbered in the order in which they are found. */
inline rename(value) {
    if
    :: value != 0 ->
        if
        :: names[value] == 0 -> best++; names[value] = best
        :: else
        fi;
        value = names[value]
    :: else
    fi
}

inline rename_results() {
    best = 0;
    for (j : 0 .. RESULTS) { names[j] = 0 }
    rename(accepted);
    for (k : 0 .. N - 1) {
        rename(m[k].now.result); rename(m[k].saved.result)
#ifdef CHAIN
        ; rename(m[k].result)
#endif
    }
    for (j : 0 .. RESULTS) { names[j] = 0 }
    best = 0
}

/* The state goes to disk every few seconds: after any change, or not. What is on disk does not matter any
 * more when nobody will be killed. */
inline save(i) {
    if
    :: failures < F -> copy_state(m[i].saved, m[i].now)
    :: else
    fi
}

#ifdef CHAIN
/* The trainer holds its part of the whole state. */
inline load_part(i) {
    m[i].step = m[i].now.step;
    m[i].result = m[i].now.result
}

inline drop_part(i) {
    m[i].step = 0;
    m[i].result = 0
}
#endif

/* --- membership --- */

/* A COMMIT that nobody can follow any more says nothing. */
inline forget(e) {
    if
    :: commit[e].stays == 0 -> commit[e].view = 0; commit[e].source = 0
    :: else
    fi
}

inline begin_stay(i) {
    m[i].member = false;
    m[i].view = 0; m[i].source = 0; m[i].calls = 0;
    m[i].summed = false; m[i].vetoes = false; m[i].secured = false;
    m[i].proposal = 0;
#ifdef CHAIN
    m[i].stores = false;
#ifndef NO_GO_BACK
    drop_part(i);
#endif
#endif
#ifndef NO_STAY
    for (e : 0 .. NUMBERS - 1) { commit[e].stays = commit[e].stays & ~BIT(i); forget(e) }
#endif
}

inline crash(i) {
    failures++;
    begin_stay(i);
    m[i].epoch = m[i].disk_epoch;
    copy_state(m[i].now, m[i].saved);
#ifdef CHAIN
    drop_part(i);
#endif
    if
    :: failures == F ->
        for (k : 0 .. N - 1) { m[k].saved.step = 0; m[k].saved.result = 0; m[k].saved.fate = 0; m[k].disk_epoch = 0 }
    :: else
    fi;
    rename_results()
}

inline persist(i, number) {
#ifdef NO_PERSIST
    skip
#else
    if
    :: failures < F -> m[i].disk_epoch = number
    :: else
    fi
#endif
}

inline enter(i, number, members, from) {
    m[i].epoch = number;
    persist(i, number);
    m[i].member = true;
    m[i].view = members; m[i].source = from;
    m[i].proposal = 0;
    /* A number has one view. */
    for (k : 0 .. N - 1) {
        assert(!m[k].member || m[k].epoch != number || m[k].view == members)
    }
}

/* A state of the counted lineage, as a member of the view can know: by its fate, or by that of another member. */
#define KNOWS(k) (m[k].now.fate == OWN || m[k].now.fate == OTHER)
#define COUNTED(k) (m[k].now.fate == OWN || (any && m[k].now.step == SEND && m[k].now.result == accepted))
#define BETTER(k, best) (COUNTED(k) > COUNTED(best) || (COUNTED(k) == COUNTED(best) && \
    (m[k].now.step > m[best].now.step || (m[k].now.step == m[best].now.step && k < best))))

/* Who has answered READY in this stay is in; the source is the newest state of the counted lineage if one is there,
 * the lowest of equal ones. */
inline send_commit(i) {
    all = BIT(i);
    any = KNOWS(i);
    for (k : 0 .. N - 1) {
        if
        :: k != i && !m[k].member && m[k].epoch < m[i].proposal -> all = all | BIT(k); any = any | KNOWS(k)
        :: true
        fi
    }
    best = i;
    for (k : 0 .. N - 1) {
        if
        :: k != i && (all & BIT(k)) ->
            if
#ifdef NO_NEWEST
            :: best = k
            :: true
#else
            :: BETTER(k, best) -> best = k
            :: else
#endif
            fi
        :: else
        fi
    }
    any = 0;
    e = m[i].proposal;
    if
    :: all != BIT(i) ->
        commit[e].view = all;
        commit[e].source = best;
        commit[e].stays = all & ~BIT(i)
    :: else
    fi;
    if
    :: all == BIT(i) && MIN_MEMBERS > 1 -> m[i].proposal = 0
    :: else -> enter(i, e, all, best)
    fi;
    m[i].calls = (m[i].member && ALONE(i) -> 1 : 0);
    best = 0
}

/* PREPARE. Anybody may come to lead, and hear any of the others or none. */
inline propose(i) {
    best = m[i].epoch;
    for (k : 0 .. N - 1) {
        if
        :: k != i && !m[k].member && m[k].epoch > best -> best = m[k].epoch
        :: true
        fi
    }
    e = (best / N + 1) * N + i;
    best = 0;
    if
    :: e < NUMBERS -> epochs++; persist(i, e); m[i].proposal = e
#ifndef PHASES
        ; if
        :: send_commit(i)
        :: m[i].proposal = 0 /* too few answered, or it is killed now */
        fi
#endif
    :: else
    fi
}

/* A COMMIT arrives. */
#define WAITS(i, e) ((commit[e].stays & BIT(i)) && e > m[i].epoch)

inline follow(i) {
    for (e : N .. NUMBERS - 1) {
        if
        :: WAITS(i, e) ->
            commit[e].stays = commit[e].stays & ~BIT(i);
            enter(i, e, commit[e].view, commit[e].source);
            forget(e);
            break
        :: true
        fi
    }
}

/* --- in an epoch --- */

/* The next call can return to i: all members of the view have made it, as soon as the one before has
 * returned to them. */
#define THERE(i, k) (m[k].member && m[k].epoch == m[i].epoch)
#ifdef NO_STOP
#define MADE(i, k) (!(m[i].view & BIT(k)) || !THERE(i, k) || m[k].calls >= m[i].calls)
#else
#define MADE(i, k) (!(m[i].view & BIT(k)) || (THERE(i, k) && m[k].calls >= m[i].calls))
#endif
#define RETURNS(i) (m[i].member && MADE(i, 0) && MADE(i, 1) && MADE(i, 2))

/* Rank 0 speaks for the group. */
#define SPEAKS(i) ((m[i].view & (BIT(i) - 1)) == 0)

/* After the same calls of an epoch all its members have the same state. */
inline returned(i) {
    m[i].calls = (ALONE(i) -> 1 : m[i].calls + 1);
    for (k : 0 .. N - 1) {
        if
        :: m[k].member && m[k].epoch == m[i].epoch && m[k].calls == m[i].calls ->
            assert(m[k].now.step == m[i].now.step && m[k].now.result == m[i].now.result &&
                   m[k].now.fate == m[i].now.fate)
#ifdef CHAIN
            ; assert(m[k].step == m[i].step && m[k].result == m[i].result)
#endif
        :: else
        fi
    }
}

/* The collective opens, and the source gives its state to all. */
inline heal(i) {
    best = m[i].source;
    /* What a member of the view holds is not lost, unless another lineage counts; that one is not lost. */
    assert(m[best].now.step >= m[i].now.step || m[i].now.fate == OTHER);
    assert(m[i].now.fate != OWN || m[best].now.fate == OWN);
    copy_state(m[i].now, m[best].now);
    save(i);
#ifdef CHAIN
    assert(!m[i].now.lacks);
#ifdef NO_GO_BACK
    if
    :: m[i].step == 0 -> load_part(i)
    :: else
    fi;
#else
    load_part(i);
#endif
#endif
    rename_results();
    returned(i)
}

/* The first member that applies a step of an epoch makes its result; the others make the same from the same. */
inline apply(i) {
    any = 0;
    for (k : 0 .. N - 1) {
        if
        :: m[k].member && m[k].epoch == m[i].epoch && m[k].calls > m[i].calls && m[k].now.step != BASE ->
            any = m[k].now.result
        :: else
        fi
    }
    m[i].now.step++;
    m[i].now.result = (any != 0 -> any : RESULTS); /* no other has this number */
    any = 0
}

#ifdef CHAIN
/* Each member counts the step; those with a part apply it. One that has applied it has also said whether the state
 * is stored after it: the votes do. */
inline apply_part(i) {
    any = 0; all = 0;
    for (k : 0 .. N - 1) {
        if
        :: THERE(i, k) && m[k].calls > m[i].calls && m[k].step == m[i].step + 1 -> any = m[k].result; all = 1 + m[k].stores
        :: else
        fi
    }
    m[i].step++;
    m[i].result = (any != 0 -> any : RESULTS);
    if
    :: all == 2 || m[i].step == SEND -> m[i].stores = true
#ifdef NO_GATHER
    :: else -> m[i].stores = true
#else
    :: all == 0 && m[i].step < SEND -> m[i].stores = true
    :: all < 2 && m[i].step < SEND -> skip
#endif
    fi;
    any = 0; all = 0
}

/* The members with the parts are the first two of a view. */
#define FIRST(view) ((view) & 1 -> 0 : ((view) & 2 -> 1 : 2))
#define REST(view) ((view) & ((view) - 1))
#define CHAINED(view) (REST(view) != 0)

/* The state is put together of both parts, which must be of one step and one result. */
inline gather(i) {
#ifdef NO_GATHER
    m[i].now.lacks = true;
#else
    assert(CHAINED(m[i].view));
    e = FIRST(m[i].view);
    best = FIRST(REST(m[i].view));
    assert(m[e].step == m[i].step && m[e].result == m[i].result);
    assert(m[best].step == m[i].step && m[best].result == m[i].result);
    e = 0; best = 0;
#endif
    m[i].now.step = m[i].step;
    m[i].now.result = m[i].result;
    m[i].stores = false;
    if
    :: m[i].now.step < SEND -> save(i)
    :: true /* it stays in memory: the disk is full, or the round is over */
    fi;
    rename_results();
    returned(i)
}
#endif

inline give_up(i, what) {
    m[i].now.step = BASE;
    m[i].now.result = 0;
    m[i].now.fate = what;
#ifdef CHAIN
    load_part(i);
#endif
    save(i)
}

/* A member whose loss is not finite is the only one that knows. */
inline finish_step(i, refused) {
    if
    :: refused -> give_up(i, 0)
#ifdef CHAIN
    :: else -> apply_part(i)
#else
    :: else -> apply(i)
#endif
    fi;
    m[i].summed = false;
#ifndef CHAIN
    if
    :: m[i].now.step < SEND -> save(i)
    :: true
    fi;
#endif
    rename_results()
}

inline reduce(i) {
    if
    :: vetoes < VETOES -> vetoes++; m[i].vetoes = true
    :: true
    fi;
#ifdef NO_VOTE
    finish_step(i, m[i].vetoes);
#else
    m[i].summed = true;
#endif
    returned(i)
}


#define VETO(i, k) ((m[i].view & BIT(k)) && m[k].vetoes)

inline vote(i) {
    finish_step(i, VETO(i, 0) || VETO(i, 1) || VETO(i, 2));
    returned(i)
}

/* The update is on the disk of each member before it is sent. */
inline secure(i) {
    save(i);
    m[i].secured = true;
    returned(i)
}

/* One update counts for a group in a round. */
inline send_update(i) {
#ifdef NO_FENCE
    assert(accepted == 0 || accepted == m[i].now.result);
#endif
    accepted = (accepted != 0 -> accepted : m[i].now.result);
    delivered = true;
    rename_results()
}

#ifdef NO_LINEAGE
#define LEFT PENDING
#else
#define LEFT OTHER
#endif

inline decide(i) {
    if
    :: accepted == 0 -> give_up(i, PENDING)
    :: accepted != 0 && m[i].now.result == accepted -> give_up(i, OWN)
    :: else -> give_up(i, LEFT)
    fi;
    rename_results();
    returned(i)
}

/* The next round, in one move: its update has what waits, unless the news says that another part has delivered it.
 * All who share the state know. */
inline deliver(i) {
#ifndef NO_LINEAGE
    if
    :: !delivered ->
#endif
    assert(!delivered); /* no step counts twice */
    delivered = true;
    for (k : 0 .. N - 1) {
        if
        :: m[k].member && m[k].epoch == m[i].epoch && m[k].now.fate == PENDING -> m[k].now.fate = OWN; save(k)
        :: else
        fi
    }
#ifndef NO_LINEAGE
    :: else ->
        for (k : 0 .. N - 1) {
            if
            :: m[k].member && m[k].epoch == m[i].epoch && m[k].now.fate == PENDING -> m[k].now.fate = OTHER; save(k)
            :: else
            fi
        }
    fi
#endif
}

#ifdef CHAIN
#ifdef NO_WAIT
#undef CHAINED
#define CHAINED(view) true
#endif
#define DOES_STEP(i) (m[i].calls > 0 && m[i].now.step < SEND && m[i].step < SEND && !m[i].stores && CHAINED(m[i].view))
#else
#define DOES_STEP(i) (m[i].calls > 0 && m[i].now.step < SEND)
#endif
#define SENDS(i) (m[i].calls > 0 && m[i].now.step == SEND)

proctype Run(byte i) {
end:
    do
    /* Forming. */
    :: atomic { !m[i].member && m[i].proposal == 0 && epochs < EPOCHS -> propose(i) }
    :: atomic { m[i].proposal != 0 -> send_commit(i) }
    :: atomic { !m[i].member -> follow(i) }

    /* A call returns, */
    :: atomic { RETURNS(i) && m[i].calls == 0 -> heal(i) }
    :: atomic { RETURNS(i) && DOES_STEP(i) && !m[i].summed -> reduce(i); if :: ALONE(i) && m[i].summed -> vote(i) :: else fi;
        if :: ALONE(i) && m[i].now.step == SEND -> secure(i) :: else fi }
    :: atomic { RETURNS(i) && DOES_STEP(i) && m[i].summed -> vote(i) }
#ifdef CHAIN
#ifdef NO_GATHER /* each stores its own part, without the others */
    :: atomic { m[i].member && m[i].stores -> gather(i) }
#else
    :: atomic { RETURNS(i) && m[i].stores -> gather(i) }
#endif
#endif
    :: atomic { RETURNS(i) && SENDS(i) && !m[i].secured -> secure(i) }
    :: atomic { RETURNS(i) && SENDS(i) && m[i].secured && (accepted != 0 || over) -> decide(i) }
    :: atomic { RETURNS(i) && m[i].calls > 0 && SPEAKS(i) && m[i].now.fate == PENDING -> deliver(i) }
    :: atomic { m[i].secured && SENDS(i) && SPEAKS(i) && !over && accepted != m[i].now.result -> send_update(i) }

    /* or fails: a member is lost or believed to be, or was frozen, or asks to re-form. */
    :: atomic { m[i].member -> begin_stay(i) }

    :: atomic { failures < F -> crash(i) } /* and starts again, now or later */
    od
}

init {
    atomic {
        for (k : 0 .. N - 1) { run Run(k) }
    };
end:
    atomic { accepted == 0 -> over = true } /* at any moment, or never */
}
