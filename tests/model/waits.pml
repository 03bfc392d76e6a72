/* waits.pml - what waits to be sent, in files of parts, for Spin: runtime/round/session/chain/session_waiting_*.c and
 * runtime/round/CHECKPOINT.md, "What waits, in parts". README.md says what each part stands for.
 *
 * Member i holds part i of a model in N parts. The steps of a round are parts.pml's matter, and who is in which epoch
 * is group.pml's: here a round is trained in one move, and an epoch begins when the one before is over. At the end of
 * each, any of its members are killed. There are any number of epochs.
 *
 * Each NO_... leaves out one protection; the search must then find a violated assertion.
 */

#ifndef N
#define N 3        /* members, and parts */
#endif
#ifndef LOST
#define LOST 1     /* disks that are lost, each with a kill */
#endif
#ifndef REFUSED
#define REFUSED 1  /* writes that a disk refuses */
#endif
#ifndef ROUNDS
#define ROUNDS 2   /* the first is over when the search begins; after the last one what waits is read once more */
#endif
#ifndef RESULTS
#define RESULTS 2  /* that a round may have which is trained again */
#endif

#define BIT(i) (1 << (i))
#define ALL (BIT(N) - 1)
#define BEFORE(i) ((i) == 0 -> N - 1 : (i) - 1)
#define AFTER(i) ((i) == N - 1 -> 0 : (i) + 1)

/* A state: the newest has the highest level. `made` says with which result the round ended whose set it names. */
typedef Training { byte level, made };

#define SEND(round) (3 * (round) - 1)
#define BASE(round) (3 * (round)) /* until the set of the next round is named, also in phase train */
#define NAMED(s) ((s.level + 1) / 3) /* round of the set that a state names; 0: the disk was lost */
#define SENDS(s) (s.level == SEND(NAMED(s)))

/* Sets have numbers, and files of a set are bits of a member's files. */
#define SETS (RESULTS * ROUNDS)
#define OF(round, made) (RESULTS * ((round) - 1) + (made))
#define SET(s) OF(NAMED(s), s.made)
#define FILE(set, part) BIT(N * (set) + (part))
#define FILES(set) (ALL << (N * (set)))
#define KEPT(s) (NAMED(s) == 0 -> 0 : FILES(SET(s)))

typedef Member {
    byte phase;  /* what it does next */
    Training held;  /* in memory */
    Training saved; /* on its disk */
    int files    /* on its disk */
};

/* In the order in which a level has them. */
#define OUT 0
#define TRAINS 1  /* its next call is the last of the round's training, and reads what waits */
#ifdef NO_STORE_FIRST
#define SAVES 2
#define WRITES 3
#define AGREES 4
#else
#define WRITES 2  /* it stores its part, or one that no disk has taken yet; */
#define AGREES 3  /* its next call returns when each part is on a disk */
#define SAVES 4   /* it saves the state with the frame; */
#endif
#define SECURES 5 /* its next call returns when a member has saved it */
#define COPIES 6  /* its next call gives each part that only one member has to another one */
#define DECIDES 7 /* its next call says what became of the frame */
#define IDLES 8   /* the epoch has too few members for a chain, or all rounds are over */

Member m[N];
byte view;         /* of the epoch; 0: there is none */
byte lost, refused;
byte made;         /* result of the round that this epoch trains, drawn by the first that ends it; 2: not yet */
byte copies;       /* of this epoch: 1 copies are made before the frame's fate is known; 2: not drawn yet */
byte given;        /* last round whose frame the gateway may have */
int safe;          /* sets of which each part was on two disks, with all files */
int damaged;       /* sets of which a disk was lost before that */

hidden byte k, p, best;
hidden int all;

#define IN(k) (view & BIT(k))
#define POS(k) (16 * m[k].held.level + m[k].phase)
#define MADE(i, k) (!IN(k) || POS(k) >= POS(i))
#define RETURNS(i) (MADE(i, 0) && MADE(i, 1) && MADE(i, 2))

#define HAS(k, file) (IN(k) && (m[k].files & (file)))
#define HOLDERS(file) ((HAS(0, file) -> 1 : 0) + (HAS(1, file) -> 1 : 0) + (HAS(2, file) -> 1 : 0))

/* The set of the round that is stored now, and of the round that a member has trained. */
#ifdef NO_STORE_FIRST
#define NOW(i) OF(NAMED(m[i].held), made)
#else
#define NOW(i) OF(NAMED(m[i].held) + 1, made)
#endif

inline set(to, from) { to.level = from.level; to.made = from.made }

/* A disk takes a state or a file, or refuses it. */
inline save(i) {
    if
    :: set(m[i].saved, m[i].held)
    :: refused < REFUSED -> refused++
    fi
}

inline store(i, file) {
    if
    :: m[i].files = m[i].files | (file)
    :: refused < REFUSED -> refused++
    fi
}

/* The files of all sets go but those that the states in memory and on the disk name, and `other`. */
inline forget(i, other) {
    m[i].files = m[i].files & (KEPT(m[i].held) | KEPT(m[i].saved) | (other))
}

#ifdef NO_LATER
#define LATER(s) 0
#else
#define LATER(s) (~(BIT(RESULTS * N * NAMED(s)) - 1))
#endif

/* --- epochs --- */

inline go_on(i) {
    if
    :: SENDS(m[i].held) -> m[i].phase = SAVES
    :: !SENDS(m[i].held) && view == ALL -> m[i].phase = TRAINS
    :: else -> m[i].phase = IDLES
    fi
}

/* The newest state is given to all. */
inline begin_epoch() {
    select(view : 1 .. ALL);
    best = N;
    for (k : 0 .. N - 1) {
        if
        :: IN(k) && best == N -> best = k
        :: IN(k) && best < N && m[k].held.level > m[best].held.level -> best = k
        :: else
        fi
    }
    if
    :: m[best].held.level == 0 -> view = 0 /* all that are here have lost their disks */
    :: else
    fi;
    for (k : 0 .. N - 1) {
        if
        :: IN(k) ->
            if
            :: m[k].held.level != m[best].held.level || m[k].held.made != m[best].held.made ->
                set(m[k].held, m[best].held);
                save(k)
            :: else
            fi;
            go_on(k)
        :: else
        fi
    }
    /* What the gateway may have is there. After a lost disk it is made again. */
    assert(view != ALL || lost > 0 || m[0].held.level >= SEND(given));
    best = 0; made = 2; copies = 2
}

/* A disk that is lost takes sets with it that were not safe yet. */
inline lose(i) {
    lost++;
    for (p : 0 .. SETS - 1) {
        if
        :: (m[i].files & FILES(p)) && !(safe & BIT(p)) -> damaged = damaged | BIT(p)
        :: else
        fi
    }
    p = 0;
    m[i].saved.level = 0; m[i].saved.made = 0;
    m[i].files = 0
}

/* Each member leaves and keeps what it has in memory, or is killed. */
inline end_epoch() {
    for (k : 0 .. N - 1) {
        if
        :: IN(k)
        :: IN(k) ->
            if
            :: lost < LOST -> lose(k)
            :: true
            fi;
            set(m[k].held, m[k].saved)
        :: !IN(k)
        fi;
        m[k].phase = OUT
    }
    view = 0; made = 0; copies = 0
}

/* --- the end of a round --- */

/* Each part is read from the disk of a member that has it; NAME is what its name tells. */
#ifdef NO_CONTENT
#define NAME(round, made, part) (FILE(OF(round, 0), part) | FILE(OF(round, 1), part))
#else
#define NAME(round, made, part) FILE(OF(round, made), part)
#endif

inline read(i) {
    for (p : 0 .. N - 1) {
        all = NAME(NAMED(m[i].held), m[i].held.made, p);
        assert(HOLDERS(all) > 0 || (damaged & BIT(SET(m[i].held))));
        /* Nothing else has its name. */
        all = all & ~FILE(SET(m[i].held), p);
        assert(HOLDERS(all) == 0)
    }
    p = 0; all = 0
}

#define AHEAD(i, k) (IN(k) && POS(k) > POS(i))

inline train(i) {
    if
    :: made == 2 -> read(i); select(made : 0 .. RESULTS - 1)
    :: else
    fi;
    if
    :: NAMED(m[i].held) == ROUNDS -> m[i].phase = IDLES
    :: else ->
#ifdef NO_STORE_FIRST
        m[i].held.level = SEND(NAMED(m[i].held) + 1);
        m[i].held.made = made;
        m[i].phase = SAVES
#else
        m[i].phase = WRITES
#endif
    fi
}

#define LACKED(i, part) (HOLDERS(FILE(NOW(i), part)) == 0)

/* A few sets stay that nothing names. */
inline write(i) {
    if
    :: forget(i, FILES(NOW(i)))
    :: true
    fi;
    if
    :: !(m[i].files & FILE(NOW(i), i)) -> store(i, FILE(NOW(i), i))
    :: else
    fi;
    m[i].phase = AGREES
}

/* Where the disk of the member before does not take its part, this one does. */
inline give(i) {
    if
    :: LACKED(i, i) -> store(i, FILE(NOW(i), i))
    :: else
    fi;
    if
    :: LACKED(i, BEFORE(i)) -> store(i, FILE(NOW(i), BEFORE(i)))
    :: else
    fi
}

#define STORED(i) (!LACKED(i, 0) && !LACKED(i, 1) && !LACKED(i, 2))

inline agree(i) {
#ifdef NO_STORE_FIRST
    m[i].phase = SECURES
#else
    m[i].held.level = SEND(NAMED(m[i].held) + 1);
    m[i].held.made = made;
    m[i].phase = SAVES
#endif
}

#define SAVED(k, i) (IN(k) && m[k].saved.level >= m[i].held.level)
#ifdef NO_SECURE
#define SECURED(i) true
#else
#define SECURED(i) (SAVED(0, i) || SAVED(1, i) || SAVED(2, i))
#endif

/* From now on the frame may be sent. */
inline secure(i) {
    given = (NAMED(m[i].held) > given -> NAMED(m[i].held) : given);
    if
    :: copies == 2 -> select(copies : 0 .. 1)
    :: else
    fi;
    m[i].phase = (copies -> COPIES : DECIDES)
}

/* The first to which the call returns stores all copies, of what was there when the call was made. */
inline copy(i) {
    if
    :: copies == 1 ->
        copies = 0; all = 0;
        for (p : 0 .. N - 1) {
            if
            :: HOLDERS(FILE(SET(m[i].held), p)) == 1 -> all = all | BIT(p)
            :: else
            fi
        }
#ifndef NO_COPY
        for (p : 0 .. N - 1) {
            if
            :: all & BIT(p) ->
                for (k : 0 .. N - 1) {
                    if
                    :: HAS(k, FILE(SET(m[i].held), p)) -> best = k
                    :: else
                    fi
                }
                best = (IN(AFTER(best)) -> AFTER(best) : BEFORE(best));
                if
                :: IN(best) -> store(best, FILE(SET(m[i].held), p))
                :: else
                fi
            :: else
            fi
        }
        all = 0;
        for (p : 0 .. N - 1) {
            all = all + (HOLDERS(FILE(SET(m[i].held), p)) >= 2 -> 1 : 0)
        }
#else
        all = N;
#endif
        if
        :: all == N -> safe = safe | BIT(SET(m[i].held))
        :: else
        fi;
        p = 0; all = 0; best = 0
    :: else
    fi;
    m[i].phase = DECIDES
}

inline decide(i) {
    m[i].held.level = BASE(NAMED(m[i].held));
    save(i);
    forget(i, LATER(m[i].held));
    go_on(i)
}

proctype Run(byte i) {
end:
    do
    :: atomic { m[i].phase == TRAINS && RETURNS(i) -> train(i) }
    :: atomic { m[i].phase == WRITES -> write(i) }
    :: atomic { m[i].phase == AGREES && RETURNS(i) && STORED(i) -> agree(i) }
    :: atomic { m[i].phase == AGREES && RETURNS(i) && (LACKED(i, i) || LACKED(i, BEFORE(i))) -> give(i) }
    :: atomic { m[i].phase == SAVES -> save(i); m[i].phase = (SAVES < WRITES -> WRITES : SECURES) }
    :: atomic { m[i].phase == SECURES && RETURNS(i) && SECURED(i) -> secure(i) }
    :: atomic { m[i].phase == SECURES && RETURNS(i) && !SECURED(i) -> m[i].phase = SAVES }
    :: atomic { m[i].phase == COPIES && RETURNS(i) -> copy(i) }
    :: atomic { m[i].phase == DECIDES && RETURNS(i) -> decide(i) }
    od
}

init {
    atomic {
        for (k : 0 .. N - 1) {
            m[k].held.level = BASE(1);
            m[k].saved.level = BASE(1);
            m[k].files = FILE(OF(1, 0), k) | FILE(OF(1, 0), BEFORE(k));
            run Run(k)
        }
        safe = BIT(OF(1, 0));
        given = 1
    };
end:
    do
    :: atomic { view == 0 -> begin_epoch() }
    :: atomic { view != 0 -> end_epoch() }
    od
}
