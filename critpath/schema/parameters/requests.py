"""Numbers that `requests` decides by."""

from __future__ import annotations

from typing import Final

from critpath.schema.parameters import (
    COST,
    CUSTOM,
    SERVERS,
    Derived,
    Group,
    Paper,
    Parameter,
)


class Tokens(Group, name="tokens", guards="requests whose order is in doubt"):
    """Who asked, where no rule decides it."""

    unsure = Parameter(
        0.01,
        "share",
        "of a process's sub-requests in doubt or nobody's: its tokens are followed",
        SERVERS,
    )
    passes = Parameter(4, "passes", "in which orders are learned and followed again", SERVERS)
    longest = Parameter(6, "steps", "of what requests ask, to try its orders", COST)
    orders = Parameter(6, "orders", "that are tried", COST)
    some = Parameter(
        0.05,
        "share",
        "of the requests that ask something: what fewer ask is no part of an order",
        SERVERS,
    )
    drawn = Parameter(20, "requests", "as guessed, of whom some ask what not all do", SERVERS)
    alike = Parameter(
        0.97, "share", "of a process's requests that are alike: nothing more is tried", SERVERS
    )
    alike_asks = Parameter(
        0.5, "share", "of what is asked alike at most, where nothing shows a mistake", SERVERS
    )
    way = Parameter(
        0.02,
        "share",
        "of evenness that every further usual way takes: with many, mistakes are usual",
        SERVERS,
    )
    least_gain = Parameter(
        0.002,
        "share",
        "of requests that are usual, to believe one pass rather than another",
        SERVERS,
    )
    least_spread = Parameter(
        0.1, "log", "spread of a delay, that is never believed to be less", SERVERS
    )
    strange = Parameter(0.001, "weight", "of a change between steps that was never seen", SERVERS)
    rounds = Parameter(3, "rounds", "of assigning all that are open together", SERVERS)
    surest = Parameter(
        50.0,
        "cost",
        "between the best and the next, beyond which a link is as sure as can be",
        CUSTOM,
    )
    doubted = Parameter(
        0.01, "share", "of a service's sub-requests in doubt, for it to be doubtful", SERVERS
    )
    missing = Parameter(
        0.25,
        "sub-requests",
        "that are said to be others' and may be a request's: more, and what it asked is in doubt",
        SERVERS,
    )


TOKENS: Final = Tokens()


class Owners(Group, name="owners", guards="loops whose order is in doubt"):
    """Whose work is whose, by the order of events."""

    leads = Parameter(
        (0, 1, 2),
        "rounds",
        "by which results are acted on sooner than requests, that are tried",
        SERVERS,
    )
    seldom = Parameter(
        0.2,
        "share",
        "of what was seen after a history: less than this a request does not ask",
        SERVERS,
    )
    depth = Parameter(8, "steps", "of histories", SERVERS)
    learned_from = Parameter(50_000, "requests", "that are learned from at most", COST)
    few = Parameter(
        20, "requests", "of a size or on a loop, that are too few to say what is usual", SERVERS
    )
    sizes = Parameter(1.25, "times", "as large is a message of the next class of sizes", SERVERS)
    direct = Parameter(
        0.9,
        "share",
        "of a loop's receives that are followed at once by a send, to be for the same request",
        SERVERS,
    )
    exchanged = Parameter(
        0.02,
        "share",
        "of a loop's requests, to be exchanged by an answer, before its order is believed nowhere",
        SERVERS,
    )
    contradicted = Parameter(
        0.25,
        "share",
        "of a loop's requests, to contradict how a loop with helpers goes round: on "
        "asyncio's 4 % do with 4 connections, 10 % with 16, of which 98 % are right; 62 % "
        "and more with 64, where most are wrong",
        SERVERS,
    )
    wanders = Parameter(
        0.05,
        "share",
        "of a process's sub-requests that may be answered to another thread than asked",
        SERVERS,
    )
    odd = Parameter(
        0.02,
        "share",
        "of a loop's requests that may ask another number of times than is usual",
        SERVERS,
    )


OWNERS: Final = Owners()


class Chains(Group, name="chains", guards="loops that work for several requests at once"):
    """Whose calls are on a loop, by all of them together."""

    open = Parameter(128, "requests", "open at once of which a call may be one's, at most", COST)
    learned_from = Parameter(3000, "calls", "that are learned from; the rest follows", COST)
    runs = Parameter(
        3, "runs", "from other beginnings: where they end up apart, none is believed", SERVERS
    )
    alone = Parameter(
        30.0, "requests", "that ask what no other asks, as an urn begins with them", SERVERS
    )
    disputed = Parameter(
        0.15, "share", "of calls on which runs differ, from which on they are warmed again", SERVERS
    )
    reheats = Parameter(9, "times", "at most that a run is warmed again", COST)
    warm = Parameter(2.5, "temperature", "to which it is warmed", SERVERS)
    gain = Parameter(0.01, "log", "per call that a run must gain by it, in one of two times", COST)
    few = Parameter(20, "steps", "of a sort, that are too few to say what is usual", SERVERS)
    fixed = Parameter(
        0.99, "share", "followed by one kind, for both to be one use of a connection", SERVERS
    )
    by_chance = Parameter(1e-6, "probability", "of that if kinds were in any order", SERVERS)
    guesses = Parameter(300, "updates", "of the first guess of rounds", COST)
    guessed = Parameter(40.0, "steps", "that the first guess counts as", SERVERS)
    one_follows = Parameter(1.0, "weight", "of that each step is followed by one", SERVERS)
    rounds_unknown = Parameter(2.0, "steps", "that nothing known of rounds counts as", SERVERS)
    strange_rounds = Parameter(0.02, "share", "of steps that take any number of rounds", SERVERS)
    overtakes_at_first = Parameter(0.7, "log", "that overtaking costs before it is known", SERVERS)
    in_turn_at_first = Parameter(
        (1.5, 0.4, 0.4, 0.4),
        "log",
        "that another order in one round costs before it is known: of causes of one "
        "round, and if one waited for a connection; and of others",
        SERVERS,
    )
    hot = Parameter(6.0, "temperature", "at which exchanges begin", SERVERS)
    cools = Parameter(0.97, "times", "the temperature from one sweep to the next", COST)
    learns_below = Parameter(
        1.4, "temperature", "from which on it is learned what is usual", SERVERS
    )
    last = Parameter(8, "sweeps", "at the end, each followed by learning", COST)
    sweeps = Parameter(2, "sweeps", "at each temperature", COST)
    proposals = Parameter(6, "exchanges", "that are proposed for each call in a sweep", COST)
    drawn = Parameter(30, "states", "that are counted of each run", COST)
    carried = Parameter(
        (2.0, 2.0, 1.8, 1.6, 1.5, 1.4, 1.3, 1.2, 1.1, 1.0, 1.0, 1.0),
        "temperature",
        "of the sweeps over the rest, by what was learned",
        COST,
    )
    alike = Parameter(
        0.3,
        "log",
        "per call by which one run is more probable than another, to count e times as much",
        SERVERS,
    )
    surest = Parameter((0.02, 0.998), "share", "of states: less and more count as these", SERVERS)
    told = Parameter(
        0.5,
        "probability",
        "below which it is not said whose a call is, only of how many requests it may be one's",
        SERVERS,
    )
    high = Parameter(2.0, "log", "of odds, above which they count for less", SERVERS)
    apart = Parameter(
        0.2,
        "share",
        "of calls on which runs differ, above which nothing is said: mostly less than half is "
        "right then, also of what runs agree on (full pools without labels)",
        SERVERS,
    )
    odds = Parameter(
        (1.32, 2.45, 2.42, 0.46, 0.02),
        "log",
        "of the odds that a call's owner is right: for each of those that the share of states "
        "gives; what is taken where runs end wholly apart, and that from each; from each that is "
        "high; and what is added (`States.weigh`; evaluation/servers/calibrated.py fits it)",
        SERVERS,
    )


CHAINS: Final = Chains()


class Pools(Group, name="pools", guards="pools of threads"):
    """Which of a pool's threads works for which request."""

    learned_from = Parameter(1000, "units", "by which it is learned how sharp both ends are", COST)
    rounds = Parameter(3, "rounds", "of learning", SERVERS)
    spread = Parameter(
        (1.0, 0.5),
        "places",
        "by which begins and ends are out of order at first: a thread may lose its cpu "
        "between what it takes and what it asks, whom it tells that it is done is told in "
        "order",
        SERVERS,
    )
    sharpest = Parameter((0.5, 0.3), "places", "the same, at least", SERVERS)
    outside = Parameter(
        0.05,
        "share",
        "of units that may end while no request is unanswered: answers come first",
        SERVERS,
    )
    units = Parameter(2, "units", "of each thread at least, or it is made for one request", SERVERS)
    sure = Parameter(
        0.9, "probability", "from which on an assignment is likely, not doubtful", SERVERS
    )


POOLS: Final = Pools()


class Proxies(Group, name="proxies", guards="who passes requests on"):
    """Whose calls of proxies are."""

    certain = Parameter(
        0.25,
        "share",
        "of calls that one request alone can have made, to take a process for one that passes "
        "requests on: of nine proxies and poolers with 16 connections 49 % and more are",
        SERVERS,
    )
    in_order = Parameter(
        0.9,
        "share",
        "of the others that have the same order from both ends, to be likely where they have: of "
        "haproxy 97 % and more, of Envoy, which answers in another order, 45 %",
        SERVERS,
    )


PROXIES: Final = Proxies()


class Tiers(Group, name="tiers", guards="requests of which it is doubtful what they asked"):
    """Whether the others are like them."""

    middle = Parameter(
        (0.25, 0.75), "shares", "of the others that take less than is like the rest", CUSTOM
    )
    few = Parameter(20, "requests", "of either that are too few to be like the rest", CUSTOM)


TIERS: Final = Tiers()


class Connections(Group, name="connections", guards="pools of connections"):
    """Which waits are for a connection that other requests hold."""

    held = Parameter(
        0.9,
        "share",
        "of a wait in which all connections have to be held: a request has one a little before "
        "its first call and until after its last answer",
        SERVERS,
    )
    handed = Parameter(
        0.05,
        "of the middle call",
        "between two calls of one connection: it was handed on, though threads slept",
        SERVERS,
    )
    again = Parameter(
        500_000,
        "ns",
        "from the end of a sleep to the next that are one wait: another was faster",
        SERVERS,
    )
    asleep = Parameter(
        0.5, "share", "of a wait in which the thread sleeps: else it is the loop's", SERVERS
    )


CONNECTIONS: Final = Connections()


class Blocking(Group, name="blocking", guards="loops that requests wait for"):
    """Which sleeps of a loop are no waits for the next request, and whom it worked for."""

    asleep = Parameter(
        50_000,
        "ns",
        "that a loop sleeps on though something is there: who waits for it is woken within",
        SERVERS,
    )
    calls = Parameter(
        3, "calls", "of a loop to a service that blocked it, for all of them to do so", SERVERS
    )
    odd = Parameter(
        0.1,
        "share",
        "of a loop's calls to a service, at most, beside which it did something else, where they"
        " block it",
        SERVERS,
    )
    long = Parameter(
        5_000_000,
        "ns",
        "that a loop runs without a break, to have done so for whom it acts then",
        SERVERS,
    )
    longer = Parameter(
        10.0, "times", "the middle stretch of its loop that such a stretch takes as well", SERVERS
    )
    worth = Parameter(
        0.01, "share", "of the time that a loop is blocked, from which on that is noted", CUSTOM
    )
    most = Parameter(
        0.5, "share", "of a wait for a loop that it worked for what is named", Derived("half")
    )


BLOCKING: Final = Blocking()


class Brokers(Group, name="brokers", guards="messages that go through brokers"):
    """Which messages that come out of a broker are those that went in."""

    fewest = Parameter(
        8,
        "messages",
        "that a program receives, before lengths say that they are passed on",
        SERVERS,
    )
    apart = Parameter(
        1_000_000,
        "ns",
        "between sends of one message; a queue that has something answers sooner",
        SERVERS,
    )
    channels = Parameter(
        4, "channels", "by which messages come to a program: its queues differ in length", SERVERS
    )
    share = Parameter(
        0.1, "share", "of what a program receives, for it to be what is passed on", SERVERS
    )
    lengths = Parameter(3, "lengths", "of messages at least, for theirs to be no accident", SERVERS)
    added = Parameter(
        512, "bytes", "that a broker's protocol adds to a message at most, or takes away", SERVERS
    )
    alike = Parameter(
        0.8, "share", "of messages of one length at most; of answers that are an echo", SERVERS
    )
    disorder = Parameter(
        0.25,
        "share",
        "of messages that come after one that was put there later, or too late",
        SERVERS,
    )
    passed = Parameter(
        0.2, "share", "of what comes over a connection, to be messages: else it is chance", SERVERS
    )
    answered = Parameter(
        0.5,
        "share",
        "of a program's messages that follow one that it put there itself: then they are answers",
        SERVERS,
    )
    ended = Parameter(
        0.5,
        "share",
        "of messages that the same answer follows, for it to say that they are done",
        SERVERS,
    )
    mixed = Parameter(
        0.25, "share", "of jobs whose end is theirs, where a message was not found beside", SERVERS
    )
    mistakes = Parameter(0.5, "messages", "in the wrong order that are always expected", SERVERS)
    alone = Parameter(
        0.99, "probability", "of the only message of its length, as what is called likely", SERVERS
    )


BROKERS: Final = Brokers()


class Rounds(Group, name="rounds", guards="loops with helpers"):
    """How loops hand requests to helpers."""

    most = Parameter(
        0.5,
        "share",
        "of what a helper ran for a result, to have been done before it lost its cpu",
        SERVERS,
    )
    tried = Parameter(2000, "requests", "that its orders are tried on", COST)
    wrong = Parameter(
        0.9, "share", "of the requests that contradict: this is not what they do", SERVERS
    )
    left = Parameter(
        1000, "results", "that nobody took account of: both ends say nothing then", SERVERS
    )
    alike = Parameter(
        0.3,
        "times",
        "a request more or less often than once, twice and so on, that is as often",
        SERVERS,
    )


ROUNDS: Final = Rounds()


class Transitions(Group, name="transitions", guards="services of many kinds of requests"):
    """What a request does next."""

    seen = Parameter(5, "times", "a whole history was seen: enough to go by", SERVERS)
    least = Parameter(
        0.02, "share", "of what follows a history: what is rarer is not expected", SERVERS
    )
    smoothing = Parameter(0.5, "counts", "pseudo-count of what may follow", CUSTOM)
    exact = Parameter(64, "sizes", "of a service that are told apart; with more, classes", SERVERS)
    near = Parameter(
        1.1, "times", "as large may a message of one kind be in another recording", SERVERS
    )
    learned = Parameter(
        100, "times", "the most frequent way of another recording counts as seen", SERVERS
    )


TRANSITIONS: Final = Transitions()


class Turns(
    Group, name="turns", guards="several requests at once on a connection, streams and pushes"
):
    """What is one request and one answer on a connection."""

    intruded = Parameter(
        0.02,
        "share",
        "of turns with data that came apart while an answer was owed: more is several "
        "requests at once",
        SERVERS,
    )
    intruded_all = Parameter(
        0.015, "share", "the same, of all connections of a service together", SERVERS
    )
    enough = Parameter(
        200,
        "turns",
        "of a connection to be judged by itself, not with the others of its service",
        SERVERS,
    )
    fewest = Parameter(3, "turns", "such, that make several requests at once", SERVERS)
    greeting = Parameter(
        3, "turns", "at a connection's begin, in which protocols settle how they go on", SERVERS
    )
    pauses = Parameter(
        3,
        "pauses",
        "within an answer during which nothing was asked: more is a stream, or messages "
        "that nobody asked for",
        SERVERS,
    )
    small_answer = Parameter(
        1400,
        "bytes",
        "larger answers are cut by what the socket takes",
        Derived("a packet of Ethernet, less its heads"),
    )
    fewest_pieces = Parameter(
        3, "pieces", "that can change places; of two that were gathered any order comes", SERVERS
    )


TURNS: Final = Turns()


class Finding(Group, name="finding", guards="services that others ask"):
    """Which requests nobody else asked for."""

    topmost = Parameter(
        0.5,
        "share",
        "of a service's requests that no other asked for: of one with fewer these are of requests "
        "that are not known",
        SERVERS,
    )


FINDING: Final = Finding()


class Sessions(Group, name="sessions", guards="sockets of sessions of TLS"):
    """Which receive or send had what a library of TLS read or wrote in clear."""

    nearest = Parameter(
        4,
        "calls",
        "of a thread, before what it read or after what it wrote, that are tried",
        SERVERS,
    )
    least = Parameter(
        16,
        "bytes",
        "that a record has besides at least",
        Paper("RFC 8446 5.2: the tag; its head may have been received before"),
    )
    most = Parameter(
        40,
        "bytes",
        "that it has at most, if it is one",
        Paper("RFC 8446 and 5288: head, nonce, type and tag are 22 to 29; some padding"),
    )
    unfit = Parameter(
        0.25, "weight", "of a receive or send with other bytes: of several records", SERVERS
    )


SESSIONS: Final = Sessions()
