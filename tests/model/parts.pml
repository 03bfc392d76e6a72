/* parts.pml - the stored parts of a chain's state, for Spin: runtime/round/session/chain/session_part_store.c and
 * session_part_heal.c. README.md says what each part stands for.
 *
 * Member i holds part i of a model in N parts, and stores part i - 1 for its neighbour. Who is in which epoch is
 * group.pml's matter: here an epoch begins when everybody has left the one before.
 *
 * Each NO_... leaves out one protection; the search must then find a violated assertion.
 */

#ifndef N
#define N 3        /* members, and parts */
#endif
#ifndef F
#define F 2        /* kill -9, in all */
#endif
#ifndef LOST
#define LOST 1     /* disks that are lost, each with a kill */
#endif
#ifndef REFUSED
#define REFUSED 1  /* writes that a disk refuses */
#endif
#ifndef STEPS
#define STEPS 3    /* of the round */
#endif
#ifndef EPOCHS
#define EPOCHS 3
#endif

#define BIT(i) (1 << (i))
#define ALL (BIT(N) - 1)
#define BEFORE(i) ((i) == 0 -> N - 1 : (i) - 1)

/* A state: its steps, and the epoch that made the last one. In one epoch a step has one result. */
typedef Training { byte step, epoch };

typedef Member {
    bool here;            /* in the epoch */
    byte calls;           /* collective calls of the epoch that have returned here */
    byte phase;           /* what it does next */
    Training part;           /* in its trainer */
    Training held;           /* the whole state that it goes back to, in memory or on its disk */
    Training saved;          /* on its disk, whole */
    Training own[2], other[2]; /* stored parts: its own, and that of the member before */
    byte slot;            /* of these, the one that is written next */
    bool refuses;         /* it refused a write of the last store */
    bool missed           /* in this store */
};

#define OUT 0
#define HEALS 1           /* its next call gives the newest whole state to all, */
#define TAKES 2           /* or a newer one, of stored parts */
#define SAVES 3           /* it stores that state */
#define VOTES 4           /* its next call ends a step */
#define GATHERS 5         /* its next call gives the whole state to all, to be stored */
#define WRITES 6          /* it stores its part, */
#define RECEIVES 7        /* then that of the member before; */
#define AGREES 8          /* its next call tells whether all have */

Member m[N];
byte view, epoch, failures, lost, refused;
byte kind;                /* of the store after the newest step: 0 none, 1 whole, 2 parts; 3 not drawn yet */
byte agreed;              /* steps of the last state whose parts all have stored */
Training chosen;             /* that the stored parts of this epoch's members make */
bool looked;

hidden byte k, p, q, best, found;

#define IN(k) (view & BIT(k))
#define MADE(i, k) (!IN(k) || (m[k].here && (m[k].calls > m[i].calls || \
    (m[k].calls == m[i].calls && m[k].phase == m[i].phase))))
#define RETURNS(i) (m[i].here && MADE(i, 0) && MADE(i, 1) && MADE(i, 2))

inline set(to, from) { to.step = from.step; to.epoch = from.epoch }
inline clear(to) { to.step = 0; to.epoch = 0 }

/* A disk takes a write, or refuses it: then the state before stays. */
inline write(i, to, from) {
    if
    :: set(to, from); m[i].refuses = m[i].missed
    :: refused < REFUSED -> refused++; m[i].refuses = true; m[i].missed = true
    fi
}

inline leave(i) {
    m[i].here = false; m[i].phase = OUT; m[i].calls = 0;
    clear(m[i].part); /* after any failure it goes back to the held state */
    m[i].missed = false
}

inline crash(i) {
    failures++;
    leave(i);
    m[i].slot = 0;
    m[i].refuses = false;
    if
    :: lost < LOST ->
        lost++;
        clear(m[i].saved);
        for (q : 0 .. 1) { clear(m[i].own[q]); clear(m[i].other[q]) }
    :: true
    fi;
    set(m[i].held, m[i].saved)
}

inline begin_epoch() {
    epoch++;
    kind = 3; looked = false; clear(chosen);
    if
    :: view = ALL
    :: view = ALL & ~BIT(0)
    :: view = ALL & ~BIT(1)
    :: view = ALL & ~BIT(2)
    fi;
    for (k : 0 .. N - 1) {
        if
        :: IN(k) -> m[k].here = true; m[k].phase = HEALS
        :: else
        fi
    }
}

inline heal(i) {
    best = i;
    for (k : 0 .. N - 1) {
        if
        :: IN(k) && m[k].held.step > m[best].held.step -> best = k
        :: else
        fi
    }
    set(m[i].held, m[best].held);
    best = 0;
    m[i].phase = TAKES;
    m[i].calls++
}

/* Whether part p of a state is stored by a member of the view. */
#ifdef NO_EPOCH
#define IS(x, s) (x.step == s.step)
#else
#define IS(x, s) (x.step == s.step && x.epoch == s.epoch)
#endif
#define AFTER(p) ((p) == N - 1 -> 0 : (p) + 1)
#define STORED(p, s) ((IN(p) && (IS(m[p].own[0], s) || IS(m[p].own[1], s))) || \
    (IN(AFTER(p)) && (IS(m[AFTER(p)].other[0], s) || IS(m[AFTER(p)].other[1], s))))
#ifdef NO_COVER
#define COVERED(s) true
#else
#define COVERED(s) (STORED(0, s) && STORED(1, s) && STORED(2, s))
#endif

#define NEWER(a, b) (a.step > b.step || (a.step == b.step && a.epoch > b.epoch))

inline consider(s) {
    if
    :: s.step > m[i].held.step && NEWER(s, chosen) && COVERED(s) -> set(chosen, s)
    :: else
    fi
}

#define EXACTLY(x) (x.step == chosen.step && x.epoch == chosen.epoch)

/* All members choose the same: what lies on the disks does not change before all have. */
inline take(i) {
    if
    :: !looked ->
        looked = true;
        for (p : 0 .. N - 1) {
            if
            :: IN(p) ->
                for (q : 0 .. 1) { consider(m[p].own[q]); consider(m[p].other[q]) }
            :: else
            fi
        }
        if
        :: chosen.step > 0 -> /* each part that is taken is of this state, and no part is missing */
            for (p : 0 .. N - 1) {
                found = 0;
                for (q : 0 .. 1) {
                    if :: IN(p) && EXACTLY(m[p].own[q]) -> found = 1 :: else fi;
                    if :: IN(AFTER(p)) && EXACTLY(m[AFTER(p)].other[q]) -> found = 1 :: else fi
                }
                assert(found)
            }
            found = 0
        :: else
        fi
    :: else
    fi;
    if
    :: chosen.step > 0 -> set(m[i].held, chosen)
    :: else
    fi;
    /* What all have stored is lost with two disks only. */
    assert(view != ALL || m[i].held.step >= agreed);
    m[i].calls++;
    if
    :: view == ALL -> set(m[i].part, m[i].held); m[i].phase = SAVES
    :: else -> m[i].calls = 100 /* a member is missing: the others wait */
    fi
}

inline save(i) {
    write(i, m[i].saved, m[i].held);
    m[i].missed = false;
    m[i].phase = VOTES
}

/* The first member to which the vote returns draws whether all store, and what. The state before the first step is that
 * of the version, which all have. */
inline vote(i) {
    m[i].part.step++;
    m[i].part.epoch = epoch;
    found = 0;
    for (k : 0 .. N - 1) {
        if
        :: m[k].calls > m[i].calls -> found = 1
        :: else
        fi
    }
    if
    :: found -> skip
    :: !found -> kind = 0
#ifdef NO_WHOLE_VOTE
    :: !found -> kind = 2
#else
    :: !found && (m[0].refuses || m[1].refuses || m[2].refuses) -> kind = 1
    :: !found && !(m[0].refuses || m[1].refuses || m[2].refuses) -> kind = 2
#endif
    fi;
    found = 0;
    clear(chosen); /* all have taken it */
    m[i].phase = (kind == 0 -> VOTES : (kind == 1 -> GATHERS : WRITES));
    m[i].calls++
}

/* Kept in memory where the disk refuses it. */
inline gather(i) {
    set(m[i].held, m[i].part);
    write(i, m[i].saved, m[i].held);
    m[i].missed = false;
    m[i].phase = VOTES;
    m[i].calls++
}

inline store_own(i) {
    write(i, m[i].own[m[i].slot], m[i].part);
    m[i].phase = RECEIVES
}

/* It comes as soon as the member before has written it, which sends it or says that it has not got it. */
#define SENT(k, i) (m[k].here && m[k].calls == m[i].calls && m[k].phase > WRITES)

inline receive(i) {
#ifndef NO_OTHER
    if
    :: !m[BEFORE(i)].missed -> write(i, m[i].other[m[i].slot], m[i].part)
    :: else
    fi;
#endif
    m[i].phase = AGREES
}

inline agree(i) {
    found = !(m[0].missed || m[1].missed || m[2].missed);
    if
    :: found -> agreed = (m[i].part.step > agreed -> m[i].part.step : agreed)
    :: else
    fi;
#ifdef NO_AGREE
    found = 1;
#endif
#ifndef NO_SLOTS
    m[i].slot = (found -> 1 - m[i].slot : m[i].slot);
#endif
    found = 0;
    m[i].phase = VOTES; /* what it missed is forgotten then, when all have heard of it */
    m[i].calls++
}

proctype Run(byte i) {
end:
    do
    :: atomic { RETURNS(i) && m[i].phase == HEALS -> heal(i) }
    :: atomic { RETURNS(i) && m[i].phase == TAKES -> take(i) }
    :: atomic { m[i].here && m[i].phase == SAVES -> save(i) }
    :: atomic { RETURNS(i) && m[i].phase == VOTES && m[i].part.step < STEPS -> m[i].missed = false; vote(i) }
    :: atomic { RETURNS(i) && m[i].phase == GATHERS -> gather(i) }
    :: atomic { m[i].here && m[i].phase == WRITES -> store_own(i) }
    :: atomic { m[i].here && m[i].phase == RECEIVES && (SENT(BEFORE(i), i)) -> receive(i) }
    :: atomic { RETURNS(i) && m[i].phase == AGREES -> agree(i) }

    /* A member is lost, or killed and starts again. */
    :: atomic { m[i].here -> leave(i) }
    :: atomic { failures < F -> crash(i) }
    od
}

init {
    atomic {
        agreed = 0;
        for (k : 0 .. N - 1) { run Run(k) }
    };
end:
    do
    :: atomic { !m[0].here && !m[1].here && !m[2].here && epoch < EPOCHS -> begin_epoch() }
    od
}
